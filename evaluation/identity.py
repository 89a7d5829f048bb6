"""What a program and a test set ARE, in a form that can be hashed: records belong to one pair of them only."""

import inspect
import re
from contextvars import ContextVar
from typing import Any

import dspy
from dspy.predict.parameter import Parameter
from dspy.utils.callback import BaseCallback

from raisf.evaluation.values import (
    asked_as,
    class_of,
    code_of,
    digest,
    is_computed,
    json_or_data,
    made_with,
    searched_by,
    settings_of,
    taken,
    telling,
    weights_of,
)
from raisf.lm.chat import scored_labels
from raisf.lm.connect import adapter_for
from raisf.lm.endpoint import EndpointLM
from raisf.retrieval.adapting import searched
from raisf.utils.predictors import all_predictors

# What optimizers hang on a module; where a class of the user's takes an option of that name, it is hers.
HUNG = frozenset({"compile_report", "learnt_from", "candidate_programs", "detailed_results", "trial_logs"})
_GROWING = list | dict | set
# The adapters that are being told.
_adapters: ContextVar[frozenset[int]] = ContextVar("adapters", default=frozenset())


def describe(program: dspy.Module) -> dict[str, Any]:
    """Everything but its code that can change a program's answers, JSON-able and without secrets.

    That is its class, its options (k, max_depth, ...; for functions and objects see `code_of`), what it searches
    (`raisf.retrieval.passage.found_by`), the same of each module in it, and for each predictor the LM it asks, the
    adapter, its own settings of a call, and a hash of its instructions, fields and demonstrations. An endpoint's
    address is left out: the same model may be served elsewhere when a run resumes. Texts are hashes, too, but for the
    options of our own programs: any other may be a key.
    """
    return _describe(program, set())


def _describe(part: Any, told: set[int]) -> dict[str, Any]:
    """See `describe`.

    Args:
        part: A module, or a parameter of DSPy's that is none, such as a `dspy.Retrieve`.
        told: The ids of what is described elsewhere, or was before: each is once. It grows.
    """
    predictors = all_predictors(part) if isinstance(part, dspy.Module) else []
    modules = list(part.named_sub_modules()) if isinstance(part, dspy.Module) else []
    ours = [one for path, one in modules if not isinstance(one, dspy.Predict) or is_hung(path)]
    told |= {id(one) for one in (part, *ours, *(one for _, one in predictors))}
    # Others stand in an object that is no module, say.
    token = telling.set(lambda one: class_of(one) if id(one) in told else _describe(one, told))
    try:
        described = {"class": class_of(part), **_describe_module(part, told)}
        if isinstance(part, dspy.Module):
            described |= _describe_parts(part, modules, told) | _describe_predictors(part, predictors, told)
    finally:
        telling.reset(token)
    return described


def is_hung(path: str) -> bool:
    """Whether a module of this path is what an optimizer tried."""
    return not HUNG.isdisjoint(re.split(r"[.\[]", path))


def _describe_parts(program: dspy.Module, modules: list[tuple[str, Any]], told: set[int]) -> dict[str, Any]:
    """What a program searches, and what the modules in it are, without its predictors."""
    described = dict[str, Any]()
    if getattr(program, "retriever", None) is None and (retriever := searched(program)) is not None:
        described["retriever"] = searched_by(retriever)
    for path, module in modules:
        if module is program or isinstance(module, dspy.Predict):
            continue
        options = _describe_module(module, told)
        if not _is_dspys(module):  # of DSPy's own the predictors' names tell the class
            options["class"] = class_of(module)
        described |= {f"{path.removeprefix('self.')}.{name}": value for name, value in options.items()}
    return described


def _describe_predictors(program: Any, predictors: list[tuple[str, dspy.Predict]], told: set[int]) -> Any:
    """What the predictors of a program are."""
    described = dict[str, Any]()
    for name, predictor in predictors:
        # Not predictor.dump_state(): that asks the LM for its state, which one with an engine of its own may not have.
        signature: Any = predictor.signature
        demos = [dict(demo) for demo in predictor.demos]
        decides = {"fields": predictor.fields} if predictor.fields else {}  # what a field's value is decided by
        if not _is_dspys(predictor):
            decides["class"] = class_of(predictor)
            options = {} if predictor is program else _describe_module(predictor, told)
            made_of = taken(type(predictor)) - {"signature", "config"}  # of others nobody knows whether they are counts
            named = options.keys() & (made_of | {f"_{one}" for one in made_of})
            described |= {f"{name}.{option}": options[option] for option in named}
        if any(field.annotation is not str for field in signature.fields.values()):  # its state leaves types out
            decides["types"] = dspy.ChatAdapter().format_field_structure(signature)
        described[f"predictor {name}"] = digest({"signature": signature.dump_state(), "demos": demos, **decides})
        described[f"LM of {name}"] = describe_lm(predictor.lm or dspy.settings.lm, signature)
        if predictor.config:
            described[f"settings of {name}"] = digest(predictor.config)
    return described


def _is_dspys(one: Any) -> bool:
    return type(one).__module__.startswith("dspy.")


def _describe_module(module: Any, told: set[int]) -> dict[str, Any]:
    """A module's own options and what it searches; an adapter's."""
    described: dict[str, Any] = {}
    if _is_dspys(module) and "<locals>" in class_of(module):  # what an optimizer made, such as an ensemble
        described["forward"] = digest(code_of(vars(type(module)).get("forward")))
    ours = _own_options(module)
    options = taken(type(module))
    private = {f"_{name}" for name in options}  # what else is private may change while it runs
    # Options that came later do not make another program of one that leaves them alone.
    unchanged: set[str] = getattr(module, "unchanged", set)()
    for name, value in sorted(vars(module).items()):
        passing = name == "stage" and isinstance(module, dspy.Predict | dspy.Retrieve)  # drawn anew for each of them
        passing |= is_computed(module, name)
        hidden = name.startswith("_") and not (name in private and isinstance(value, str | bool | int | float))
        if isinstance(value, list) and name not in options:
            passing |= name == "history"  # of its own runs
            if name == "callbacks":
                value = [one for one in value if not isinstance(one, BaseCallback)]
                passing = not value
        # A cache of a retriever's or an adapter's own, or what it has met.
        passing |= not isinstance(module, dspy.Module) and name not in options and isinstance(value, _GROWING)
        if passing or hidden or name in unchanged:
            continue
        if isinstance(value, str):
            described[name] = value if name in ours else digest(value)
        elif value is None or isinstance(value, bool | int | float):
            described[name] = value
        elif hasattr(value, "corpus_hash"):
            described[name] = searched_by(value)
        elif isinstance(value, dspy.Module | Parameter):
            parts = {} if id(value) in told else _describe(value, told)
            described |= {f"{name}.{option}": one for option, one in parts.items()}
        elif name not in HUNG - options:
            described[name] = digest(json_or_data(value))
    return described


def _own_options(module: Any) -> set[str]:
    """The attributes that are options of this project's classes, also where a subclass is the user's."""
    kinds = [kind for kind in type(module).__mro__ if kind.__module__.startswith("raisf.")]
    names = {name for kind in kinds for name in inspect.signature(kind.__init__).parameters}
    return names | {attribute for kind in kinds for attribute in vars(kind).get("stored", {}).values()}


def describe_lm(lm: Any, signature: Any = None) -> str | None:
    """Which model an LM is, and with what settings it is asked; with a signature, also in what way by that."""
    if lm is None:
        return None
    adapter = adapter_for(lm)
    settings = {name: lm.kwargs.get(name) for name in ("temperature", "max_tokens", "top_p", "seed")}
    known = type(adapter).__module__.startswith(("raisf.", "dspy."))  # a text of anybody else's may be a key
    told = {name: value for name, value in vars(adapter).items() if isinstance(value, bool | str)}
    settings |= {name: value if known or isinstance(value, bool) else digest(value) for name, value in told.items()}
    settings |= {name: asked_as(value) for name, value in vars(adapter).items() if isinstance(value, dspy.BaseLM)}
    if not known and id(adapter) not in (above := _adapters.get()):  # what it has beside what DSPy's have
        token = _adapters.set(above | {id(adapter)})  # a module in it may be asked by it
        try:
            options = _describe_module(adapter, set())
        finally:
            _adapters.reset(token)
        names = sorted(options.keys() - settings.keys() - vars(dspy.ChatAdapter()).keys())
        settings |= {name: options[name] for name in names}
    settings |= {"model_type": kind} if (kind := getattr(lm, "model_type", "chat")) != "chat" else {}
    given = (f"{name}={value!r}" for name, value in settings.items() if value is not None)
    others = {name: value for name, value in settings_of(lm).items() if name not in settings}
    # By their hashes: a key may stand under any name.
    also = (f"{name}={digest(value)}" for name, value in sorted(others.items()))
    words = [weights_of(lm), type(adapter).__name__, *given, *also]
    for one in (lm, engine_of(lm)):
        if not type(one).__module__.startswith(("dspy.", "raisf.", "builtins")):
            words += [class_of(one), digest(made_with(one))]
    if isinstance(lm, EndpointLM):  # a verdict of one token is asked for in other words, and cut by a threshold
        words += ["completions"] * lm.endpoint.completions
        words += ["probabilities"] * (
            signature is not None and lm.endpoint.scoring is not None and scored_labels(signature) is not None
        )
    return " ".join(words)


def engine_of(lm: Any) -> Any:
    """What a `dspy.LM(engine=...)` runs, which is how an LM of one's own is made; of any other LM None."""
    return lm.engine if isinstance(lm, dspy.LM) else None
