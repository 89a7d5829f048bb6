"""Replies are read as they were written, whole and while they are streamed; what cannot be read is told."""

import asyncio
from typing import Any

import dspy
import pytest
from dspy.lm15 import Config, Message, Request

from raisf.lm.adapter import CompactAdapter
from raisf.lm.chat_format import ChatCall
from raisf.lm.labels import Unreadable, label
from raisf.lm.local.clients import _Deltas
from raisf.lm.reading import read

ASKED = dspy.Signature("question -> answer")
BOTH = dspy.Signature("question -> evidence, answer")


@pytest.mark.parametrize(
    ("said", "questions"),
    [
        ("What is 2 + 2?", ["What is 2 + 2?"]),
        ("Who directed Mission: Impossible - Fallout?", ["Who directed Mission: Impossible - Fallout?"]),
        ("- Who ran in 2008. And who won?\n- Who lost?", ["Who ran in 2008. And who won?", "Who lost?"]),
        ("Where was it on 11 September 2001: in Rome?", ["Where was it on 11 September 2001: in Rome?"]),
        ("Who sang 'Hello; goodbye'? ; Who wrote #1?", ["Who sang 'Hello; goodbye'?", "Who wrote #1?"]),
        ("Who sang 'Hello; goodbye'?", ["Who sang 'Hello; goodbye'?"]),
        ("Who created Steins;Gate?", ["Who created Steins;Gate?"]),
        ("Who created Steins;Gate? ; Where was #1 born?", ["Who created Steins;Gate?", "Where was #1 born?"]),
        ("Who wrote X?;Where was #1 born?", ["Who wrote X?", "Where was #1 born?"]),
        ("Find the author of X ; Where was #1 born?", ["Find the author of X", "Where was #1 born?"]),
        ("When was A; when was B; which was first?", ["When was A", "when was B", "which was first?"]),
        ('["1. Who wrote X?", "2. Where was #1 born?"]', ["Who wrote X?", "Where was #1 born?"]),
        ("['- Who wrote X?', '- Where was #1 born?']", ["Who wrote X?", "Where was #1 born?"]),
        ('["1. FC Köln won when?", "Who coached it?"]', ["1. FC Köln won when?", "Who coached it?"]),
        ('["1. FC Köln won when?"]', ["1. FC Köln won when?"]),
        ('["2. What is X?", "3. What is Y?"]', ["2. What is X?", "3. What is Y?"]),
    ],
)
def test_of_an_item_of_a_list_nothing_is_lost(said: str, questions: list[str]) -> None:
    """What looked like a mark in the midst of it was taken out, and the question that was left asked and searched."""
    assert read(said, list[str]) == questions


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (" E\n**Answer:** Paris", {"evidence": "E", "answer": "Paris"}),
        (" E\nanswer: Paris\nanswer: Paris", {"evidence": "E", "answer": "Paris"}),
        ("\nevidence: E\nanswer: **Paris**", {"evidence": "E", "answer": "**Paris**"}),
        (" E\n**answer**:**Paris**", {"evidence": "E", "answer": "**Paris**"}),
        ("Sure!\nevidence: E\nanswer:\nanswer: Paris", {"evidence": "E", "answer": "Paris"}),
    ],
)
def test_an_output_is_read_as_it_is_named(said: str, fields: dict[str, str]) -> None:
    assert CompactAdapter().parse(BOTH, said) == fields


@pytest.mark.parametrize(
    "said",
    [
        "relevant。",
        "「relevant」",
        "『relevant』。",
        "relevant。因为文中有它。",
        "relevant\uff0c因为文中有它",
        "relevant\uff1a有",
    ],
)
def test_a_verdict_is_read_among_chinese_and_japanese_marks(said: str) -> None:
    assert label(said, ("relevant", "irrelevant")) == "relevant"


@pytest.mark.parametrize(
    "said", ["「relevant", "relevant。文中没有提到。", "relevant。irrelevant。", "relevant\uff0c不是"]
)
def test_what_these_marks_take_back_is_no_verdict(said: str) -> None:
    with pytest.raises(Unreadable):
        label(said, ("relevant", "irrelevant"))


def test_an_output_with_two_values_has_none() -> None:
    with pytest.raises(Exception, match="there twice, with different values"):
        CompactAdapter().parse(BOTH, " E\nanswer: Paris\nanswer: Rome")
    with pytest.raises(Unreadable):
        CompactAdapter().sections(BOTH, " E\nanswer: Paris\nanswer: Rome")


class Delta:
    def __init__(self, content: str | None) -> None:
        self.content = content


class Choice:
    def __init__(self, content: str | None, finish_reason: str | None) -> None:
        self.delta, self.finish_reason = Delta(content), finish_reason


class Chunk:
    def __init__(self, content: str | None, finish_reason: str | None = None) -> None:
        self.choices = [Choice(content, finish_reason)]


@pytest.mark.parametrize(
    ("signature", "said", "shown"),
    [
        (ASKED, "<think>I wonder.</think> Paris", "[[ ## answer ## ]]\nParis"),
        (ASKED, "Paris<|im_end|>", "[[ ## answer ## ]]\nParis"),
        (ASKED, "x < y", "[[ ## answer ## ]]\nx < y"),
        (BOTH, "E\n**answer:** Paris", "[[ ## evidence ## ]]\nE\n\n[[ ## answer ## ]]\nParis"),
        (BOTH, "```\nE\n```\nanswer: Paris", "[[ ## evidence ## ]]\nE\n\n[[ ## answer ## ]]\nParis"),
        (BOTH, "<think>No.</think> E\nanswer: Paris", "[[ ## evidence ## ]]\nE\n\n[[ ## answer ## ]]\nParis"),
    ],
)
def test_a_stream_shows_what_is_read_in_the_end(signature: Any, said: str, shown: str) -> None:
    """It showed the thinking, and never the answer."""
    sent: list[str] = []

    class Stream:
        async def send(self, chunk: Any) -> None:
            sent.append(chunk.choices[0].delta.content or "")

    async def stream() -> None:
        with dspy.context(send_stream=Stream()), CompactAdapter()._streaming(ChatCall(signature, [], {})):
            through = dspy.settings.send_stream
            for letter in said:
                await through.send(Chunk(letter))
            await through.send(Chunk(None, "stop"))

    asyncio.run(stream())
    assert "".join(sent) == f"{shown}\n\n[[ ## completed ## ]]\n"


def test_what_is_no_text_is_refused_by_a_model_that_reads_text(llama: Any) -> None:
    """It was given an empty prompt, and made something up."""
    from raisf.lm.local.model import LocalLM

    lm = LocalLM(f"local/{llama}", cache=False)
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    with pytest.raises(Exception, match="reads text alone, and was given: ImagePart"):
        lm(messages=[{"role": "user", "content": [{"type": "text", "text": "Who?"}, picture]}])


def test_what_may_begin_a_stop_or_is_half_a_character_is_held_back() -> None:
    config = Config(stop=("<end>", "--->", "\n\n"))
    deltas: Any = _Deltas(Request(model="m", messages=(Message.user("?"),), config=config))
    grown = ("one--", "one--two\n", "one--two\n<e", "one--two\n<em> Z\ufffd", "one--two\n<em> Zü")
    sent = [[event.delta.text for event in deltas.of(text)] for text in grown]
    assert sent == [["one"], ["--two"], [], ["\n<em> Z"], ["ü"]]
