"""The language models that a program asks: whether they are in the process, and reading those that are."""

import contextlib
from typing import Any

import dspy

from raisf.evaluation import QUESTIONS, QUESTIONS_REMOTE
from raisf.lm.local.model import LocalLM
from raisf.utils.predictors import all_predictors


def questions_at_a_time(program: dspy.Module) -> int:
    """How many questions a program is asked at a time where nobody says."""
    lms = _lms(program)
    return QUESTIONS if lms and all(isinstance(lm, LocalLM) for lm in lms) else QUESTIONS_REMOTE


def load_weights(program: object) -> None:
    """Reads the weights of the models in the process that a program asks; nobody else is asked for anything.

    They are else read at the first call, and each question that waits for that would seem to take so long.
    """
    for lm in _lms(program) if isinstance(program, dspy.Module) else []:
        if isinstance(lm, LocalLM):
            with contextlib.suppress(Exception):  # what cannot be read is told by the questions
                _ = lm.base_engine.model


def _lms(program: dspy.Module) -> list[Any]:
    return [predictor.lm or dspy.settings.lm for _, predictor in all_predictors(program)]
