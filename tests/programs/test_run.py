"""If these failed, questions would wait for ever, begin what they have no time for, or be lost to one failed call."""

from typing import Any

import dspy
import pytest

from raisf.programs.calls import Run
from raisf.programs.concurrency import BudgetSpent
from raisf.signatures.answers import DirectAnswer
from tests.scripted import ScriptedLM


@pytest.mark.usefixtures("one_at_a_time")
def test_a_question_without_a_call_left_takes_no_place_from_others():
    ask = dspy.Predict(DirectAnswer)
    with dspy.context(lm=ScriptedLM(lambda fields: {"answer": "Ada"})):
        with pytest.raises(BudgetSpent, match="max_calls=0"):
            Run(max_calls=0).ask(ask, question="Who?")
        found = Run(max_seconds=20).ask(ask, question="Who?")
    assert found is not None and found.answer == "Ada"


def test_no_search_begins_when_the_time_is_over():
    searched: list[str] = []
    run = Run(lambda query, k: searched.append(query) or [], max_seconds=0)
    with pytest.raises(BudgetSpent, match="max_seconds=0"):
        run.search("Who?", 3)
    assert not searched


def test_a_retriever_that_runs_out_of_its_own_time_is_told_as_that():
    def slow(query: str, k: int) -> Any:
        raise TimeoutError("the disk is slow")

    for seconds in (None, 60):
        run = Run(slow, max_seconds=seconds)
        with pytest.raises(TimeoutError, match="the disk is slow"):
            run.found(run.search("Who?", 3))


@pytest.mark.parametrize("first", ["mumble", {"answer": "Ada"}], ids=["unreadable", "readable"])
def test_a_call_that_fails_after_any_reply_costs_that_call_alone(first: Any):
    def reply(fields: dict[str, Any]) -> Any:
        if fields["question"] == "Where?":
            raise dspy.LMServerError("down", status=500)
        return first

    run, ask = Run(), dspy.Predict(DirectAnswer)
    with dspy.context(lm=ScriptedLM(reply)):
        run.ask(ask, question="Who?")
        assert run.ask(ask, question="Where?") is None
    assert run.failed == 1 and run.error is None
