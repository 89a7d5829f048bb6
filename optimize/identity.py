"""What a compilation depends on, in a form that can be hashed: the programs with the code that they run."""

from collections.abc import Callable
from typing import Any

import dspy

from raisf.evaluation.identity import describe
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
    return {"programs": described, "code": [_code(function) for function in [*codes, *functions]]}


def _code(function: Any) -> list[Any]:
    names = [getattr(function, name, type(function).__name__) for name in ("__module__", "__qualname__")]
    code = getattr(function, "__code__", None)
    return [*names, _parts(code) if code is not None else None]


def _parts(code: Any) -> list[Any]:
    """The code with that of the functions inside it, and none of the places it stands at."""
    constants = [_parts(one) if hasattr(one, "co_code") else _shown(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]


def _shown(constant: Any) -> str:
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)  # sets have no order
