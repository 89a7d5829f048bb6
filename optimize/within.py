"""The programs of ours within a module of the user's own, and which of its predictors belong to them."""

from typing import TypeVar

import dspy

from raisf.programs.program import Program
from raisf.utils.errors import InputError
from raisf.utils.predictors import all_predictors

P = TypeVar("P", bound=Program)


def programs_within(module: dspy.Module) -> list[Program]:
    """The module itself if it is a program of ours, and those within it, outer ones first.

    One that has no predictor of the module is not in it: DSPy's optimizers hang their candidates on what they return.
    """
    return list(_placed(module, module.named_predictors()).values())


def all_within(module: dspy.Module) -> dict[str, Program]:
    """By their places, the same and those in parts that DSPy's optimizers compiled; the module itself is `self`."""
    return _placed(module, all_predictors(module))


def _placed(module: dspy.Module, predictors: list[tuple[str, dspy.Predict]]) -> dict[str, Program]:
    own = {id(predictor) for _, predictor in predictors}
    found = {place: part for place, part in module.named_sub_modules(Program) if isinstance(part, Program)}
    return {place: one for place, one in found.items() if any(id(two) in own for _, two in all_predictors(one))}


def owners(module: dspy.Module) -> dict[str, dspy.Module]:
    """By predictor's name, the innermost program of ours that it belongs to; the module itself where there is none."""
    of: dict[int, dspy.Module] = {}
    for program in programs_within(module):
        of.update({id(predictor): program for _, predictor in program.named_predictors()})
    return {name: of.get(id(predictor), module) for name, predictor in module.named_predictors()}


def owned(module: dspy.Module) -> dict[str, Program]:
    """The same of those predictors that belong to a program of ours."""
    return {name: owner for name, owner in owners(module).items() if isinstance(owner, Program)}


def program_within(module: dspy.Module, kind: type[P], missing: str) -> P:
    """The one program of a kind in a module, perhaps the module itself.

    Raises:
        InputError: There is none, which is said in the words of `missing`, or there are several.
    """
    found = [program for program in programs_within(module) if isinstance(program, kind)]
    if not found:
        kept = [
            place.removeprefix("self.") for place, program in all_within(module).items() if isinstance(program, kind)
        ]
        if kept:
            raise InputError(
                f"{kept[0]} was compiled by DSPy, which keeps it as it is: set {kept[0]}._compiled = False, or take it "
                "by itself"
            )
        raise InputError(missing)
    if len(found) > 1:
        raise InputError(f"{type(module).__name__} holds {len(found)} of {kind.__name__}: compile each by itself")
    return found[0]
