"""What a compilation depends on, in a form that can be hashed: the programs with the code that they run."""

import contextlib
import dis
import functools
import importlib.util
import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter, methodcaller
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import dspy
import numpy as np

from raisf.evaluation.identity import describe, describe_lm, engine_of
from raisf.evaluation.values import PLAIN, code_of, content_of, given_to_search, is_own, is_users, made_with, taken
from raisf.optimize.within import programs_within
from raisf.retrieval.adapting import searched
from raisf.utils.predictors import all_predictors

_PLAIN = PLAIN | bool | int | float | str | tuple | frozenset | functools.partial | np.generic | None
_PLAIN |= MappingProxyType | attrgetter | itemgetter | methodcaller
_AT_HAND = str | bytes | int | float | None
_CACHED = type(functools.cache(len))
_CONTAINERS = list | dict | set | SimpleNamespace | np.ndarray


def identity_of(program: dspy.Module, *functions: Callable[..., Any]) -> dict[str, Any]:
    """A program with the code that it and some functions run, for a journal: who edits them begins anew.

    Records of an evaluation do without the code: there a path is given by hand. A module that a function is, holds or
    names in its globals, such as a judge that a metric asks, is told as the program is. So is the code of LMs, engines,
    adapters, retrievers and tools of the user's own: who mends how hers reads goes on with no verdict misread.
    """
    return _identity_of(program, functions, set())


def _identity_of(program: dspy.Module, functions: Sequence[Any], told: set[int]) -> dict[str, Any]:
    """See `identity_of`; `told` are the ids of the modules that have been told already, and grows."""
    modules = [program, *(one for one in programs_within(program) if one is not program)]
    parts = [*modules, *(one for _, one in program.named_sub_modules() if one not in modules)]
    told |= set(map(id, parts))
    kinds = dict.fromkeys(kind for part in parts for kind in type(part).__mro__)
    kept = [_kept(part) for part in parts]
    given = [one for one in _met(kept) if not isinstance(one, dspy.Module)]
    private = [[one for name, one in held.items() if name[0] == "_"] for held in kept]
    hidden = _met(private)  # which no description tells
    answering = _asked_of(program)
    finding = [one for one in program.parameters() if not isinstance(one, dspy.Module)]  # a dspy.Retrieve of hers
    hers = _classes([*answering, *functions, *finding, *given])
    within = _methods(kind for kind in kinds if not kind.__module__.startswith(("dspy.", "builtins")))
    called = [*filter(inspect.isfunction, answering), *functions, *filter(inspect.isfunction, hidden)]
    run = [*within, *_methods(hers), *called]
    helpers, named = _reached([*run, *filter(inspect.isfunction, given)])
    for kind in dict.fromkeys([*kinds, *hers]):
        helpers |= _constants(kind)
    held = (*(one for one in _met([*functions, hidden]) if isinstance(one, dspy.Module)), *named)
    asks = list({id(one): one for one in held if id(one) not in told}.values())
    told |= set(map(id, asks))
    # A function of hers, such as a metric that is a judge, may ask the LM of DSPy's settings.
    lm = dspy.settings.lm if any(map(_of_a_user, [*within, *functions])) else None
    found = {
        "programs": [describe(module) for module in modules],
        "code": [code_of(one) for one in run],
        "asked": describe_lm(lm),
    }
    found |= {"helpers": helpers} if helpers else {}
    return found | ({"asks": [_identity_of(one, (), told) for one in asks]} if asks else {})


def _methods(kinds: Iterable[type[Any]]) -> list[Any]:
    """The functions in classes."""
    return [code for kind in kinds for made in vars(kind).values() for code in _functions(made)]


def _asked_of(program: dspy.Module) -> list[Any]:
    """What answers a program and finds for it: LMs, their engines and adapters, retrievers without names."""
    predictors = [predictor for _, predictor in all_predictors(program)]
    lms: list[Any] = [one.lm or dspy.settings.lm for one in predictors]
    found = [*lms, *map(engine_of, lms)]
    found += [getattr(lm, "adapter", None) or dspy.settings.adapter for lm in lms]
    found += [given_to_search(searched(one)) for one in programs_within(program)]
    return list({id(one): one for one in found}.values())


def _classes(objects: Sequence[Any]) -> list[type[Any]]:
    """The user's own classes that objects are, or are of; of a bound method, that its object is of."""
    kinds = [one if isinstance(one, type) else type(getattr(one, "__self__", one)) for one in objects]
    return [kind for kind in dict.fromkeys(base for one in kinds for base in one.__mro__) if is_own(kind)]


def _met(values: Sequence[Any]) -> list[Any]:
    """What values are, and have at hand: bound, in a closure, as a default, in a list; of these alone as attributes."""
    found, waiting, seen, direct = list[Any](), list(values), set[int](), set(map(id, values))
    while waiting:
        one = waiting.pop()
        if isinstance(one, _AT_HAND) or id(one) in seen:
            continue
        seen.add(id(one))
        found.append(one)
        if isinstance(one, functools.partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, _CACHED):
            waiting.append(one.__wrapped__)
        elif isinstance(one, dspy.Tool):
            waiting.append(one.func)
        elif inspect.ismethod(one):
            owner = one.__self__
            waiting += [owner, one.__func__, *([] if isinstance(owner, dspy.Module) else _attributes(owner))]
        elif inspect.isfunction(one):
            for cell in one.__closure__ or ():
                with contextlib.suppress(ValueError):  # nothing is in it yet
                    waiting.append(cell.cell_contents)
            waiting += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
        elif isinstance(one, Mapping):
            with contextlib.suppress(Exception):  # a pool of connections refuses
                waiting += list(one.values())
        elif isinstance(one, list | tuple):
            waiting += one
        elif not isinstance(one, dspy.Module) and id(one) in direct:
            waiting += _attributes(one)
    return found


def _kept(module: dspy.Module) -> dict[str, Any]:
    """The attributes of a module, without what it, or DSPy, notes there while it runs."""
    options = {f"_{name}" for name in taken(type(module))}
    noted = {"history", "callbacks"}
    return {name: one for name, one in vars(module).items() if name in options or not (name[0] == "_" or name in noted)}


def _attributes(value: Any) -> list[Any]:
    return list(getattr(value, "__dict__", {}).values())


def _of_a_user(function: Any) -> bool:
    """Whether a function is not of this package: it may ask the LM of DSPy's settings, and ours never do."""
    return not (getattr(function, "__module__", None) or "").startswith("raisf.")


def _reached(run: Iterable[Any]) -> tuple[dict[str, Any], list[dspy.Module]]:
    """What code names in a user's modules, directly or through one another: functions, constants, modules of DSPy's.

    Also LMs, classes, and objects of the user's own. A function's own code tells the names of what it calls, not what
    these do.

    Returns:
        The functions and constants by name, as plain data; the modules.
    """
    modules: dict[str, dspy.Module] = {}
    called = [function if _functions(function) else type(function).__call__ for function in run]
    found, waiting = dict[str, Any](), [one for function in called for one in _functions(function)]
    while waiting:
        function = waiting.pop()
        if not _edited(function):
            continue
        used = _used(function)
        found |= {
            f"{function.__module__}.{function.__qualname__}.{name}": code_of(value)
            for name, value in vars(function).items()
            if isinstance(value, _PLAIN) and not isinstance(value, int | float)  # which may be a count
        }
        for key, value in sorted(_named(function, used).items()):
            kind = value if isinstance(value, type) else type(value)
            made_of = is_own(kind) and kind is not value
            met = _met([value] if made_of else [[value]])
            modules |= {f"{key} {number}": one for number, one in enumerate(met) if isinstance(one, dspy.Module)}
            if key in found or isinstance(value, dspy.Module):
                continue
            held = _members(kind).values() if made_of or kind is value else met
            made = [one for each in held for one in _functions(each) if _edited(one)]
            found |= _constants(kind)
            if (constant := _constant(value, named=key.rpartition(".")[2].isupper())) is not None:
                found[key] = constant
            if made:
                found[f"{key}()" if key in found else key] = [code_of(one) for one in made]
                waiting += made
    return found, [modules[key] for key in sorted(modules)]


def _constants(kind: type[Any]) -> dict[str, Any]:
    """By full names, what a user's class, and those that it grew from, hold beside functions: instances read it."""
    told = {name: value for name, value in _members(kind).items() if not name.rpartition(".")[2].startswith("__")}
    constants = {name: _constant(one) for name, one in told.items()}
    return {name: one for name, one in constants.items() if one is not None}


def _constant(value: Any, *, named: bool = True) -> Any:
    """What code finds under a name, as plain data; None for what may change with each call, or is told elsewhere.

    Args:
        value: What that is.
        named: Whether the name is one of a constant.
    """
    if isinstance(value, dspy.BaseLM):
        return describe_lm(value)
    asked = isinstance(value, type) and issubclass(value, dspy.Signature)
    plain = isinstance(value, _PLAIN) and not isinstance(value, np.ndarray)
    if asked or plain or is_own(type(value)) or (named and isinstance(value, _CONTAINERS)):
        return code_of(value)
    # Others may change with each call, as lists without such a name do: a count of these, what was found so far.
    return (content_of(value) or made_with(value) or None) if named and not isinstance(value, dspy.Module) else None


def _members(kind: type[Any]) -> dict[str, Any]:
    """By full names, what a class, and those that it grew from and that stand in it, have, as far as they are hers."""
    found, waiting = dict[str, Any](), list(kind.__mro__)
    for one in waiting:  # which grows
        if is_own(one):
            found |= {f"{one.__module__}.{one.__qualname__}.{name}": value for name, value in vars(one).items()}
            inner = (base for value in vars(one).values() if isinstance(value, type) for base in value.__mro__)
            waiting += [base for base in dict.fromkeys(inner) if base not in waiting]
    return found


def _used(function: Any) -> dict[str, set[str]]:
    """The names in a function's code and in that of the functions inside it, by instruction."""
    used: dict[str, set[str]] = defaultdict(set)
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes += [one for one in code.co_consts if hasattr(one, "co_names")]
        for step in dis.get_instructions(code):
            if isinstance(step.argval, str):
                used[step.opname].add(step.argval)
    return used


def _named(function: Any, used: dict[str, set[str]]) -> dict[str, Any]:
    """By full names, what code finds in its globals (but what it sets there, a counter), and in the user's modules."""
    names = (used["LOAD_GLOBAL"] - used["STORE_GLOBAL"]) & function.__globals__.keys()
    found = {f"{function.__module__}.{name}": function.__globals__[name] for name in names}
    modules = [one for one in found.values() if isinstance(one, ModuleType)]
    modules += _imported(used, function.__globals__.get("__package__") or "")
    within = used["LOAD_ATTR"] | used["LOAD_METHOD"] | used["IMPORT_FROM"]
    for module in modules:  # which grows: of `mine.scoring.grade` one finds `scoring` in `mine`
        if is_users(module.__name__, getattr(module, "__file__", None) or ""):
            held = {name: vars(module)[name] for name in within & vars(module).keys()}
            found |= {f"{module.__name__}.{name}": value for name, value in held.items()}
            modules += [one for one in held.values() if isinstance(one, ModuleType) and one not in modules]
    return found


def _imported(used: Mapping[str, set[str]], package: str) -> list[ModuleType]:
    """The modules that code imports when it runs; the user's that have not been imported so far are now.

    Args:
        used: The names in it, by instruction, which do not tell `from .one` from `from one`.
        package: That it is in.
    """
    names = used["IMPORT_NAME"] | (
        {f"{package}.{name}".strip(".") for name in used["IMPORT_NAME"]} if package else set()
    )
    names |= {f"{name}.{part}" for name in names for part in used["IMPORT_FROM"]}
    for name in sorted(filter(None, names - sys.modules.keys())):
        with contextlib.suppress(Exception, SystemExit):  # is told when it runs; most of the names are no modules
            top = importlib.util.find_spec(name.partition(".")[0])
            if top is not None and is_users(name, top.origin or ""):
                importlib.import_module(name)
    return [one for name in sorted(names) if (one := sys.modules.get(name)) is not None]


def _edited(function: Any) -> bool:
    """Whether its code is the user's own."""
    return is_users(function.__module__ or "", function.__code__.co_filename)


def _functions(made: Any) -> list[Any]:
    """The functions in a class's attribute: a method, a static one, a property's, one that is cached or wrapped."""
    held = [made, *(getattr(made, name, None) for name in ("__func__", "fget", "fset", "func", "__wrapped__"))]
    return list({id(one): one for one in held if hasattr(one, "__code__")}.values())
