"""The predictors of a module, those in its frozen parts among them."""

from typing import Any

import dspy
from dspy.predict.parameter import Parameter

from raisf.utils.errors import InputError


def all_predictors(module: dspy.Module) -> list[tuple[str, dspy.Predict]]:
    """What `named_predictors` gives, under the same names, and the predictors of parts that DSPy's optimizers compiled.

    DSPy keeps such a part frozen by leaving it out there, so that nobody compiles it again. It is asked all the same:
    who describes a module, keeps it or needs its LMs must see it.
    """
    found: list[tuple[str, Parameter]] = [("self", module)] if isinstance(module, Parameter) else []
    for name, value in vars(module).items():
        if isinstance(value, list | tuple):
            found += [one for place, item in enumerate(value) for one in _within(f"{name}[{place}]", item)]
        elif isinstance(value, dict):
            found += [one for key, item in value.items() for one in _within(f"{name}['{key}']", item)]
        else:
            found += _within(name, value)
    once: dict[int, tuple[str, Parameter]] = {}
    for name, one in found:
        once.setdefault(id(one), (name, one))
    return [(name, one) for name, one in once.values() if isinstance(one, dspy.Predict)]


def _within(name: str, value: Any) -> list[tuple[str, Parameter]]:
    if isinstance(value, Parameter):
        return [(name, value)]
    if isinstance(value, dspy.Module):
        return [(f"{name}.{place}", one) for place, one in all_predictors(value)]
    return []


def held_lms(module: dspy.Module) -> list[tuple[dict[str, Any], str, Any]]:
    """The LMs of a module, its predictors' and those that a part asks by itself: each with where it is, and its name.

    Assigning to that place gives the part another.
    """
    parts = [vars(part) for _, part in module.named_sub_modules(dspy.Module)]
    return [(has, name, value) for has in parts for name, value in has.items() if isinstance(value, dspy.BaseLM)]


def require_lm(program: dspy.Module) -> None:
    """Raise InputError unless every predictor of the program has an LM, its own or DSPy's."""
    for name, predictor in all_predictors(program):
        lm = predictor.lm or dspy.settings.lm
        if not isinstance(lm, dspy.BaseLM):
            found = "there is none" if lm is None else f"found {lm!r}"
            raise InputError(
                f"the predictor {name!r} needs a language model, {found}: give one with --lm, "
                "or dspy.configure(lm=raisf.connect(...))"
            )
