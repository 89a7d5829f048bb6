"""The language models that a program asks: whether they are in the process, and reading those that are."""

import contextlib
import functools
from typing import Any

import dspy

from raisf.evaluation import QUESTIONS, QUESTIONS_REMOTE
from raisf.lm.local.model import LocalLM
from raisf.utils.predictors import all_predictors


def questions_at_a_time(program: dspy.Module) -> int:
    """How many questions a program is asked at a time where nobody says."""
    lms = lms_of(program)
    return QUESTIONS if lms and all(isinstance(lm, LocalLM) for lm in lms) else QUESTIONS_REMOTE


def load_weights(program: object) -> None:
    """Reads the weights of the models in the process that a program asks. No endpoint is called.

    Else they would be read at the first call, and the wait would count among the seconds of the questions. A module
    that has other models to read does so in its method `read_models`.
    """
    parts = [part for _, part in program.named_sub_modules()] if isinstance(program, dspy.Module) else []
    reads = filter(None, (getattr(part, "read_models", None) for part in parts))
    for read in (*(lm.base_engine.load for lm in local_lms_of(program)), *reads):
        with contextlib.suppress(Exception):  # what cannot be read is told by the questions
            read()


def local_lms_of(program: object) -> list[LocalLM]:
    """Those in the process among the LMs that a program asks."""
    return [lm for lm in lms_of(program) if isinstance(lm, LocalLM)]


def lms_of(program: object) -> list[Any]:
    """The LMs that a program asks; of a `functools.partial`, those of its first argument; none of a function."""
    while isinstance(program, functools.partial):
        program = program.args[0]
    predictors = all_predictors(program) if isinstance(program, dspy.Module) else []
    return [predictor.lm or dspy.settings.lm for _, predictor in predictors]
