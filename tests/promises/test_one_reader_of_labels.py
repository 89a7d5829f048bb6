"""What an LM says is read alike in every format: strictly about what is not there, leniently about its dress."""

from typing import Any, Literal

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.adapter import adapter_named
from raisf.lm.chat import ChatAdapter, JSONAdapter
from raisf.lm.connect import adapter_for, connect
from raisf.programs.ra_isf import RAISF
from raisf.signatures.answers import DirectAnswer, GroundedAnswer
from raisf.signatures.judges import Decomposition, ListwiseRelevance, SelfKnowledge

FORMATS = ("chat", "json", "compact", "pocket")
RELEVANCE, DECOMPOSITION, KNOW, ANSWER = ListwiseRelevance, Decomposition, SelfKnowledge, DirectAnswer


@pytest.fixture
def read(hostile: Any) -> Any:
    """What a program reads from a value in a format; None where it is unreadable."""

    def read(signature: Any, text: str, form: str, finish: str = "stop") -> Any:
        (name,) = signature.output_fields
        sent = {
            "chat": f"[[ ## {name} ## ]]\n{text}\n\n[[ ## completed ## ]]",
            "json": hostile.json.dumps({name: text}),
            "compact": f" {text}",
            "pocket": f" {text}<|end|>\n",
        }
        return hostile.read(hostile.Reply(sent[form], signature, form, None, finish))

    return read


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    ["know", "Know", "KNOW", "know.", "Know.", "**know**", "`Know`", '"know"', "[know]", "Verdict: know",
     "**Verdict:** Know.", "know: it is common",
     "\uff2b\uff4e\uff4f\uff57", "```\nknow\n```", "<think>unknown?</think>know"],
)  # fmt: skip
def test_a_label_is_read_whatever_its_case_punctuation_and_emphasis(read: Any, form: str, text: str) -> None:
    assert read(KNOW, text, form) == "know"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    ["know nothing...", "know nothing about it", "not know", "I do not know", "know or unknown?", "know?",
     "know, no: unknown",
     "knowledge", "know: false", "know 0%", "know/unknown", "un-know", "~~know~~", "[ ] know", "null", "", "{verdict}",
     "must be one of: know; unknown", "know. Actually unknown.", "<think>know", "<think>know</think>"],
)  # fmt: skip
def test_a_label_that_is_denied_doubted_or_one_of_two_is_unreadable(read: Any, form: str, text: str) -> None:
    assert read(KNOW, text, form) is None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("text", "numbers"),
    [("None of the passages [1] to [5] are relevant", []), ("None of the passages [1] to [5]", []), ("none", []),
     ("There are no relevant passages.", []), ("[]", []), ("[1]-[3]", [1, 2, 3]), ("1, 3 and 5", [1, 3, 5]),
     ("[1, 3]", [1, 3]), ("Passages 1 and 3.", [1, 3]), ("- [1]\n- [3]", [1, 3]), ("2 to 4", [2, 3, 4]),
     ("\uff11, \u0663", [1, 3]), ("**[2]**", [2]), ('["1", "3"]', [1, 3])],
)  # fmt: skip
def test_a_list_of_passages_is_read_in_words_brackets_and_ranges(read: Any, form: str, text: str, numbers: Any) -> None:
    assert read(RELEVANCE, text, form) == numbers


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    ["No passage (see [2])", "[1", "[1, 2", "1, ", "not [2]", "none except [2]", "1 out of 5", "in 1994", "2?",
     "[null]", "[true]", "1.5", "-2", "[2] is not relevant", "[1] or [2]", "None of them is irrelevant", "the second",
     "", "1. 3", "1-1000000000", "3-1", "2-2", "[1, 02]", "[[[1]]]",
     "2 passages: 1, 3", "The 2 relevant passages are 1 and 3", "[1, 3] (2 passages)"],
)  # fmt: skip
def test_numbers_that_are_not_a_list_of_passages_are_unreadable(read: Any, form: str, text: str) -> None:
    assert read(RELEVANCE, text, form) is None


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    ["1. Who?\n2. Where?", "- Who?\n- Where?", '["Who?", "Where?"]', "['Who?', 'Where?']", "Who? ; Where?",
     "Who?\nWhere?",
     "Here are the sub-questions:\n1) **Who?**\n2) **Where?**", "1. Who? 2. Where?",
     '```json\n["Who?", "Where?"]\n```'],
)  # fmt: skip
def test_sub_questions_are_read_however_they_are_listed(read: Any, form: str, text: str) -> None:
    assert read(DECOMPOSITION, text, form) == ["Who?", "Where?"]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "text",
    ['["Who?", "When was the auth', "When was the auth", "I cannot decompose this", "[null]", "[1, 2]", "", "mumble"],
)
def test_what_is_no_list_of_questions_is_unreadable(read: Any, form: str, text: str) -> None:
    assert read(DECOMPOSITION, text, form) is None


@pytest.mark.parametrize("text", ["I cannot decompose this.", "Sorry, no.", "This question is already simple.", "N/A"])
def test_a_refusal_is_not_asked_as_a_sub_question(text: str, scripted_run: Any) -> None:
    trace = scripted_run(lambda fields: {"verdict": "unknown", "sub_questions": [text]})
    assert (trace.root.sub_questions, trace.root.readable) == ([], False)
    assert "could not be read" in trace.root.reason


def test_numbers_of_which_none_is_a_passages_are_no_verdicts(scripted_run: Any) -> None:
    trace = scripted_run(lambda fields: {"verdict": "unknown", "relevant_ids": [2024]}, relevance="listwise")
    assert [passage.judgement.readable for passage in trace.root.passages] == [False] * 3


@pytest.fixture
def scripted_run() -> Any:
    """Runs RA-ISF with a scripted LM over three passages and gives its trace."""
    from raisf.retrieval.passage import Passage
    from tests.scripted import ScriptedLM
    from tests.shelf import Shelf

    passages = [Passage(f"p{number}", f"text {number}", "T") for number in range(3)]

    def run(answer: Any, **options: Any) -> Any:
        with dspy.context(lm=ScriptedLM(answer)):
            return RAISF(Shelf(lambda query: passages), k=3, **options)(question="Who?").trace

    return run


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize(
    ("signature", "text"),
    [(KNOW, "know"), (RELEVANCE, "[1"), (RELEVANCE, "[1, 2]"), (DECOMPOSITION, '["When was the auth'),
     (DECOMPOSITION, "When was the auth"), (ANSWER, "The capital of")],
)  # fmt: skip
def test_what_was_cut_off_is_unreadable(read: Any, form: str, finish: str, signature: Any, text: str) -> None:
    assert read(signature, text, form, finish) is None


@pytest.mark.parametrize("form", ["chat", "json"])
@pytest.mark.parametrize(
    "text", ['{"answer": null}', '{"answer": ["a"]}', '{"answer": ""}', '{"answer": "Par', "null", "{}"]
)
def test_an_object_without_an_answer_has_none(hostile: Any, form: str, text: str) -> None:
    assert hostile.read(hostile.Reply(text, ANSWER, form, None)) is None


def test_chat_and_json_read_each_others_replies(hostile: Any) -> None:
    for form in ("chat", "json"):
        for text in (
            "[[ ## verdict ## ]]\n**Know**\n[[ ## completed ## ]]",
            '```json\n{"Verdict": "KNOW."}\n```',
            "Know.",
        ):
            assert hostile.read(hostile.Reply(text, KNOW, form, None)) == "know", (form, text)


def test_a_field_given_twice_differently_or_taken_back_is_unreadable(hostile: Any) -> None:
    for text in (
        "[[ ## verdict ## ]]\nknow\n[[ ## verdict ## ]]\nunknown",
        "[[ ## verdict ## ]]\nknow\n[[ ## completed ## ]]\nNo, unknown.",
        '{"verdict": "know", "verdict": "unknown"}',
        '{"verdict": "know"} {"verdict": "unknown"}',
    ):
        assert hostile.read(hostile.Reply(text, KNOW, "chat", None)) is None, text


def test_an_empty_quotation_does_not_cost_the_answer() -> None:
    text = "[[ ## evidence ## ]]\n\n[[ ## answer ## ]]\nParis"
    assert ChatAdapter().parse(GroundedAnswer, text) == {"evidence": "", "answer": "Paris"}


def test_it_is_what_endpoints_are_read_with_and_dspys_adapters_too() -> None:
    remote = connect("openai/gpt-4o-mini")
    assert type(adapter_for(remote)) is ChatAdapter and type(adapter_named("chat")) is ChatAdapter
    for given, ours in (
        (dspy.ChatAdapter(use_json_adapter_fallback=False), ChatAdapter),
        (dspy.JSONAdapter(), JSONAdapter),
    ):
        with dspy.context(adapter=given):
            found: Any = adapter_for(remote)
        assert type(found) is ours and found.use_json_adapter_fallback == given.use_json_adapter_fallback
        assert found.format(KNOW, [], {"question": "Who?"}) == given.format(KNOW, [], {"question": "Who?"})


def test_other_types_are_read_strictly_too() -> None:
    class Typed(dspy.Signature):
        question: str = dspy.InputField()
        count: int = dspy.OutputField()
        sure: bool = dspy.OutputField()
        level: Literal[1, 2] = dspy.OutputField()
        scores: dict[str, float] = dspy.OutputField()
        note: str | None = dspy.OutputField()

    reply = (
        '[[ ## count ## ]]\n7.\n[[ ## sure ## ]]\ntrue\n[[ ## level ## ]]\n2\n[[ ## scores ## ]]\n{"Ada": 0.5}\n'
        "[[ ## note ## ]]\nnull"
    )
    read = {"count": 7, "sure": True, "level": 2, "scores": {"Ada": 0.5}, "note": None}
    assert ChatAdapter().parse(Typed, reply) == read
    assert (
        ChatAdapter().parse(Typed, '{"count": 7, "sure": true, "level": 2, "scores": {"Ada": 0.5}, "note": null}')
        == read
    )
    with pytest.raises(AdapterParseError, match="count"):
        ChatAdapter().parse(Typed, reply.replace("7.", "about 7"))


def test_of_two_thousand_hostile_replies_none_is_misread_and_nearly_all_clear_ones_are_read(hostile: Any) -> None:
    clear = [reply for reply in hostile.replies(seed=7, count=2_000) if not _misread(hostile, reply) and reply.allowed]
    lost = [reply.text for reply in clear if hostile.read(reply) is None]
    assert len(clear) > 200 and len(lost) < 0.02 * len(clear), lost


def _misread(hostile: Any, reply: Any) -> bool:
    wrong = hostile.misread(reply)
    assert wrong is None, wrong
    return False
