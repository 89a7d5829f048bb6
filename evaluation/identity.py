"""What a program and a test set ARE, in a form that can be hashed: records belong to one pair of them only."""

import enum
import functools
import hashlib
import inspect
import json
import re
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any

import dspy
import numpy as np
from dspy.predict.parameter import Parameter

from raisf.lm.chat import scored_labels
from raisf.lm.connect import adapter_for
from raisf.lm.endpoint import EndpointLM
from raisf.lm.local.model import LocalLM
from raisf.retrieval.adapting import searched
from raisf.retrieval.passage import found_by
from raisf.utils.predictors import all_predictors

# What an LM is told that changes none of its answers, or must not be written down.
_NO_SETTING = frozenset({
    *("api_key", "api_base", "base_url", "url", "api_version", "headers", "extra_headers", "default_headers"),
    "organization",
    *("timeout", "num_retries", "max_retries", "cache", "rollout_id", "user", "metadata", "stream", "model_list"),
    *("azure_ad_token", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "vertex_credentials"),
})  # fmt: skip
# How far values are looked into.
_DEEPEST = 8
# Of a module: what it, or who compiled it, keeps.
_KEPT = frozenset({
    *("callbacks", "history", "compile_report", "learnt_from", "candidate_programs", "detailed_results", "trial_logs"),
})  # fmt: skip


def describe(program: dspy.Module) -> dict[str, Any]:
    """Everything but its code that can change a program's answers, JSON-able and without secrets.

    That is its class, its options (k, max_depth, ...; for functions and objects see `code_of`), what it searches
    (`raisf.retrieval.passage.found_by`), the same of each module in it, and for each predictor the LM it asks, the
    adapter, its own settings of a call, and a hash of its instructions, fields and demonstrations. An endpoint's
    address is left out: the same model may be served elsewhere when a run resumes. Texts are hashes, too, but for the
    options of our own programs: any other may be a key.
    """
    described = {"class": _class_of(program), **_describe_module(program)}
    if getattr(program, "retriever", None) is None and (taken := searched(program)) is not None:
        described["retriever"] = _searched_by(taken)
    for path, module in program.named_sub_modules():
        if module is program or isinstance(module, dspy.Predict):
            continue
        told = _describe_module(module)
        if not _is_dspys(module):  # of DSPy's own the predictors' names tell the class
            told["class"] = _class_of(module)
        described |= {f"{path.removeprefix('self.')}.{name}": value for name, value in told.items()}
    for name, predictor in all_predictors(program):
        # Not predictor.dump_state(): that asks the LM for its state, which one with an engine of its own may not have.
        signature: Any = predictor.signature
        demos = [dict(demo) for demo in predictor.demos]
        decides = {"fields": predictor.fields} if predictor.fields else {}  # what a field's value is decided by
        if not _is_dspys(predictor):
            decides["class"] = _class_of(predictor)
        if any(field.annotation is not str for field in signature.fields.values()):  # its state leaves types out
            decides["types"] = dspy.ChatAdapter().format_field_structure(signature)
        described[f"predictor {name}"] = digest({"signature": signature.dump_state(), "demos": demos, **decides})
        described[f"LM of {name}"] = describe_lm(predictor.lm or dspy.settings.lm, signature)
        if predictor.config:
            described[f"settings of {name}"] = digest(predictor.config)
    return described


def _is_dspys(one: Any) -> bool:
    return type(one).__module__.startswith("dspy.")


def _class_of(module: Any) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _describe_module(module: Any) -> dict[str, Any]:
    """A module's own plain options and what it searches."""
    described: dict[str, Any] = {}
    if _is_dspys(module) and "<locals>" in _class_of(module):  # what an optimizer made, such as an ensemble
        described["forward"] = digest(code_of(vars(type(module)).get("forward")))
    ours = _own_options(module)
    private = {f"_{name}" for name in _taken(type(module))}  # what else is private may change while it runs
    # Options that came later do not make another program of one that leaves them alone.
    unchanged: set[str] = getattr(module, "unchanged", set)()
    for name, value in sorted(vars(module).items()):
        passing = name == "stage" and isinstance(module, dspy.Predict)  # drawn anew for each Predict
        hidden = name.startswith("_") and not (name in private and isinstance(value, str | bool | int | float))
        if passing or hidden or name in unchanged:
            continue
        if isinstance(value, str):
            described[name] = value if name in ours else digest(value)
        elif value is None or isinstance(value, bool | int | float):
            described[name] = value
        elif hasattr(value, "corpus_hash"):
            described[name] = _searched_by(value)
        elif name not in _KEPT and not isinstance(value, dspy.Module | Parameter):
            described[name] = digest(_json_or_data(value))
    return described


def _taken(kind: type[Any]) -> set[str]:
    """The parameters of the constructors of a class and its bases, without those that change no answer."""
    made = (vars(one).get("__init__") for one in kind.__mro__ if not one.__module__.startswith(("dspy.", "builtins")))
    return {name for one in made if inspect.isfunction(one) for name in inspect.signature(one).parameters} - _NO_SETTING


def _given(made: Any) -> dict[str, Any]:
    """What an object was made with, as far as it keeps that as plain attributes of the same names."""
    kept = getattr(made, "__dict__", {})
    held = {name: kept.get(name, kept.get(f"_{name}")) for name in _taken(type(made))}
    return {name: one for name, one in held.items() if isinstance(one, str | bool | int | float)}


def _searched_by(retriever: Any) -> str:
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


def _own_options(module: Any) -> set[str]:
    """The attributes that are options of this project's classes, also where a subclass is the user's."""
    kinds = [kind for kind in type(module).__mro__ if kind.__module__.startswith("raisf.")]
    names = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    return names | {attribute for kind in kinds for attribute in vars(kind).get("stored", {}).values()}


def _json_or_data(value: Any) -> Any:
    try:
        return json.dumps(sorted(value) if isinstance(value, set | frozenset) else value, sort_keys=True)
    except (TypeError, ValueError):
        return _as_data(value, ())


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
    if isinstance(value, dspy.Module | Parameter):  # described where it stands in a program
        return _class_of(value)
    if isinstance(value, dspy.BaseLM):
        return weights_of(value)
    if id(value) in above or len(above) > _DEEPEST:
        return _class_of(value)
    above = (*above, id(value))
    if isinstance(value, list | tuple):
        return [_as_data(one, above) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(repr(_as_data(one, above)) for one in value)
    if isinstance(value, Mapping):
        return [[_as_data(key, above), _as_data(one, above)] for key, one in value.items()]
    if isinstance(value, functools.partial):
        return ["partial", *(_as_data(one, above) for one in (value.func, value.args, value.keywords))]
    if hasattr(value, "corpus_hash"):
        return _searched_by(value)
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
        return [getattr(value, name, _class_of(value)) for name in ("__module__", "__qualname__")]
    if (plain := _plain(value)) is not None:
        return [_class_of(value), plain]
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    held = getattr(value, "__dict__", None) or {name: getattr(value, name, None) for name in slots}
    public = {name: one for name, one in held.items() if not name.startswith("_")}
    called = vars(type(value)).get("__call__")
    hidden = {name: one for name, one in _given(value).items() if name not in public}
    told = [_class_of(value), _as_data(called, above), _as_data(public, above)]
    return [*told, hidden] if hidden else told


def _plain(value: Any) -> str | None:
    """What a value of a type that is no container comes to; None for one of another type."""
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, np.ndarray):
        held = repr(value.tolist()).encode() if value.dtype.hasobject else value.tobytes()
        return f"{value.dtype} {value.shape} {hashlib.sha256(held).hexdigest()}"
    if isinstance(value, re.Pattern):  # whose representation is cut
        return f"{value.pattern!r} {value.flags}"
    if isinstance(value, enum.Enum):
        return value.name
    known = (PurePath, Decimal, Fraction, range, complex, date, time, timedelta)
    return repr(value) if isinstance(value, known) else None


def _constant(cell: Any) -> Any:
    """The value in a closure's cell; of a list, dict or set, which may change with each call, its class."""
    try:
        held = cell.cell_contents
    except ValueError:  # not filled yet
        return None
    return _class_of(held) if isinstance(held, list | dict | set) else held


def _parts(code: Any) -> list[Any]:
    """What a code object does, functions inside it included, without its file names and line numbers."""
    constants = [_parts(one) if hasattr(one, "co_code") else _shown(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]


def _shown(constant: Any) -> str:
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)  # sets have no order


def digest(value: Any) -> str:
    """Sixteen hex digits of the SHA-256 of a JSON-able value: short enough to read aloud."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def weights_of(lm: Any) -> str:
    """Which model an LM is: its model string, without the folder where a local one's weights happen to lie."""
    return lm.weights if isinstance(lm, LocalLM) else lm.model


def describe_lm(lm: Any, signature: Any = None) -> str | None:
    """Which model an LM is, and with what settings it is asked; with a signature, also in what way by that."""
    if lm is None:
        return None
    adapter = adapter_for(lm)
    settings = {name: lm.kwargs.get(name) for name in ("temperature", "max_tokens", "top_p", "seed")}
    known = type(adapter).__module__.startswith(("raisf.", "dspy."))  # a text of anybody else's may be a key
    told = {name: value for name, value in vars(adapter).items() if isinstance(value, bool | str)}
    settings |= {name: value if known or isinstance(value, bool) else digest(value) for name, value in told.items()}
    settings |= {name: value.model for name, value in vars(adapter).items() if isinstance(value, dspy.LM)}
    settings |= {"model_type": kind} if (kind := getattr(lm, "model_type", "chat")) != "chat" else {}
    given = (f"{name}={value!r}" for name, value in settings.items() if value is not None)
    others = {name: value for name, value in lm.kwargs.items() if name not in settings and name not in _NO_SETTING}
    # By their hashes: a key may stand under any name.
    also = (f"{name}={digest(value)}" for name, value in sorted(others.items()) if value is not None)
    words = [weights_of(lm), type(adapter).__name__, *given, *also]
    for one in (lm, engine_of(lm)):
        if not type(one).__module__.startswith(("dspy.", "raisf.", "builtins")):
            words += [_class_of(one), digest(_given(one))]
    if isinstance(lm, EndpointLM):  # a verdict of one token is asked for in other words, and cut by a threshold
        words += ["completions"] * lm.endpoint.completions
        words += ["probabilities"] * (
            signature is not None and lm.endpoint.scoring is not None and scored_labels(signature) is not None
        )
    return " ".join(words)


def engine_of(lm: Any) -> Any:
    """What a `dspy.LM(engine=...)` runs, which is how an LM of one's own is made; of any other LM None."""
    return lm.engine if isinstance(lm, dspy.LM) else None
