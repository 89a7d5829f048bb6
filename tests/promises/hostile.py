"""Replies of an LM that wants to be misread, each with what a careful person may read from it.

    for reply in replies(seed=1, count=100_000):
        if wrong := misread(reply):
            print(wrong)

Most are put together from pieces of known meaning. The rest are token soup and mutations of these, held to rules that
know nothing of the reader: a verdict that a text does not hold, or also denies, must not come out of it.
"""
# ruff: noqa: E501 - what an LM sends, one reply a line

import json
import random
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dspy
from dspy.lm15 import Message, Request, Response, Usage
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.adapter import adapter_named
from raisf.lm.chat import JSONAdapter, strict
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.critique import RetrievalNeed
from raisf.signatures.judges import Decomposition, ListwiseRelevance, PassageRelevance, SelfKnowledge

FORMATS = {
    "chat": strict(dspy.ChatAdapter(use_json_adapter_fallback=False)),
    "json": JSONAdapter(),
    "compact": adapter_named("compact"),
    "pocket": adapter_named("pocket"),
}
JUDGES: tuple[Any, ...] = (SelfKnowledge, PassageRelevance, RetrievalNeed)


@dataclass(frozen=True, slots=True)
class Reply:
    """What an LM sent.

    Attributes:
        text: The whole of it.
        signature: What was asked.
        form: The format it was asked in, a key of `FORMATS`.
        allowed: The values that may be read from it, beside nothing at all; None: the rules for soup hold.
        finish: Why the LM ended.
    """

    text: str
    signature: Any
    form: str
    allowed: tuple[Any, ...] | None
    finish: str = "stop"


def read(reply: Reply) -> Any:
    """What the program would go on with; None where it reads nothing."""
    adapter: Any = FORMATS[reply.form]
    (name,) = reply.signature.output_fields
    try:
        if reply.finish == "stop":
            return adapter.parse(reply.signature, reply.text)[name]
        inputs = dict.fromkeys(reply.signature.input_fields, "x")
        with dspy.context(disable_history=True):
            return adapter(Saying(reply), {}, reply.signature, [], inputs)[0][name]
    except AdapterParseError:
        return None


def misread(reply: Reply) -> str | None:
    """What is wrong with the reading of a reply; None if nothing is."""
    value = read(reply)
    if value is None:
        return None
    fine = value in reply.allowed if reply.allowed is not None else _plausible(reply, value)
    return None if fine else f"{reply.form}: {reply.text[:200]!r} ({reply.finish}) is read as {value!r}"


class Saying(dspy.LM):
    """An LM that sends one reply."""

    def __init__(self, reply: Reply):
        super().__init__("hostile/lm", cache=False, num_retries=0, engine=_Engine(reply))


class _Engine:
    def __init__(self, reply: Reply):
        self.reply = reply

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Engine":
        return self

    def complete(self, request: Request) -> Response:
        return Response(None, request.model, Message.assistant(self.reply.text), self.reply.finish, Usage())  # type: ignore[arg-type]


def replies(seed: int, count: int) -> Iterator[Reply]:
    """So many replies; equal seeds give equal ones."""
    rng = random.Random(seed)
    makers = (_label, _label, _numbers, _questions, _answer, _object, _soup, _soup, _mutated)
    for _ in range(count):
        yield rng.choice(makers)(rng)


def wrapped(rng: random.Random, form: str, name: str, text: str) -> str:
    """A value as a format sends it."""
    if form == "chat":
        opening = rng.choice(["", "", "", "Sure!\n", "<think>let me see</think>\n"])
        return f"{opening}[[ ## {name} ## ]]\n{text}" + rng.choice(["\n\n[[ ## completed ## ]]", ""])
    if form == "json":
        bare = json.dumps({name: text}, ensure_ascii=rng.random() < 0.5)
        return rng.choice([bare, f"```json\n{bare}\n```", f"Here it is:\n{bare}"])
    return f" {text}" + {"compact": "", "pocket": "<|end|>\n"}[form]


# {L} stands for a label, {O} for another one of the same judge.
_CLEAR = (
    "{L}", "{L}.", "**{L}**", "*{L}*", "`{L}`", "'{L}'", '"{L}"', "({L})", "[{L}]", "{L}!", "_{L}_", " {L} ", "- {L}",
    "{N}: {L}", "**{N}:** {L}", "The answer is {L}.", "{L}\n", "```\n{L}\n```", "{L}: it says so", "{L} - as it says",
    "{L} (it says so)", "{L}\nThe text says so.", "<think>{O}</think>{L}", "\ufeff{L}", "\u201c{L}\u201d",
)  # fmt: skip
_UNCLEAR = (
    "not {L}", "Not {L}.", "I do not {L}", "never {L}", "non-{L}", "hardly {L}", "!{L}", "~~{L}~~", "\u00ac{L}", "{L}?",
    "{L} nothing", "{L} nothing...", "{L}: no", "{L}: false", "{L}: 0%", "{L} = 0", "{L}? No.", "{L}, not", "{L}... not",
    "{L} - wait, {O}", "{L}\nNo, {O}.", "{L} or {O}", "{L} or {O}?", "{L}/{O}", "{L} | {O}", "{L} {O}", "{L}, {O}",
    "{L}; {O}", "either {L} or {O}", "{O}? no", "I'm not sure whether it is {L}", "It depends.", "N/A", "null", "None", "",
    " ", "{N}", "{{{N}}}", "<{N}>", "{N}:", "<think>{L}", "<think>so {L}</think>", "the opposite of {L}", "un-{L}",
    "definitely not {L}", "If {L}, then {O}", "{L}ish", "{L}ledge", "x{L}", "{L}_{O}", "{L}|{O}", "{L}\\{O}",
    "{L} but {O}", "{L}, although that is doubtful", "anything but {L}", "[ ] {L}", "() {L}", "{L} [ ]", "k n o w",
    "{L}\u0336", "{L} (just kidding)? ", "Is it {L}?", "{L}: n/a", "{L} is wrong", "{L} is false", "{L} isn't right",
    "{L}: unlikely", "{L}. Actually {O}.", "{L}, I mean {O}", "I would not say {L}", "do not answer {L}",
    "Labels: {L}, {O}", "one of: {L}; {O}", "must be one of: {L}; {O}", "{L} = false", "{L}: nein", "{L}\uff1f",
    "\u4e0d{L}", "{L}\uff1a\u4e0d", "<html><body>502 Bad Gateway</body></html>", "I cannot answer that.", "As an AI, I decline.",
)  # fmt: skip


def _label(rng: random.Random) -> Reply:
    signature, form = rng.choice(JUDGES), rng.choice(list(FORMATS))
    ((name, field),) = signature.output_fields.items()
    said, other = rng.sample(list(field.annotation.__args__), 2)
    clear = rng.random() < 0.4
    text = rng.choice(_CLEAR if clear else _UNCLEAR).format(L=_case(rng, said), O=_case(rng, other), N=name)
    whole = wrapped(rng, form, name, text)
    finish = "length" if clear and rng.random() < 0.1 else "stop"
    return Reply(whole, signature, form, (said,) if clear and finish == "stop" else (), finish)


def _case(rng: random.Random, word: str) -> str:
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in word)
    return rng.choice([word, word, word, word.upper(), word.capitalize(), wide])


_LISTED = (
    ("[{a}, {b}]", "ab"), ("{a}, {b}", "ab"), ("{a} and {b}", "ab"), ("passages {a} and {b}", "ab"), ("[{a}], [{b}]", "ab"),
    ("{a}\n{b}", "ab"), ("- {a}\n- {b}", "ab"), ("[{a}]", "a"), ("{a}", "a"), ("{a}.", "a"), ("Passage {a}", "a"),
    ("**[{a}]**", "a"), ('["{a}", "{b}"]', "ab"), ("```json\n[{a}, {b}]\n```", "ab"), ("[{a}]-[{b}]", "range"),
    ("{a} to {b}", "range"), ("{a}-{b}", "range"), ("none", ""), ("None.", ""), ("[]", ""), ("(none)", ""),
    ("None of the passages [{a}] to [{b}] are relevant", ""), ("None of the passages [{a}] to [{b}]", ""),
    ("No passage is relevant.", ""), ("no relevant passages", ""),
)  # fmt: skip
_UNLISTED = (
    "[{a}", "[{a}, ", "{a},", "{a} and", "No passage (see [{a}])", "None except [{a}]", "none but {a}", "not [{a}]",
    "no. {a}", "All but {a}", "all except [{a}]", "I found {a} of {b}", "{a} out of {b}", "in 19{a}4", "{a}.{b}", "-{a}",
    "{a}. {b}", "{a}) {b}", "{b}-{a}-", "{a}?", "[{a}] or [{b}]", "maybe {a}", "[null]", "[true]", "[{a}.5]", "[[{a}]]?",
    "1 (of {b} passages, none)", "", "?", "...", "passages", "The capital of France", "none of them is irrelevant",
    "No passage is irrelevant", "nothing but [{a}]", "[{a}] is not relevant", "{a} isn't", "[{a}] irrelevant", "{a}%",
    "step {a}: look at passage {b}", "\u00ac{a}", "~~{a}~~", "[{a}, {b}", "{a}, {b}]", "({a}", "ten", "#", "{{{a}}}", "<{a}>",
)  # fmt: skip


def _numbers(rng: random.Random) -> Reply:
    form = rng.choice(list(FORMATS))
    a, b = sorted(rng.sample(range(1, 6), 2))
    finish = "stop"
    if rng.random() < 0.5:
        text, says = rng.choice(_LISTED)
        expected = {"ab": [a, b], "a": [a], "range": list(range(a, b + 1)), "": []}[says]
        finish = "length" if rng.random() < 0.1 else "stop"
        allowed: tuple[Any, ...] = (expected,) if finish == "stop" else ()
    else:
        text, allowed = rng.choice(_UNLISTED), ()
    whole = wrapped(rng, form, "relevant_ids", text.format(a=a, b=b))
    return Reply(whole, ListwiseRelevance, form, allowed, finish)


_ASKED = ("Who wrote Emma?", "Where was #1 born?", "When did it open?")
_REFUSED = (
    "I cannot decompose this", '["Who wrote Emma?", "When was the auth', "[", '["', '[null]', "[1, 2]", '{"a": 1}',
    "This question is simple", "mumble", "Sure! Let me think about that.", "- ", "1.", "",
    "I think the question is hard.\nIt has many parts.", "1. Who wrote Emma?\nI hope this helps!",
)  # fmt: skip


def _questions(rng: random.Random) -> Reply:
    form = rng.choice(list(FORMATS))
    asked = rng.sample(_ASKED, rng.randint(2, 3))
    marks = [
        "\n".join(f"{number}. {one}" for number, one in enumerate(asked, 1)),
        " ".join(f"{number}. {one}" for number, one in enumerate(asked, 1)),
        "\n".join(f"- {one}" for one in asked),
        "Here are the sub-questions:\n" + "\n".join(f"{n}) **{one}**" for n, one in enumerate(asked, 1)),
        "\n".join(asked),
        " ; ".join(asked),
        json.dumps(asked),
        str(asked),
    ]
    clear = rng.random() < 0.6
    finish = "length" if clear and rng.random() < 0.2 else "stop"
    whole = wrapped(rng, form, "sub_questions", rng.choice(marks) if clear else rng.choice(_REFUSED))
    return Reply(whole, Decomposition, form, (asked,) if clear and finish == "stop" else (), finish)


def _answer(rng: random.Random) -> Reply:
    form = rng.choice(list(FORMATS))
    clear = rng.random() < 0.4
    finish = rng.choice(["stop", "length", "content_filter"]) if clear else "stop"
    text = "Paris" if clear else rng.choice(["", " ", "null", "{answer}", "\n\t"])
    whole = wrapped(rng, form, "answer", text)
    return Reply(whole, DirectAnswer, form, ("Paris",) if clear and finish == "stop" else (), finish)


def _object(rng: random.Random) -> Reply:
    """JSON that holds no one value, in a format of chat."""
    said, other = rng.sample(["know", "unknown"], 2)
    texts = [
        '{"verdict": null}', f'{{"verdict": ["{said}", "{other}"]}}', '{"verdict": true}', '{"verdict": 1}', "{}",
        f'{{"verdict": {{"{said}": false}}}}', f'{{"verdict": "{said}", "verdict": "{other}"}}',
        f'{{"verdict": "{said}"}}\n{{"verdict": "{other}"}}', f'{{"verdit": "{said}"}}', f'{{"verdict": "{said}',
        f'{{"verdict": "not {said}"}}', f'[{{"verdict": "{said}"}}, {{"verdict": "{other}"}}]',
        f'Not {{"verdict": "{said}"}}', f'{{"verdict": "{said}"}} is wrong', f'{{"reason": "{said}", "verdict": null}}',
        f"[[ ## verdict ## ]]\n{said}\n[[ ## verdict ## ]]\n{other}", f"[[ ## verdit ## ]]\n{said}",
        f"[[ ## verdict ## ]]\n{said}\n[[ ## completed ## ]]\nNo: {other}.", "[[ ## verdict ## ]]", "[[ ## verdict ##",
        "[[ ## verdict ## ]]\n[[ ## completed ## ]]", f"[[ ## completed ## ]]\n{said} {other}",
    ]  # fmt: skip
    return Reply(rng.choice(texts), SelfKnowledge, rng.choice(["chat", "json"]), ())


_WORDS = (
    "know", "unknown", "Know", "not", "no", "maybe", "or", "but", "never", "verdict", ":", ".", ",", "?", "!", "**", "(", ")",
    "[", "]", "{", "}", '"', "'", "\n", "-", "is", "the", "1", "2", "3", "none", "of", "passages", "and", "to", "see", "except",
    "relevant", "irrelevant", "`", "<think>", "</think>", "[[ ## verdict ## ]]", "[[ ## relevant_ids ## ]]", "nothing", "all",
    "[[ ## completed ## ]]", "```", ";", "/", "\\", "\u200b", "\u0661", "\uff13", "\u202e", "~", "#", "%", "=", "null", "false",
)  # fmt: skip


def _soup(rng: random.Random) -> Reply:
    words = rng.choices(_WORDS, k=rng.randint(1, 7))
    text = rng.choice([" ", " ", ""]).join(words)
    signature = rng.choice([SelfKnowledge, PassageRelevance, ListwiseRelevance])
    (name,) = signature.output_fields
    form = rng.choice(list(FORMATS))
    return Reply(wrapped(rng, form, name, text), signature, form, None)


def _mutated(rng: random.Random) -> Reply:
    reply = rng.choice((_label, _numbers))(rng)
    while "<think>" in reply.text:
        reply = _label(rng)
    letters = list(reply.text)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(letters) + 1)
        change = rng.random()
        if change < 0.4:
            letters.insert(
                place, rng.choice(["?", "!", "[", "]", " ", "\n", "x", "0", "-", "not ", "\x1b", "\u0301", '"', "{"])
            )
        elif letters and change < 0.8:
            del letters[min(place, len(letters) - 1)]
        elif letters:
            letters = letters[:place]
    return replace(reply, text="".join(letters), allowed=None, finish="stop")


_DENIALS = {"not", "no", "never", "maybe", "or", "but", "nothing", "none", "false", "null", "except", "wrong"}
_EXCEPTIONS = {"except", "but", "not", "see", "or", "maybe", "false", "null", "all"}


def _plausible(reply: Reply, value: Any) -> bool:
    """Whether a person could have read that, by rules that hold of every format."""
    text = reply.text
    if reply.form == "json":
        text = re.sub(r"\\u([0-9a-f]{4})", lambda escape: chr(int(escape[1], 16)), text)
    if reply.form == "pocket":
        text = text.partition("<|end|>")[0]
    text = unicodedata.normalize("NFKC", text).replace("\u200b", "").replace("\ufeff", "")
    text = re.sub(r"<\|[^|]*\|>", " ", text.rpartition("</think>")[2])
    text = re.sub(r"\[\[ ## \w+ ## \]\]|verdict|relevant_ids", " ", text).casefold()
    if reply.form == "compact":
        text = text.lstrip().partition("\n\n")[0]
    if reply.form == "json":
        text = text.replace("\\n", " ")
    words = re.findall(r"[^\W\d_]+", text)
    if isinstance(value, str):
        (field,) = reply.signature.output_fields.values()
        others = set(field.annotation.__args__) - {value}
        return value in words and others.isdisjoint(words) and (_DENIALS - {value}).isdisjoint(words)
    held: Sequence[int] = [int(number) for number in re.findall(r"\d+", text)]
    if not _EXCEPTIONS.isdisjoint(words) or ("irrelevant" in words and value != []):
        return False
    if not value:
        return bool({"none", "no", "nothing"} & set(words)) or re.search(r"\[\s*\]", text) is not None
    if {"none", "no", "nothing"} & set(words):
        return False
    return min(held) <= min(value) and max(value) <= max(held) and {min(value), max(value)} <= set(held)
