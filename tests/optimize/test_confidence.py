"""If these failed, a confidence of 70% would be right more or less often than seven times in ten."""

from typing import Any

import dspy
import numpy as np
import pytest

import raisf
from raisf.evaluation.runner import evaluate
from raisf.optimize.confidence import fit_confidence, platt
from raisf.programs.confidence import Confidence
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from tests.optimize.test_calibrate import of_its_own, questions, scoring, timid
from tests.shelf import Shelf


def test_platt_finds_the_scaling_that_the_answers_follow() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.01, 0.99, 20_000)
    share = np.array([Confidence(slope=0.6, offset=-0.8).scaled(one) for one in confidence])
    slope, offset = platt((rng.random(20_000) < share).astype(float), confidence)
    assert (slope, offset) == pytest.approx((0.6, -0.8), abs=0.05)


def test_one_number_that_parts_right_from_wrong_gives_a_finite_scaling() -> None:
    slope, offset = platt([0.0] * 10 + [1.0] * 10, [0.1] * 10 + [0.9] * 10)
    assert 0 < slope < 10 and abs(offset) < 5


@pytest.mark.parametrize(
    ("right", "message"), [([1.0] * 4, "are right"), ([0.0] * 4, "are wrong"), ([1.0, 1.0, 0.0, 0.0], "higher")]
)
def test_what_cannot_be_fitted_is_refused(right: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        platt(right, [0.1, 0.2, 0.8, 0.9])


def test_answers_that_are_all_as_sure_are_said_to_be_so() -> None:
    # Which way a slope through one point falls is no finding: it was kept, or called "the wrong ones are surer".
    for confidence in (0.2, 0.5, 0.9):
        with pytest.raises(InputError, match="same confidence"):
            platt([1.0, 0.0, 0.0, 1.0], [confidence] * 4)


def test_the_scaling_is_an_option_that_artifacts_keep(world, tmp_path, monkeypatch) -> None:
    fitted_on: list[int] = []

    def counted(right: Any, sure: Any) -> Any:
        fitted_on.append(len(right))
        return platt(right, sure)

    monkeypatch.setattr("raisf.optimize.confidence.platt", counted)
    alone: Any = {"use_relevance": False, "use_decomposition": False}
    program = RAISF(**alone, know_threshold=0.0, min_confidence=0.2)
    program.set_lm(raisf.connect("pocket"))
    fitted = fit_confidence(program, valset=[*world.train, *world.dev], progress=False)
    report = fitted.compile_report["confidence"]
    assert report["ece"]["after"]["value"] < report["ece"]["before"]["value"]  # its untrained judge is far off
    whole, *without_a_fifth = fitted_on
    assert whole == report["answers"] and sum(without_a_fifth) == 4 * whole, "each answer is scaled without it"
    assert fitted.min_confidence == 0.2 and (program.confidence_slope, program.confidence_offset) == (1, 0)
    raisf.save(fitted, tmp_path / "a")
    opened = raisf.load(tmp_path / "a")
    question = world.test[0].question
    root, raw = opened(question=question).trace.root, program(question=question).trace.root
    assert opened.confidence_slope == report["slope"]
    if root.confidence is not None and raw.confidence is not None:
        scaling = Confidence(slope=report["slope"], offset=report["offset"])
        assert root.confidence == pytest.approx(scaling.scaled(raw.confidence))


def test_a_scaling_is_fitted_on_what_the_judges_say_also_where_the_program_has_one() -> None:
    """It was put in place of the earlier one, and fitted on top of it."""
    program = RAISF(Shelf(of_its_own), k=1, know_threshold=0.0)
    program.set_lm(scoring(timid))
    once = fit_confidence(program, valset=questions(30), progress=False)
    again = fit_confidence(once, valset=questions(30), progress=False)
    assert (again.confidence_slope, again.confidence_offset) == (once.confidence_slope, once.confidence_offset)
    assert once.confidence_slope != 1


def test_a_field_called_trace_of_ones_own_is_no_trace(program: RAISF, world: Any) -> None:
    class Telling(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rag = program

        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=self.rag(question=question).answer, trace=["asked"])

    with pytest.raises(InputError, match="0 of 20 answers have a confidence"):
        fit_confidence(Telling(), valset=world.dev, progress=False)
    assert evaluate(Telling(), world.dev, progress=False).em is not None
