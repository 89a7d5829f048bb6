"""What an artifact says of the LMs that a program asks, and how they are opened again."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
from pydantic import ValidationError

from raisf.lm.adapter import adapter_named
from raisf.lm.connect import connect
from raisf.lm.endpoint import EndpointLM, told_base
from raisf.lm.failures import base_of
from raisf.lm.local.model import LocalLM
from raisf.lm.local.weights import PREFIX
from raisf.optimize.adapters import base_from, base_kept, open_weights
from raisf.optimize.manifest import MANIFEST, KeptLM, Manifest, Sampling, damaged
from raisf.optimize.served import served_lms
from raisf.programs.state import may_name
from raisf.utils.errors import InputError
from raisf.utils.predictors import all_predictors
from raisf.utils.urls import without_secrets

logger = logging.getLogger(__name__)

OPTIONS = ("temperature", "max_tokens", "max_completion_tokens")  # the last is the second, of a model that reasons


def warn_of_lms(program: dspy.Module, folder: Path) -> None:
    """Warns of LMs and adapters that an artifact cannot keep: once loaded, those of DSPy's settings would be asked."""
    lost, unformatted = {}, list[str]()
    for name, predictor in all_predictors(program):
        lm = predictor.lm or dspy.settings.lm
        if lm is not None and _as_kept(lm) is None:
            lost[name] = getattr(lm, "model", repr(lm))
        elif lm is not None and getattr(lm, "adapter", None) is None:
            unformatted.append(name)
    if lost:
        logger.warning(
            "the artifact %s does not keep the LM %s of %s, or its adapter, which raisf.connect does not make: "
            "give it again, raisf.load(..., lm=...)",
            folder,
            ", ".join(sorted(set(lost.values()))),
            ", ".join(lost),
        )

    told = dspy.settings.adapter
    if unformatted and told is not None and type(told) is not dspy.ChatAdapter:
        logger.warning(
            "the artifact %s does not keep DSPy's adapter, %s, in which %s speak: configure it again "
            "(dspy.configure(adapter=...)), or give connect(..., adapter=...) before you compile",
            folder,
            type(told).__name__,
            ", ".join(unformatted),
        )


def describe_lms(program: dspy.Module, folder: Path) -> list[dict[str, Any]]:
    """What `raisf.optimize.manifest.KeptLM` says of each LM; one that cannot be opened as it is, is left out."""
    found: list[dict[str, Any]] = []
    for name, predictor in all_predictors(program):
        kept = _as_kept(predictor.lm or dspy.settings.lm)
        if kept is None:
            continue
        base, where = base_kept(kept["connect"]["spec"], folder)
        kept = {**kept, "connect": {**kept["connect"], "spec": base}, **where}
        same = next((known for known in found if {**known, "predictors": []} == {**kept, "predictors": []}), None)
        if same is not None:
            same["predictors"].append(name)
        else:
            found.append({**kept, "predictors": [name]})
    return found


def _as_kept(lm: Any) -> dict[str, Any] | None:
    """How `connect` opens an LM, and what it is told then; None if that would be another LM."""
    told = {name: value for name, value in getattr(lm, "kwargs", {}).items() if value is not None}
    strange = told.keys() - {*OPTIONS, *Sampling.model_fields, "api_base", "api_key"}
    if type(lm) not in (dspy.LM, EndpointLM, LocalLM) or strange or (type(lm) is dspy.LM and _asked_otherwise(lm)):
        return None
    adapter = getattr(lm, "adapter", None)
    name = next((n for n in ("chat", "compact", "pocket") if adapter and _same(adapter, adapter_named(n))), None)
    if adapter is not None and name is None:
        return None
    url = base_of(lm)
    given = {
        "spec": lm.base if isinstance(lm, LocalLM) else lm.model,
        "adapter": name,
        "api_base": url and without_secrets(url),
    }
    given |= {name.replace("completion_", ""): told[name] for name in OPTIONS if name in told}
    given |= lm.endpoint.chosen() if isinstance(lm, EndpointLM) else {}
    settings = {name: value for name, value in told.items() if name in Sampling.model_fields and name not in OPTIONS}
    if "max_completion_tokens" not in lm.kwargs:  # where there is one, `connect` leaves both out itself
        settings |= {name: None for name in ("temperature", "max_tokens") if name not in told}
    settings |= {} if lm.cache else {"cache": False}
    try:
        Sampling.model_validate(settings)
    except ValidationError:
        return None
    connect = {option: value for option, value in given.items() if value is not None}
    return {"connect": connect, "settings": settings} if settings else {"connect": connect}


def _asked_otherwise(lm: dspy.LM) -> bool:
    """Whether DSPy asks its model in a way that `connect` does not."""
    engine = getattr(lm, "_engine_spec", "auto")  # DSPy tells it nowhere else without making a client of it
    return lm.model_type != "chat" or lm.use_developer_role or not isinstance(engine, str)


def _same(adapter: dspy.Adapter, known: dspy.Adapter) -> bool:
    return type(adapter) is type(known) and vars(adapter) == vars(known)


def set_lms(
    program: dspy.Module, folder: Path, manifest: Manifest, given: dspy.LM | None, api_base: str | None
) -> None:
    """Gives the predictors of an opened program the LMs of its artifact, or the caller's; see `artifact.load`.

    Raises:
        InputError: One is gone or another, or one that the caller has to name; or the artifact is damaged.
    """
    predictors, weights = dict(all_predictors(program)), manifest.weights
    listed = {name for entry in manifest.lms for name in entry.predictors}
    if strangers := sorted((listed | weights.keys()) - predictors.keys()):
        raise damaged(folder, f"lms in {MANIFEST}: {manifest.program} has no predictor {strangers[0]!r}")
    if given is not None:
        program.set_lm(given)
        for predictor in predictors.values():  # also those that DSPy leaves frozen
            predictor.lm = given
    for name in sorted(weights.keys() - listed):
        predictors[name].lm = _with_given(folder, name, manifest, given)
    local = bool(manifest.lms) and all(entry.connect.spec.startswith(PREFIX) for entry in manifest.lms)
    if api_base and local and given is None:
        for name, lm in served_lms(folder, manifest, api_base).items():
            predictors[name].lm = lm
        return
    base = given if isinstance(given, LocalLM) else None
    for entry in manifest.lms:
        for name in [name for name in entry.predictors if name in weights]:
            predictors[name].lm = open_weights(folder, name, weights, _opener(entry), base)
        others = [name for name in entry.predictors if name not in weights]
        if given is None and others:
            lm = _open_lm(folder, entry, api_base)
            for name in others:
                predictors[name].lm = lm


def asks(lm: Any, given: Any) -> bool:
    """Whether an LM is the one that was given, or has weights of its own on it."""
    return lm is given or getattr(lm, "base", None) == getattr(given, "base", given)


def _with_given(folder: Path, name: str, manifest: Manifest, given: Any) -> LocalLM:
    """The weights of a predictor whose LM could not be kept, asked as the caller's LM is."""
    if not isinstance(given, LocalLM):
        raise InputError(
            f"the artifact {folder} has weights of {name!r}, and could not keep the LM that is asked with them: give "
            "one like it, a model in the process with the same adapter (lm=)"
        )

    def open_alike(spec: str) -> dspy.LM:
        return connect(spec, adapter=given.adapter_name)

    lm = open_weights(folder, name, manifest.weights, open_alike, given)
    lm.adapter = given.adapter
    return lm


def _opener(entry: KeptLM, api_base: str | None = None) -> Callable[[str], dspy.LM]:
    """Opens an LM as it was, by the spec that it has here."""
    return lambda spec: entry.settings.told(connect(spec, api_base, **entry.options))


def _open_lm(folder: Path, entry: KeptLM, api_base: str | None) -> dspy.LM:
    spec, was = entry.connect.spec, entry.connect.api_base
    provider, _, _ = spec.partition("/")
    if spec.startswith(PREFIX):
        return _opener(entry)(base_from(spec, entry.relative, folder))
    api_base = api_base or told_base(provider)
    if was is not None and api_base is None:
        raise InputError(
            f"the artifact {folder} was compiled with {spec} at an endpoint, {was}, which it cannot open by itself: "
            "give --api-base URL (api_base=), or another LM with --lm (lm=)"
        )
    if not may_name(spec) and api_base is None:
        raise InputError(
            f"the artifact {folder} was compiled with {spec}, and a saved program may not choose the provider "
            f"{provider!r}: if you want to send it your questions, give --lm {spec} (lm=)"
        )
    if not may_name(spec):
        raise InputError(
            f"the artifact {folder} was compiled with {spec}: to ask it at {api_base}, give --lm {spec} too"
        )
    return _opener(entry, api_base)(spec)
