"""Which sentence an answer was read from: the one that the reader quoted, else one that is found afterwards."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from raisf.programs.questions import UNKNOWN, YES_NO, bare, holds, is_yes_no, normal, sentences, spellings
from raisf.programs.trace import JudgedPassage, Node
from raisf.retrieval.passage import cited_as
from raisf.utils.text import clean
from raisf.utils.wording import apart

NONE = ("", "none", UNKNOWN)
"""What a reader that quotes nothing writes for the sentence; in the normal form of texts."""
_PRONOUNS = {"he", "she", "it", "they", "him", "her", "them", "his", "hers", "its", "their", "who", "which"}
_NEGATIONS = {"not", "no", "never", "none", "nor", "neither", "cannot", "without"}
_NAME, _LONGEST = 5, 60
"""Words of a name, and of a sentence, at most."""
_NUMBER = re.compile(
    r"^(?:passage\s*)?[\[(]?\d{1,2}(?:[\])][:.]?|[:.])\s+|\s*[\[(](?:passage\s*)?\d{1,2}[\])]$", re.IGNORECASE
)
"""A passage's number, as prompts show it, before or behind what is quoted."""
_POSSESSIVE = re.compile("['\u2019]s$")
_EMPHASIS = re.compile(r"(?<![\w*`])[*_`]++(?=\w)|(?<=[^\W_])[*_`]++(?!\w)")
_SHORT = 3
"""Letters of words that stand everywhere, such as "of" and "the"."""


def cite(node: Node, quoted: object, read: Iterable[str]) -> None:
    """Fills in where a node's answer stands: `evidence`, `found_afterwards`, `cited` and `grounded`.

    Args:
        node: Concluded, with its passages.
        quoted: The sentence that the reader quoted; None, "" or "none" where it quoted none. Then, and where what it
            quoted stands in no passage, it is the sentence of the passages read that holds the answer, itself or in its
            title, and shares most words with the question; for yes or no, which none holds, one that has half of these.
        read: The passages that the reader saw, as they stood in its prompt. One that holds the answer in its title
            alone, and of which no sentence is about the question, is cited without a sentence.
    """
    shown = set(read)
    passages = [passage for passage in node.passages if passage.prompt_text in shown]
    quotation, answer = bare(clean(quoted)), bare(node.answer)
    taken = None if normal(quotation) in NONE else _source(quotation, passages, answer)
    node.evidence, source = taken or (None, None)
    if node.answer == UNKNOWN:
        return
    holding = [passage for passage in passages if holds(passage.prompt_text, spellings(answer))]
    closed = normal(answer) in YES_NO and not holding
    if not closed and not is_yes_no(node.question):
        node.grounded = bool(holding)
    if source is None:
        sentence, source = holding_sentence(node.question, answer, passages if closed else holding, titles=True)
        if closed and source and not _about(f"{source.title} {sentence}", node.question):
            sentence = source = None
        node.evidence = sentence if sentence and _says(sentence, node.question, answer) else None
        node.found_afterwards = node.evidence is not None
    if source is not None:
        node.cited = cited_as(source)


def holding_sentence(
    question: str, answer: str, passages: Sequence[JudgedPassage], titles: bool = False
) -> tuple[str | None, JudgedPassage | None]:
    """Of passages that hold an answer, the sentence that does and shares most words with the question, and whose it is.

    Where only a title holds it, the sentence below that title which shares most. With `titles` that is also so where a
    sentence names the answer, too: what says "it" below its name may tell more of what was asked.
    """
    asked, forms = _words(question), spellings(answer)
    best: tuple[tuple[bool, int, bool], str, JudgedPassage] | None = None
    for passage in passages:
        named = titles and holds(passage.title, forms)
        for sentence in sentences(passage.text):
            shared = len(asked & _words(f"{passage.title} {sentence}"))
            held = holds(sentence, forms)
            rank = (held or named, shared, held)
            if best is None or rank > best[0]:
                best = (rank, sentence, passage)
    return (best[1], best[2]) if best else (None, None)


def _words(text: str) -> set[str]:
    """Its words; of scripts that put no spaces between them, its characters."""
    return set(normal(apart(text)).split())


def _source(quotation: str, passages: Sequence[JudgedPassage], answer: str) -> tuple[str, JudgedPassage] | None:
    """A quotation and the passage that it is taken from; None where it is of the reader's making.

    Its words stand there in a row, in this order. Where it has a name for the passage's "she", or leaves out its
    sentence's "not", it is that whole sentence. A passage's number and title are no part of it; the answer alone is
    none.
    """
    undressed = [(_undressed(quotation, passage.title), passage) for passage in passages]
    as_it_is = [(quotation, passage) for told, passage in undressed if told != quotation]
    for told, passage in undressed + as_it_is:
        own = _telling(normal(told).split()) - set(normal(answer).split())
        if own and (found := _taken(told, passage)):
            return found, passage
    return None


def _undressed(quotation: str, title: str) -> str:
    """A quotation without a passage's number and title."""
    told = _NUMBER.sub("", quotation)
    for sign in (" | ", ": ") if title else ():
        told = told.removeprefix(f"{title}{sign}")
    return told


def _taken(quotation: str, passage: JudgedPassage) -> str | None:
    """The words of a passage that a quotation is."""
    quoted = _EMPHASIS.sub("", quotation)
    for said, before in _places(passage, len(sentences(quotation))):
        if holds(_EMPHASIS.sub("", said), [quoted]):
            same = _denials(said) == _denials(quotation) or len(said.split()) > _LONGEST  # which is no sentence
            return quotation if same else said
        if _with_a_name(quoted, said, before):
            return said
    return None


def _places(passage: JudgedPassage, length: int) -> Iterator[tuple[str, list[str]]]:
    """So many sentences in a row, or one more where the quotation leaves a stop out; and the sentences before."""
    parts = [*filter(None, [passage.title]), *sentences(passage.text)]
    for size in (length, length + 1):
        for start in range(max(1, len(parts) - size + 1)):
            yield " ".join(parts[start : start + size]), parts[:start]


def _with_a_name(quotation: str, said: str, before: Sequence[str]) -> bool:
    """Whether a quotation is a place's words with a name, which stands before, for one of its pronouns."""
    quoted, words = normal(quotation).split(), normal(said).split()
    pronouns = [(place, word) for place, word in enumerate(words) if word in _PRONOUNS]
    others = len(set(quoted) - set(words))
    if not pronouns or others > _NAME or len(quoted) > _LONGEST or _denials(said) != _denials(quotation):
        return False
    spans = itertools.combinations(range(len(quoted) + 1), 2)
    names = [(start, end) for start, end in spans if end - start <= min(_NAME, len(quoted) - 2)]
    for (place, word), (start, end) in itertools.product(pronouns, names):
        there = words[max(0, place - start) : place + 1 + len(quoted) - end]
        if there == [*quoted[:start], word, *quoted[end:]]:
            name = _POSSESSIVE.sub("", " ".join(quoted[start:end]))
            if holds(" ".join([*before, *words[:place]]), [name]):
                return True
    return False


def _denials(text: str) -> int:
    return sum(word in _NEGATIONS or word.endswith(("n't", "n\u2019t")) for word in normal(text).split())


def _says(sentence: str, question: str, answer: str) -> bool:
    """Whether a sentence holds an answer, or at least a word of its question that tells something."""
    words = _telling(normal(question).split())
    return holds(sentence, spellings(answer)) or not words.isdisjoint(normal(sentence).split())


def _about(text: str, question: str) -> bool:
    """Whether a text has half of what a question tells."""
    words = _telling(normal(question).split())
    return 2 * len(words & set(normal(text).split())) >= len(words) > 0


def _telling(words: Iterable[str]) -> set[str]:
    """Of words those that do not stand everywhere."""
    return {word for word in words if len(word) > _SHORT or any(map(str.isdigit, word))}
