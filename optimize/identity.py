"""What a compilation depends on, in a form that can be hashed: the programs with the code that they run."""

from collections.abc import Callable
from typing import Any

import dspy

from raisf.evaluation.identity import code_of, describe, weights_of
from raisf.optimize.within import programs_within
from raisf.utils.predictors import all_predictors


def identity_of(program: dspy.Module, *functions: Callable[..., Any]) -> dict[str, Any]:
    """A program with the code that it and some functions run, for a journal: who edits them begins anew.

    Records of an evaluation do without the code: there a path is given by hand.
    """
    modules = [program, *(one for one in programs_within(program) if one is not program)]
    parts = [*modules, *(one for _, one in program.named_sub_modules() if one not in modules)]
    kinds = dict.fromkeys(kind for part in parts for kind in type(part).__mro__)
    ours = [kind for kind in kinds if not kind.__module__.startswith(("dspy.", "builtins"))]
    codes = [code for kind in ours for made in vars(kind).values() for code in _functions(made)]
    described = [describe(module) for module in modules]
    # The labels and types of the fields, which `describe` does without: as an LM is told of them.
    signatures: dict[str, Any] = {name: predictor.signature for name, predictor in all_predictors(program)}
    formats = {name: dspy.ChatAdapter().format_field_structure(one) for name, one in signatures.items()}
    run = [*codes, *functions]
    asked = dspy.settings.lm if any(map(_of_a_user, run)) else None  # by a metric, say, that is a judge
    told = weights_of(asked) if asked is not None else None
    return {"programs": described, "formats": formats, "code": [code_of(one) for one in run], "asked": told}


def _of_a_user(function: Any) -> bool:
    """Whether it may ask the LM of DSPy's settings, in whose place ours ask those of the program."""
    return not (getattr(function, "__module__", None) or "").startswith("raisf.")


def _functions(made: Any) -> list[Any]:
    """The functions in a class's attribute: a method, a static one, a property's, one that is cached or wrapped."""
    held = [made, *(getattr(made, name, None) for name in ("__func__", "fget", "fset", "func", "__wrapped__"))]
    return list({id(one): one for one in held if hasattr(one, "__code__")}.values())
