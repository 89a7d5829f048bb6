"""If these failed, a module of one's own would be calibrated on answers that nobody gets, or a judge that could
not be measured be passed over in silence, or cost the whole program as it is saved.
"""

from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.optimize.artifact import load, save
from raisf.optimize.judges.reliability import PLOT
from raisf.programs.ra_isf import RAISF
from tests.optimize.test_calibrate import calibrated, of_its_own, questions, scoring, shown, timid
from tests.shelf import Shelf


def judging() -> RAISF:
    made = RAISF(Shelf(of_its_own), k=2)
    made.set_lm(scoring(timid))
    return made


def test_a_module_is_calibrated_on_what_it_gives_itself() -> None:
    """The metric was asked of the answer within, which nobody gets."""

    program = judging()

    class Shouting(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rag = program

        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(loud=self.rag(question=question).answer.upper())

    def loud(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
        return float(prediction.loud == example.answer.upper())

    made, report = calibrated(Shouting(), n=10, metric=loud)
    assert report["answer"]["before"]["value"] == 0 and report["answer"]["after"]["value"] == 1
    assert report["answer"]["lm_calls"]["before"] > 1 and "loud of the answers" in shown(report)
    assert made.rag.know_threshold < 0.5 < made.rag.relevance_threshold and program.know_threshold == 0.5


def test_a_threshold_that_moved_is_told_though_its_judge_could_not_be_measured() -> None:
    program = judging()
    bare = [dspy.Example(question=e.question, answer=e.answer).with_inputs("question") for e in questions(10)]
    made, report = calibrated(program, valset=bare, aim="answer")
    moved = report["judges"]["relevance"]
    assert moved["threshold"] == {"before": 0.5, "after": made.relevance_threshold} and "gold_pids" in moved["skipped"]
    assert f"relevance has the threshold {made.relevance_threshold:.3g} instead of 0.5" in shown(report)


def test_a_judge_that_was_not_measured_or_a_picture_that_fails_costs_no_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Drawing ended in a KeyError as the program was saved, after all the compiling."""
    program, lm = RAISF(Shelf(of_its_own), k=1), scoring(timid)
    program.set_lm(lm)
    made, report = calibrated(program, aim="accuracy")
    assert "skipped" in report["judges"]["relevance"] and "skipped" not in report["judges"]["know"]
    save(made, tmp_path / "a")
    assert (tmp_path / "a" / PLOT).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: 1 / 0)
    save(made, tmp_path / "a")
    assert load(tmp_path / "a", lm=lm, retriever=Shelf(of_its_own)) and not (tmp_path / "a" / PLOT).exists()
    assert "reliability.png could not be drawn (ZeroDivisionError" in caplog.text


class Asking(dspy.Module):
    """Asks RA-ISF two questions side by side, and under an LM of its own choice."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.rag, self.mode = RAISF(Shelf(of_its_own), k=2), mode

    def forward(self, question: str) -> dspy.Prediction:
        if self.mode == "parallel":
            both = dspy.Parallel(num_threads=2, disable_progress_bar=True)
            answers = both([(self.rag, {"question": question}), (self.rag, {"question": f"{question} again"})])
            return answers[0]
        with dspy.context(lm=scoring(lambda fields: {**timid(fields), "answer": "another's"})):
            self.rag(question=question)
        return self.rag(question=question)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["parallel", pytest.param("two LMs", marks=pytest.mark.slow)])
def test_a_module_is_calibrated_on_what_it_gives_in_threads_and_under_several_lms(mode: str) -> None:
    """One failed on every question, the other was answered by the LM that had been asked before."""
    with dspy.context(lm=scoring(timid)):
        alone = [Asking(mode)(question=e.question).answer == e.answer for e in questions(10)]
        _, report = calibrated(Asking(mode), n=10, aim="answer")
    assert report["failed"] == 0 and report["answer"]["before"]["value"] == sum(alone) / 10
    assert report["answer"]["after"]["value"] == 1 and report["answer"]["lm_calls"]["before"] > 2
