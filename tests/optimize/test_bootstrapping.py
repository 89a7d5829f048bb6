"""If these failed, demonstrations could come of another metric or teacher than was given, or of runs that failed."""

from typing import Any

import pytest

from raisf.lm.scripted import ScriptedLM
from raisf.optimize.compile import compile
from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from tests.optimize.test_compile import Learner, sets


@pytest.fixture
def learner() -> Learner:
    made = Learner()
    made.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    return made


def _weighed(weight: float, stops: bool = False) -> Any:
    seen: list[int] = []

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        seen.append(1)
        if stops and len(seen) > 8:
            raise KeyboardInterrupt
        return weight * float(prediction.answer == "right")

    return metric


def test_another_metric_goes_on_with_none_of_the_values_of_the_one_before(learner: Learner) -> None:
    """What a closure holds decides as its code does: who stopped and changed it got the old metric's choice."""
    with pytest.raises(KeyboardInterrupt):
        compile(learner, **sets(), metric=_weighed(1.0, stops=True), threads=1, progress=False)
    again = compile(learner, **sets(), metric=_weighed(0.5), threads=1, progress=False).compile_report
    assert not again["resumed"] and again["metric"] == "metric"
    assert max(one["score"]["value"] for one in again["candidates"]) == 0.5


def test_a_teacher_needs_none_but_the_predictors_that_it_teaches(program: RAISF, world, oracle) -> None:
    """DSPy's own bootstrapping failed an assertion, long after the labelling had been paid for."""
    teacher = RAG(BM25.load(world.index), evidence=True)
    teacher.set_lm(oracle())
    compiled = compile(
        program, trainset=world.train, valset=world.dev, strategy="bootstrap", teacher=teacher, progress=False
    )
    assert compiled.compile_report["strategy"] == "bootstrap"


def test_runs_that_fail_while_bootstrapping_are_told(learner: Learner) -> None:
    failing = iter([True] * 3)

    def flaky(fields: dict[str, Any]) -> Any:
        if "trainset" in fields["question"] and next(failing, False):
            raise ConnectionError("down")
        return {"answer": "x"}

    learner.set_lm(ScriptedLM(flaky))
    report = compile(learner, **sets(20), strategy="bootstrap", threads=4, progress=False).compile_report
    assert report["failed"] == 3
