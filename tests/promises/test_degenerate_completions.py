"""Whatever a broken model or server sends, it is unreadable, at once and without a traceback."""

import gc
import time
from collections.abc import Iterator
from typing import Any

import dspy
import pytest

from raisf.programs.ra_isf import RAISF
from raisf.programs.registry import build
from raisf.retrieval.passage import Passage
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import Decomposition, ListwiseRelevance, SelfKnowledge
from tests.shelf import Shelf

SECONDS = 0.5  # that one reply may compute, whatever else the machine does; all of them take some hundredths
DEGENERATE = {
    "braces": "{" * 200,
    "brackets": "[" * 3_000,
    "more brackets": "[" * 60_000,
    "dashes": "-" * 50_000,
    "braces and letters": "{a" * 3_000,
    "parentheses": "(" * 50_000,
    "nested objects": '{"a":' * 9_000,
    "nested lists": "[[1," * 9_000,
    "quotation marks": '"' * 60_000,
    "backslashes": "\\" * 60_000,
    "blanks": " " * 60_000 + "x",
    "line breaks": "\n" * 60_000 + "x",
    "digits": "1" * 60_000,
    "ranges": "1-" * 30_000,
    "fences": "```" * 20_000,
    "end marks": "</s>" * 15_000,
    "thoughts": "<think>" * 8_000,
    "ends of thoughts": "</think>" * 8_000,
    "headers": "[[ ## " * 10_000,
    "open strings": "['" * 20_000,
    "ligatures": "\ufdfa" * 60_000,
    "ten megabytes": "know relevant " * 750_000,
    "ten megabytes of braces": "{" * 10_000_000,
    "not a number": "NaN",
    "infinity": '{"verdict": 1e999, "relevant_ids": [1e999], "sub_questions": [NaN]}',
    "half a surrogate": "\ud800",
    "null bytes": "\0" * 1_000,
}


@pytest.fixture(autouse=True)
def collects_its_own_garbage() -> Iterator[None]:
    """What a thousand tests before have left is not gone through in the time of a reply of nested lists."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("text", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("form", ["chat", "json", "compact", "pocket"])
def test_no_judge_and_no_list_is_read_from_it_and_it_takes_no_time(hostile: Any, form: str, text: str) -> None:
    for signature in (SelfKnowledge, ListwiseRelevance, Decomposition):
        (name,) = signature.output_fields
        for sent in (text, hostile.wrapped(hostile.random.Random(1), form, name, text)):
            started = time.thread_time()
            assert hostile.read(hostile.Reply(sent, signature, form, None)) is None
            assert time.thread_time() - started < SECONDS


@pytest.mark.parametrize("form", ["chat", "json", "compact", "pocket"])
def test_an_answer_of_ten_megabytes_is_none(hostile: Any, form: str) -> None:
    started = time.thread_time()
    assert hostile.read(hostile.Reply("x" * 10_000_000, DirectAnswer, form, None)) is None
    assert time.thread_time() - started < SECONDS


@pytest.mark.parametrize("text", DEGENERATE.values(), ids=DEGENERATE)
def test_a_program_that_gets_nothing_else_ends_with_unknown(hostile: Any, text: str) -> None:
    shelf = Shelf(lambda query: [Passage("p", "text", "T")])
    lm = hostile.Saying(hostile.Reply(text if text != "\ud800" else "?", SelfKnowledge, "chat", None))
    with dspy.context(lm=lm, disable_history=True):
        for program in (RAISF(shelf), RAISF(shelf, relevance="listwise"), build("least-to-most")):
            trace = program(question="Who?").trace
            assert not trace.root.sub_questions
            assert all(p.judgement.verdict is None for p in trace.root.passages)
            assert trace.root.answer == "unknown" and trace.unreadable > 0 and trace.read == 0


def test_an_unreadable_reply_is_not_carried_around_whole(hostile: Any) -> None:
    with pytest.raises(dspy.utils.exceptions.AdapterParseError) as refused:
        hostile.FORMATS["chat"].parse(SelfKnowledge, "know " * 2_000_000)
    assert len(str(refused.value)) < 5_000 and "10,000,000 characters" in str(refused.value)
