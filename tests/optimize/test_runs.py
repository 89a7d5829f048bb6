"""If these failed, a cluster's runs would teach nothing, or a program be judged by how long its model takes to read."""

import functools
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import cloudpickle
import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError

from raisf.evaluation.cluster import answer
from raisf.optimize.bootstrapping import bootstrap_demos
from raisf.optimize.demonstrations import Rows
from raisf.optimize.runs import results, score_of, with_steps
from raisf.optimize.traces import traced_rows
from raisf.utils.errors import LMError
from tests.evaluation.test_cluster import Echoing, Ray, over
from tests.evaluation.test_seconds import READING, slowly_read
from tests.scripted import ScriptedLM

ASKED = [dspy.Example(question=f"What is {number}?").with_inputs("question") for number in range(3)]


class Asks(dspy.Module):
    """Asks its predictor, and notes how long that took."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")
        self.set_lm(lm)
        self.seconds: list[float] = []

    def forward(self, question: str) -> dspy.Prediction:
        start = time.perf_counter()
        try:
            return self.ask(question=question)
        finally:
            self.seconds.append(time.perf_counter() - start)


class Nodes(Ray):
    """Predictions come back as Ray's own pickler takes them."""

    def get(self, task: Any) -> Any:
        _, packed, rows, threads = self.tasks[task]
        return cloudpickle.loads(cloudpickle.dumps(answer(pickle.loads(packed), rows, threads)))


def test_runs_on_a_cluster_teach_what_they_teach_here() -> None:
    program = Asks(dspy.LM("echo", engine=Echoing(), cache=False))
    here = traced_rows(program, ASKED, lambda *_: 1.0, threads=8, progress=False)
    with over(Nodes(2, {})):
        there = traced_rows(program, ASKED, lambda *_: 1.0, threads=8, progress=False)
    assert [row.toDict() for row in there.of["ask"]] == [row.toDict() for row in here.of["ask"]]
    assert len(program.seconds) == len(there.of["ask"]) == len(ASKED), "each was asked here and on a node"


def test_a_step_that_right_runs_of_several_tens_share_is_one_demonstration() -> None:
    """It took the places of others."""

    class About(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.topic, self.ask = dspy.Predict("subject -> topic"), dspy.Predict("question, topic -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            return self.ask(question=question, topic=self.topic(subject="rivers").topic)

    program = About()
    program.set_lm(ScriptedLM(lambda fields: {"topic": "water", "answer": fields.get("question", "?")[-1]}))
    examples = [dspy.Example(question=f"What is {number}").with_inputs("question") for number in range(20)]

    def right(example: dspy.Example, made: dspy.Prediction, *_: Any) -> float:
        return float(made.answer == "7")

    found: Any = bootstrap_demos(program, Rows(), 6, Random(0), examples, right)[0]
    assert [demo.subject for demo in found.topic.demos] == ["rivers"] and len(found.ask.demos) == 2


@pytest.mark.slow
@pytest.mark.parametrize("way", [lambda program: program, with_steps])
def test_no_run_waits_for_a_model_to_be_read(
    way: Callable[..., Any], makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate with a limit of seconds was given none of the first answers."""
    program = Asks(slowly_read(makers, tmp_path, monkeypatch))
    results(way(program), ASKED, lambda *_: 1.0, threads=3)
    assert len(program.seconds) == len(ASKED) and max(program.seconds) < READING


def test_a_judge_that_fails_once_has_failed_on_one_example_and_one_that_always_fails_ends_all() -> None:
    examples = [dspy.Example(question=f"What is {number}?").with_inputs("question") for number in range(12)]
    program = Asks(dspy.LM("echo", engine=Echoing(), cache=False))

    def judged(failing: range) -> Callable[..., float]:
        def metric(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
            if examples.index(example) in failing:
                raise AdapterParseError("ChatAdapter", dspy.Signature("answer -> score"), "rubbish")
            return 1.0

        return functools.partial(score_of, metric)

    assert results(program, examples, judged(range(4, 5)), threads=1) == [1.0] * 4 + [None] + [1.0] * 7
    with pytest.raises(LMError, match=r"^the metric failed on 10 questions in a row, the last time with: AdapterParse"):
        results(program, examples, judged(range(12)), threads=1)


def test_a_metric_that_asks_is_called_for_several_examples_at_a_time_with_the_callers_settings() -> None:
    """One call after the other, an LM that judges makes eight threads wait for one."""
    program = Asks(dspy.LM("echo", engine=Echoing(), cache=False))
    together = threading.Barrier(len(ASKED), timeout=30)

    def metric(example: dspy.Example, prediction: dspy.Prediction) -> float:
        together.wait()
        return float(dspy.Predict("question -> answer")(question="How good is it?").answer == "right")

    with dspy.context(lm=dspy.LM("echo", engine=Echoing(), cache=False)):
        assert results(program, ASKED, metric, threads=len(ASKED)) == [1.0] * len(ASKED)
