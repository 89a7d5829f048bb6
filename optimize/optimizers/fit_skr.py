"""Fitting SKR-knn: nothing else is compiled."""

from dataclasses import dataclass
from typing import Any

import dspy

from raisf.optimize.copying import copy_of
from raisf.optimize.optimizers.base import Compilation, Examples, Optimizer
from raisf.optimize.within import programs_within
from raisf.programs.baselines.skr import SKR
from raisf.utils.errors import InputError


@dataclass(kw_only=True, eq=False)
class FitSKR(Optimizer):
    """Asks an SKR-knn every training question with and without retrieval, and keeps which of the right ones needed it.

    One that was fitted before keeps its cases. The other optimizers do the same first where they find one that was not.

    Args:
        threads: Questions asked at a time.
        work: See `raisf.optimize.optimizers.base.Optimizer`.
        progress: Likewise.
    """

    how = "skr"
    validates = False

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        if not any(isinstance(program, SKR) for program in programs_within(student)):
            raise InputError(f"{type(student).__name__} holds no SKR-knn to fit: take skr-knn")
        return []

    def _compile(self, task: Compilation) -> Any:
        compiled: Any = copy_of(task.student)
        fitted = [program for program in programs_within(compiled) if isinstance(program, SKR)]
        cases = [case for program in fitted for case in program.cases or []]
        helped = sum(case["helped"] for case in cases)
        compiled.compile_report = {
            "how": "skr",
            "trainset": len(task.trainset),
            "cases": {"helped": helped, "not": len(cases) - helped},
        }
        return compiled
