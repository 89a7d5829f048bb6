"""What a compilation depends on, in a form that can be hashed: the programs with the code that they run."""

from collections.abc import Callable
from typing import Any

import dspy

from raisf.evaluation.identity import code_of, describe
from raisf.optimize.within import programs_within


def identity_of(program: dspy.Module, *functions: Callable[..., Any]) -> dict[str, Any]:
    """A program with the code that it and some functions run, for a journal: who edits them begins anew.

    Records of an evaluation do without the code: there a path is given by hand.
    """
    modules = [program, *(one for one in programs_within(program) if one is not program)]
    kinds = dict.fromkeys(kind for module in modules for kind in type(module).__mro__)
    ours = [kind for kind in kinds if not kind.__module__.startswith(("dspy.", "builtins"))]
    codes = [made for kind in ours for made in vars(kind).values() if hasattr(made, "__code__")]
    described = [describe(module) for module in modules]
    return {"programs": described, "code": [code_of(function) for function in [*codes, *functions]]}
