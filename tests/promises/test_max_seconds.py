"""What a user who gives --max-seconds or --timeout is promised: no endpoint, however it behaves, takes more."""

import asyncio
import threading
import time
from typing import Any

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.lm.failures import explain
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.retrieval.passage import Passage
from raisf.utils.errors import LMError
from tests.scripted import ScriptedLM
from tests.shelf import Shelf

SLOW = ["silent", "trickle", "429 long", "503 long", "429", "reset", "html"]


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_question_ends_within_a_second_of_max_seconds(faulty: Any, kind: str, mode: str) -> None:
    with faulty.serve(1.0, kinds=[kind]) as endpoint:
        program = Direct(max_seconds=0.5)
        program.set_lm(connect("openai/x", api_base=endpoint.url, num_retries=50))
        began = time.monotonic()
        try:
            said = program(question="Who?") if mode == "sync" else asyncio.run(program.acall(question="Who?"))
            assert said.trace.root.route == "budget" and "max_seconds=0.5" in said.trace.root.reason
        except LMError as error:  # one that answers, and wrongly, is named
            assert kind not in ("silent", "trickle") and endpoint.url in str(error)
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("kind", ["silent", "trickle"])
def test_a_call_without_max_seconds_ends_with_the_timeout(faulty: Any, kind: str) -> None:
    with faulty.serve(1.0, kinds=[kind]) as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, num_retries=0, timeout=0.4)
        began = time.monotonic()
        with pytest.raises(Exception) as caught:
            lm("hello")
    assert time.monotonic() - began < 1.4
    assert "did not answer in 0.4 s" in str(explain(caught.value, lm))


@pytest.mark.parametrize("kind", ["429 long", "503 long"])
def test_an_hours_patience_is_not_had(faulty: Any, kind: str) -> None:
    with faulty.serve(1.0, kinds=[kind]) as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, num_retries=1, timeout=2)
        began = time.monotonic()
        with pytest.raises(dspy.LMError):
            lm("hello")
        assert len(endpoint.seen) == 2  # it was tried again all the same
    assert time.monotonic() - began < 3


@pytest.mark.slow
def test_what_was_given_up_is_closed(faulty: Any) -> None:
    """Else a server that trickles would hold threads and connections for ever."""
    with faulty.serve(1.0, kinds=["trickle"]) as endpoint:
        endpoint.pause = 0.05
        program = Direct(max_seconds=0.3)
        program.set_lm(connect("openai/x", api_base=endpoint.url))

        def threads_after(first: int) -> int:
            for number in range(first, first + 5):
                program(question=f"Who {number}?")
            time.sleep(0.5)
            return threading.active_count()

        before = threads_after(0)  # some wait for the next question
        assert threads_after(5) <= before


def test_an_lm_of_another_make_is_waited_for_no_longer_either() -> None:
    program = Direct(max_seconds=0.3)
    program.set_lm(ScriptedLM(lambda fields: {"answer": "late"}, sleep=3))
    began = time.monotonic()
    assert program(question="Who?").trace.root.route == "budget"
    assert time.monotonic() - began < 1.3


def found_late(query: str) -> list[Passage]:
    time.sleep(3)
    return []


def test_a_silent_index_is_waited_for_no_longer_either() -> None:
    program = RAG(Shelf(found_late), max_seconds=0.3)
    program.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    began = time.monotonic()
    assert program(question="Who?").trace.root.route == "budget"
    assert time.monotonic() - began < 1.3


def test_without_max_seconds_an_endpoint_that_never_answers_is_an_error(faulty: Any) -> None:
    with faulty.serve(1.0, kinds=["silent"]) as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url, num_retries=0, timeout=0.3))
        with pytest.raises(LMError, match=r"did not answer in 0\.3 s"):
            program(question="Who?")
