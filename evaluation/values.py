"""A value as plain data that can be hashed: an option, an object, a function; alike in every process."""

import enum
import functools
import hashlib
import inspect
import json
import logging
import queue
import random
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import ContextVar
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from multiprocessing.process import BaseProcess
from pathlib import Path, PurePath
from threading import Thread
from types import ModuleType
from typing import Any

import dspy
import numpy as np
from dspy.predict.parameter import Parameter

from raisf.lm.local.model import LocalLM
from raisf.retrieval.passage import found_by
from raisf.utils.files import is_installed

# What an LM is told that changes none of its answers, or must not be written down.
NO_SETTING = frozenset({
    *("api_key", "api_base", "base_url", "url", "api_version", "headers", "extra_headers", "default_headers"),
    "organization",
    *("timeout", "num_retries", "max_retries", "cache", "user", "metadata", "stream", "model_list"),
    *("azure_ad_token", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "vertex_credentials"),
})  # fmt: skip
# Values that are no containers: those that their representation tells, and the others that `_plain` knows.
_SHOWN = PurePath | Decimal | Fraction | range | complex | date | time | timedelta
PLAIN = _SHOWN | bytes | np.ndarray | re.Pattern | enum.Enum
# What runs beside a program is numbered anew in each process, and counts what it was given.
_RUNNING = Thread | Executor | BaseProcess | subprocess.Popen | queue.Queue
# How far values are looked into.
_DEEPEST = 8
_LIBRARIES = {"raisf", "dspy", *sys.stdlib_module_names}


def class_of(value: Any) -> str:
    """The full name of a value's class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


# What tells a module or parameter of DSPy's that is met within a value; by itself its class does.
telling: ContextVar[Callable[[Any], Any]] = ContextVar("telling", default=class_of)


def taken(kind: type[Any]) -> set[str]:
    """The parameters of the constructors of a class and its bases, without those that change no answer."""
    made = (vars(one).get("__init__") for one in kind.__mro__ if not one.__module__.startswith(("dspy.", "builtins")))
    return {name for one in made if inspect.isfunction(one) for name in inspect.signature(one).parameters} - NO_SETTING


def made_with(made: Any) -> dict[str, Any]:
    """What an object was made with, as far as it keeps that as plain attributes of the same names."""
    kept = getattr(made, "__dict__", {})
    held = {name: kept.get(name, kept.get(f"_{name}")) for name in taken(type(made))}
    return {name: one for name, one in held.items() if isinstance(one, str | bool | int | float)}


def searched_by(retriever: Any) -> str:
    """What a retriever finds by, and of a function of the user's own a hash of its code.

    Arguments bound to the function do not count: a client among them may change with every call.
    """
    given = given_to_search(retriever)
    function = getattr(given, "__func__", given)
    return f"{found_by(retriever)} {digest(code_of(function))}" if inspect.isfunction(function) else found_by(retriever)


def given_to_search(retriever: Any) -> Any:
    """What of the user's own a retriever searches with, without what a `functools.partial` binds to it; else None."""
    given = getattr(retriever, "given", None)
    while isinstance(given, functools.partial):
        given = given.func
    return given


def is_own(kind: type[Any]) -> bool:
    """Whether a class is the user's own."""
    return is_users(kind.__module__, getattr(sys.modules.get(kind.__module__), "__file__", None) or "")


def is_users(module: str, file: str) -> bool:
    """Whether a module is the user's: no library, which changes with its version alone."""
    return module.partition(".")[0] not in _LIBRARIES and not is_installed(Path(file))


def json_or_data(value: Any, above: tuple[int, ...] = ()) -> Any:
    """A value as JSON where it can be, else as `code_of` tells it."""
    try:
        return json.dumps(sorted(value) if isinstance(value, set | frozenset) else value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return _as_data(value, above)


def code_of(function: Any) -> Any:
    """What a function, or an object that is called, does, in a form that can be hashed.

    That is its code, with that of the functions inside it and none of the places it stands at, its defaults, and what
    it has at hand: what a partial was given, what a closure holds (but for lists and the like, which may change with
    each call), the public attributes of an object.
    """
    return _as_data(function, ())


def _as_data(value: Any, above: tuple[int, ...]) -> Any:
    """A value as plain data; where it contains itself, or is nested too deeply, its class stands for it."""
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dspy.Module | Parameter):
        return telling.get()(value)
    if isinstance(value, dspy.BaseLM):
        return asked_as(value)
    if (plain := _plain(value)) is not None:
        return [class_of(value), plain]
    if isinstance(value, _RUNNING) or id(value) in above or len(above) > _DEEPEST:
        return class_of(value)
    above = (*above, id(value))
    if isinstance(value, list | tuple):
        return [_as_data(one, above) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(_as_data(one, above)) for one in value)
    if isinstance(value, Mapping):
        try:
            pairs = list(value.items())
        except Exception:  # a pool of connections refuses
            return class_of(value)
        return [[_as_data(key, above), _as_data(one, above)] for key, one in pairs]
    if isinstance(value, functools.partial):
        return ["partial", *(_as_data(one, above) for one in (value.func, value.args, value.keywords))]
    if hasattr(value, "corpus_hash"):
        return searched_by(value)
    if inspect.ismethod(value):
        return [_as_data(value.__func__, above), _as_data(value.__self__, above)]
    if (code := getattr(value, "__code__", None)) is not None:
        held = [value.__defaults__, value.__kwdefaults__, [_constant(cell) for cell in value.__closure__ or ()]]
        return [value.__module__, value.__qualname__, _parts(code), *(_as_data(one, above) for one in held)]
    if isinstance(value, dspy.Example):
        return _as_data(value.toDict(), above)
    if isinstance(value, type) and issubclass(value, dspy.Signature):
        return [value.signature, value.dump_state(), dspy.ChatAdapter().format_field_structure(value)]
    if isinstance(value, type) or inspect.isbuiltin(value):
        return [getattr(value, name, class_of(value)) for name in ("__module__", "__qualname__")]
    if isinstance(value, ModuleType | logging.Logger):
        return getattr(value, "__name__", None) or value.name
    return _object(value, above)


def _object(value: Any, above: tuple[int, ...]) -> list[Any]:
    """An object as plain data: its class, how it is called, its public attributes, what it was made with, its content.

    Its private attributes do not count, as they may be what it remembers; but see `content_of`.
    """
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = getattr(value, "__dict__", None) or {name: getattr(value, name, None) for name in slots}
    held = {name: one for name, one in held.items() if not is_computed(value, name)}
    public = {name: one for name, one in held.items() if not name.startswith("_") or name == "__wrapped__"}
    kinds = [type(value), *filter(is_own, type(value).__mro__)]  # how a library's are called changes with its version
    called = next((vars(kind)["__call__"] for kind in kinds if "__call__" in vars(kind)), None)
    told = [class_of(value), _as_data(called, above), _as_data(public, above)]
    hidden = {name: one for name, one in made_with(value).items() if name not in public}
    whole = held and held.keys() == public.keys() and "this" not in held  # where SWIG has an address, such as faiss's
    content = None if whole else content_of(value, above)
    return [*told, *([hidden] if hidden else []), *([content] if content else [])]


def is_computed(value: Any, name: str) -> bool:
    """Whether an attribute is there only once it has been asked for, and follows from the others."""
    held = next((vars(kind)[name] for kind in type(value).__mro__ if name in vars(kind)), None)
    return isinstance(held, functools.cached_property)


def content_of(value: Any, above: tuple[int, ...] = ()) -> Any:
    """What a table, a network or an estimator consists of, which no public attribute tells; None where that is unknown.

    Of a network that is its weights. Others are known where a library's class tells what it is pickled by, which
    clients do not. Plain numbers in its state are left out: they may be counts or addresses.
    """
    if (plain := _plain(value)) is not None:
        return plain
    try:
        if callable(getattr(type(value), "state_dict", None)):
            return [_nowhere(str(value)), _as_data(value.state_dict(), above)]
        if (parts := _columns(value) or _graph(value)) is not None:
            return [json_or_data(one, above) for one in parts]
        if _passes(value) or isinstance(value, deque) or _is_tensor(value) or not _tells_itself(type(value)):
            return None
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):  # a name
            return None
        _, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        if isinstance(state, Mapping | list | tuple):
            named = state.items() if isinstance(state, Mapping) else enumerate(state)
            kept = [(name, one) for name, one in named if not isinstance(one, int | float | np.number)]
            state = [part for name, one in kept if name != "__pydantic_private__" for part in (name, one)]
        return [json_or_data(one, above) for one in (arguments, state, list(items or ()), list(pairs or ()))]
    except Exception:  # there is a lock in it, say; what a stranger's class raises may be anything
        return None


def _passes(value: Any) -> bool:
    """Whether each use of a value changes it: an iterator, a random generator."""
    drawn = random.Random | np.random.Generator | np.random.RandomState | np.random.BitGenerator
    torch = sys.modules.get("torch")
    return hasattr(type(value), "__next__") or isinstance(value, (drawn, torch.Generator) if torch else drawn)


def _tells_itself(kind: type[Any]) -> bool:
    """Whether a library's class tells what is pickled of it; the user's may tell what she counts."""
    ways = {"__reduce__", "__reduce_ex__", "__getstate__"}
    telling_it = next(one for one in kind.__mro__ if ways & vars(one).keys())
    return telling_it is not object and not is_own(telling_it)


def _columns(value: Any) -> list[Any] | None:
    """The labels and columns of a table of pandas', which lie in memory otherwise once it has been read from."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(value, pandas.DataFrame | pandas.Series | pandas.Index):
        return None
    columns = list(value.items()) if isinstance(value, pandas.DataFrame) else [(value.name, value)]
    columns += [] if isinstance(value, pandas.Index) else [(value.index.names, value.index)]
    held = [(name, np.asarray(column)) for name, column in columns]
    return [part for name, one in held for part in (name, one.tolist() if one.dtype.hasobject else one)]


def _graph(value: Any) -> list[Any] | None:
    """The nodes and edges of a graph of networkx's, with their attributes."""
    networkx = sys.modules.get("networkx")
    if networkx is None or not isinstance(value, networkx.Graph):
        return None
    keys = {"keys": True} if value.is_multigraph() else {}
    return [list(value.nodes(data=True)), list(value.edges(data=True, **keys))]


def _plain(value: Any) -> str | None:
    """What a value of a type that is no container comes to; None for one of another type."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, np.ndarray):
        held = _nowhere(repr(value.tolist())).encode() if value.dtype.hasobject else value.tobytes()
        return f"{value.dtype} {value.shape} {hashlib.sha256(held).hexdigest()}"
    if isinstance(value, re.Pattern):  # whose representation is cut
        return f"{value.pattern!r} {value.flags}"
    if isinstance(value, enum.Enum):
        return value.name
    return repr(value) if isinstance(value, _SHOWN) else _tensor(value)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _tensor(value: Any) -> str | None:
    """A hash of a tensor's numbers; None for what is none, or has no numbers at hand."""
    if not _is_tensor(value):
        return None
    import torch

    try:
        plain = value.detach().cpu().to_dense().resolve_conj().resolve_neg().contiguous()
        numbers = plain.reshape(-1).view(torch.uint8).numpy()
    except (RuntimeError, NotImplementedError, TypeError):  # it is on no device, say
        return None
    return f"{value.dtype} {tuple(value.shape)} {hashlib.sha256(numbers).hexdigest()}"


def _constant(cell: Any) -> Any:
    """The value in a closure's cell; of a list, dict or set, which may change with each call, its class."""
    try:
        held = cell.cell_contents
    except ValueError:  # not filled yet
        return None
    return class_of(held) if isinstance(held, list | dict | set) else held


def _parts(code: Any) -> list[Any]:
    """What a code object does, functions inside it included, without its file names and line numbers."""
    constants = [_parts(one) if hasattr(one, "co_code") else _shown(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]


def _shown(constant: Any) -> str:
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)  # sets have no order


def digest(value: Any) -> str:
    """Sixteen hex digits of the SHA-256 of a JSON-able value: short enough to read aloud."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=_text)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]  # a path may be no UTF-8


def _text(value: Any) -> str:
    return _nowhere(str(value))


def _nowhere(text: str) -> str:
    """A representation without the addresses of objects."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def weights_of(lm: Any) -> str:
    """Which model an LM is: its model string, without the folder where a local one's weights happen to lie."""
    return lm.weights if isinstance(lm, LocalLM) else lm.model


def settings_of(lm: dspy.BaseLM) -> dict[str, Any]:
    """The settings of an LM that its answers depend on: where they are drawn, the number that asks for others too."""
    given = {name: value for name, value in getattr(lm, "kwargs", {}).items() if value is not None}
    none = NO_SETTING | {"rollout_id"} if given.get("temperature") == 0 else NO_SETTING
    return {name: value for name, value in given.items() if name not in none}


def asked_as(lm: dspy.BaseLM) -> str:
    """Which model an LM is, and by a hash with what settings it is asked; in which format is not told."""
    settings = settings_of(lm)
    return " ".join([weights_of(lm), *([digest(settings)] if settings else [])])
