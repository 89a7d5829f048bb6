"""Modules of the user's own in artifacts: named by their class, made by the caller; an artifact imports nothing."""

import contextlib
import inspect
import sys
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from raisf.evaluation.identity import digest, is_hung
from raisf.optimize.copying import copy_of
from raisf.optimize.within import all_within
from raisf.programs.changing import constructors
from raisf.programs.program import Program
from raisf.programs.registry import PROGRAMS
from raisf.retrieval.passage import Retriever
from raisf.utils.errors import InputError

PLAIN = bool | int | float | None


def name_of(program: dspy.Module) -> str:
    """What an artifact calls a program: its name in the registry, or where its class is, as "package.module:Class"."""
    kind = type(program)
    known = next((name for name, ours in PROGRAMS.items() if kind is ours), None)
    return known or f"{kind.__module__}:{kind.__qualname__}"


def is_foreign(name: str) -> bool:
    """Whether a program of that name is of a class that is not in the registry."""
    return ":" in name


def options_of(module: dspy.Module) -> dict[str, Any]:
    """The constructor's arguments that the module keeps as attributes of the same names, with a `_` before or not.

    A program of ours, or of a subclass of the user's, says itself what its options are. Of what the user's own classes
    take, only numbers and switches are told: a text may be a key, so it is a hash, and so is a list, or a dictionary.
    """
    if isinstance(module, Program):
        ours = _options_of_ours(module)
        return {name: value if name in ours else _hidden(value) for name, value in module.options().items()}
    names = list(inspect.signature(type(module).__init__).parameters)[1:]
    names = [name for name in names if name != "fail_count" and hasattr(module, _held(module, name))]  # DSPy's count it
    found = {name: getattr(module, _held(module, name)) for name in names}
    values = {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}
    return {name: _hidden(value) for name, value in values.items() if _is_data(value)}


def _held(module: dspy.Module, name: str) -> str:
    """The attribute in which a module keeps an argument, if it does."""
    return name if hasattr(module, name) else f"_{name}"


def _is_data(value: Any) -> bool:
    """Whether a value is a plain one, or made of such: no part of a module, and nothing that searches or asks."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_data, value))
    if isinstance(value, dict):
        return all(map(_is_data, (*value, *value.values())))
    return isinstance(value, PLAIN | str)


def _options_of_ours(program: Program) -> set[str]:
    """The options that a program of the registry takes, also where a subclass is the user's."""
    return {name for kind, takes in constructors(program) if kind in PROGRAMS.values() for name in takes}


def _hidden(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    return value if isinstance(value, PLAIN) else f"sha256:{digest(value)}"


def parts_of(module: dspy.Module) -> dict[str, dict[str, Any]]:
    """By their place, the options of the programs of ours within a module."""
    return {place: options_of(program) for place, program in places(module).items()}


def modules_of(module: dspy.Module) -> dict[str, dict[str, Any]]:
    """By their place, the same of other modules within it: a class may not keep what it makes them with."""
    told = {place: options_of(part) for place, part in _others(module).items()}
    return {place: options for place, options in told.items() if options}


def _others(module: dspy.Module) -> dict[str, Any]:
    found = dict(module.named_sub_modules((dspy.Module, dspy.Retrieve)))  # pyright: ignore[reportArgumentType]
    others = {place: part for place, part in found.items() if part is not module and not is_hung(place)}
    return {place: part for place, part in others.items() if not isinstance(part, Program | dspy.Predict)}


def places(module: dspy.Module) -> dict[str, Program]:
    """By their place, the programs of ours within a module, itself aside."""
    return {place: part for place, part in all_within(module).items() if part is not module}


def retriever_of(module: dspy.Module) -> Retriever | None:
    """What a module searches with: its own, or that of the first program of ours in it."""
    found = [getattr(one, "retriever", None) for one in (module, *all_within(module).values())]
    return next((retriever for retriever in found if isinstance(retriever, Retriever)), None)


def made_by_caller(
    name: str, given: Any, options: dict[str, Any], retriever: Retriever | None, folder: Path
) -> dspy.Module:
    """The module that an artifact's state goes into.

    Args:
        name: What the artifact calls it.
        given: The caller's class or instance (which stays as it is); None: a class of that name that is imported
            already. A class is called with those numbers and switches, and with the retriever, that it takes by name.
        options: What the artifact kept of its options.
        retriever: For the class.
        folder: The artifact's.

    Raises:
        InputError: There is no such class, or its constructor wants more.
    """
    if given is None:
        given = _imported(name)
    if given is None:
        kind = name.rpartition(":")[2]
        raise InputError(
            f"the artifact {folder} holds a program of the class {name}, and an artifact never chooses code to import: "
            f"import that class before, or give it, raisf.load(..., program={kind}), or an instance of it (on the "
            f"command line --program package.module:Class@{folder})"
        )
    if isinstance(given, dspy.Module):
        made = copy_of(given)
    elif inspect.isclass(given) and issubclass(given, dspy.Module):
        takes = inspect.signature(given.__init__).parameters
        has = {name: value for name, value in options.items() if _takes_number(takes.get(name), value)}
        searching: dict[str, Any] = {"retriever": retriever} if "retriever" in takes else {}
        try:
            try:
                made = given(**{**has, **searching})
            except Exception:  # not both of two, say, of which one follows from the other
                made = given(**searching)
        except Exception as error:
            raise InputError(
                f"{given.__name__} wants more arguments ({error}): give an instance, "
                f"raisf.load(..., program={given.__name__}(...))"
            ) from error
    else:
        raise InputError(f"program is {given!r:.80}: give a dspy.Module's class, or an instance")
    return made


def _takes_number(argument: inspect.Parameter | None, value: Any) -> bool:
    """Whether a value is a number or a switch, and an argument of the constructor's."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return argument is not None and argument.kind in named and isinstance(value, PLAIN)


def _same(one: Any, other: Any) -> bool:
    return one == other or (one != one and other != other)  # NaN


def set_options(
    module: dspy.Module,
    options: dict[str, Any],
    parts: dict[str, dict[str, Any]],
    modules: dict[str, dict[str, Any]],
    settable: bool = False,
) -> None:
    """Gives the programs of ours in a module, itself too, what an artifact kept of their options; checks the others'.

    Their constructors check these, and make of them what they shape. Nothing is set of a module that is the user's own
    alone: who knows what its numbers shape? Only one that was made of its class with all that this takes has the rest
    of its numbers set (`settable`). Nor are texts of a subclass: one may be an address or a path, which no
    artifact chooses. A module that is not there may be one that is made when it is first needed.

    Raises:
        InputError: Such a number or text is another than the artifact's, an option cannot be used, or a part is
            missing.
    """
    within, others = places(module), _others(module)
    if strangers := parts.keys() - within.keys():
        raise InputError(f"the artifact's program has a part {min(strangers)!r}, and {name_of(module)} has none")
    held = [(others[place], kept) for place, kept in modules.items() if place in others]
    held += [(within[place], kept) for place, kept in parts.items()]
    for one, kept in [(module, options), *held]:
        ours, now = set[str](), options_of(one)
        numbers = {name for name in kept.keys() & now.keys() if all(isinstance(of[name], PLAIN) for of in (kept, now))}
        if isinstance(one, Program):
            ours = _options_of_ours(one)
            one.become({name: value for name, value in kept.items() if name in ours | numbers})
            now = options_of(one)
        for name, value in kept.items():
            if name in ours or name not in now or now[name] == _hidden(value) or _same(now[name], value):
                continue
            if name in numbers and settable and one is module:
                with contextlib.suppress(AttributeError):  # a property
                    setattr(one, _held(one, name), value)
                    continue
            differ = f" ({value}, not {now[name]})" if name in numbers else ""
            raise InputError(
                f"the artifact was compiled with another {name} of {type(one).__name__} than the program given has"
                f"{differ}: give an instance made with the same, raisf.load(..., program=...)"
            )


def _imported(name: str) -> Any:
    """The class of a name if its module is imported already; None for what is no dspy.Module of that very name.

    Attributes are read from the modules' own dictionaries: asking a lazy package for one would import it.
    """
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    if inspect.isclass(found) and issubclass(found, dspy.Module):
        return found if (found.__module__, found.__qualname__) == (module, qualname) else None
    return None
