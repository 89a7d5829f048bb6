"""If these failed, a report would call zero-shot what had been tuned before."""

from typing import Any

import dspy
import pytest

from raisf.optimize.compile import compile
from tests.optimize.conftest import Learner, sets


class Within(dspy.Module):
    """A module around a program of ours."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.inner, self.candidate_programs = learner, []

    def forward(self, question: str) -> dspy.Prediction:
        return self.inner(question=question)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_student_whose_instructions_were_rewritten_is_not_called_zero_shot(learner: Learner, wrapped: bool) -> None:
    student: Any = Within(learner) if wrapped else learner

    def called() -> str:
        return compile(student, **sets(), strategy="bootstrap", progress=False).compile_report["candidates"][0]["name"]

    assert called() == "zero-shot"
    if wrapped:
        student.candidate_programs = [{"score": 1.0}]  # as dspy.SIMBA leaves them, which rewrites other predictors, too
        assert called() == "as given"
        student.candidate_programs = []
    predictor: Any = learner.answer_directly
    predictor.signature = predictor.signature.with_instructions("Answer in one word.")
    assert called() == "as given"
