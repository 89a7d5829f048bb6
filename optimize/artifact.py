"""Keeping a compiled program: a folder that another process, folder or user can load. No pickle, no code."""

import copy
import importlib.metadata
import logging
import os
import platform
from pathlib import Path
from typing import Any

import dspy

from raisf.lm.adapter import adapter_named
from raisf.lm.connect import base_of, connect, without_secrets
from raisf.lm.endpoint import EndpointLM
from raisf.lm.local.model import PREFIX, LocalLM
from raisf.optimize.adapters import ADAPTERS, README, base_from, base_kept, open_weights, save_weights, trained_folder
from raisf.optimize.foreign import (
    is_foreign,
    made_by_caller,
    name_of,
    options_of,
    parts_of,
    retriever_of,
    set_options,
)
from raisf.optimize.judges.reliability import PLOT, save_reliability
from raisf.optimize.manifest import MANIFEST, STATE, KeptIndex, KeptLM, Manifest, damaged, format_of, read
from raisf.optimize.served import served_lms
from raisf.optimize.shipped import PROGRAMS as SHIPPED_PROGRAMS
from raisf.optimize.shipped import shipped_folder
from raisf.optimize.within import programs_within
from raisf.programs.changing import with_options
from raisf.programs.program import Program
from raisf.programs.registry import build, check_predictors, options, program_named
from raisf.programs.state import harmless, may_name
from raisf.retrieval.index import open_folder, open_index
from raisf.retrieval.passage import Retriever
from raisf.retrieval.store.manifest import read_manifest
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, read_json, relative_path, sha256_file, write_json

logger = logging.getLogger(__name__)

ARTIFACT = (MANIFEST, STATE, ADAPTERS, README, PLOT)
"""All that lies in an artifact's folder."""
OPTIONS = ("temperature", "max_tokens", "max_completion_tokens")  # the last is the second, of a model that reasons
LIBRARIES = ("dspy", "pydantic", "torch", "transformers")


def save(program: dspy.Module, folder: Path | str) -> None:
    """Writes a program: what it is (manifest.json), its demonstrations and instructions (program.json), its weights.

    Weights that were trained for its predictors go into adapters/; a README.md says how to serve them elsewhere. Where
    its judges were calibrated, reliability.png shows what came of it; the points are in manifest.json.
    Language models are kept as the spec that `raisf.lm.connect` opens, never with keys or what follows the `?` of a
    URL; the index as its path and hashes. Folders are found again from anywhere, also where they are moved with the
    artifact. An LM that `raisf.lm.connect` does not make is not kept, which is logged as a warning: give it again to
    `load`. What stood at `folder` before stays whole until the new artifact is.

    Args:
        program: One of `raisf.programs.registry.PROGRAMS`, or a module of the user's own, whose class the artifact
            names and never imports: `load` is given it.
        folder: A new folder, or an artifact to replace.

    Raises:
        InputError: What is no dspy.Module, `folder` holds other things, or a program of the registry has a predictor
            of another kind than its options ask for: `load` would make the one that they ask for.
    """
    folder = Path(folder)
    if not isinstance(program, dspy.Module):
        raise InputError(f"a program is a dspy.Module, found a {type(program).__name__}")
    name = name_of(program)
    if isinstance(program, Program) and not is_foreign(name):
        check_predictors(program)
    _warn_of_lms(program, folder)
    with atomic_folder(folder, *ARTIFACT) as made:
        write_json(made / STATE, _state(program))
        weights = save_weights(program, made, folder)
        manifest = {
            "format": format_of(weights),
            "program": name,
            **_options(program, name),
            "state_sha256": sha256_file(made / STATE),
            "lms": _lms(program, folder),
            "weights": weights,
            "index": _index(retriever_of(program), folder),
            "versions": {"python": platform.python_version()}
            | {library: importlib.metadata.version(library) for library in LIBRARIES},
            "compile": getattr(program, "compile_report", None),
        }
        write_json(made / MANIFEST, manifest)
        if calibration := (manifest["compile"] or {}).get("calibration"):
            save_reliability(calibration, made)


Program.write_folder = save  # type: ignore[assignment]  # compiled.save(folder) is what a DSPy user writes


def load(
    folder: Path | str,
    lm: dspy.LM | str | None = None,
    retriever: Retriever | Path | str | None = None,
    api_base: str | None = None,
    program: dspy.Module | type[dspy.Module] | None = None,
) -> dspy.Module:
    """The program of an artifact, ready to be asked.

    An artifact is data, from whomever it came: it says which model it was compiled with, and never where a request or
    a key goes. A model of a well-known provider is asked at that provider; any other remote one, an endpoint and a
    server with the index are yours to name.

    Args:
        folder: What `save` wrote; or the name of a compiled program that ships (`raisf.optimize.shipped.PROGRAMS`).
        lm: Instead of the LM it was compiled with: an LM, or a spec such as "openai/gpt-4o-mini". Predictors with
            weights of their own keep these, and take it as their base if it is the very same one.
        retriever: Instead of the index it was compiled with: a retriever, or an index folder. Any corpus will do, it is
            your choice; the artifact's own index must be the very same one.
        api_base: URL of the endpoint that serves the LM it was compiled with. Of an artifact that was made with a model
            in the process: each predictor with a LoRA adapter asks the module of its own name there, the others the
            base (`raisf.optimize.served`).
        program: The class of a program of the user's own, or an instance, which stays as it is. Not needed where that
            class is imported and wants no arguments but a retriever. An artifact chooses no code to import.

    Raises:
        InputError: No artifact there, one of another format, damaged or changed, its index is gone or another, or its
            LM or the base of its weights is gone or another, or one that the caller has to name.
    """
    folder = shipped_folder(str(folder)) if str(folder) in SHIPPED_PROGRAMS else Path(folder)
    manifest = read(folder)
    made = _foreign if is_foreign(manifest.program) else _ours
    opened: Any = made(folder, manifest, program, retriever)
    try:
        opened.load_state(with_options(opened, _state_of(folder)))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"the artifact {folder} was compiled from another version of {manifest.program} "
            f"({type(error).__name__}: {error}): compile it again"
        ) from error
    _set_lms(opened, folder, manifest, connect(lm, api_base) if isinstance(lm, str) else lm, api_base)
    opened.compile_report = manifest.compile
    return opened


def _options(program: Any, name: str) -> dict[str, Any]:
    if not is_foreign(name):
        return {"options": options(program)}
    return {"options": options_of(program), "parts": parts_of(program)}


def _ours(folder: Path, manifest: Manifest, given: Any, retriever: Any) -> dspy.Module:
    """A program of the registry, as it was saved."""
    if given is not None:
        raise InputError(f"the artifact {folder} holds {manifest.program}, which needs no program=: leave it out")
    program_named(manifest.program)  # one that is not known is no damage
    opened = _retriever(folder, manifest.index, retriever)
    try:
        return build(manifest.program, opened, **manifest.options)
    except (TypeError, InputError) as error:
        raise damaged(folder, f"options in {MANIFEST}: {error}") from error


def _foreign(folder: Path, manifest: Manifest, given: Any, retriever: Any) -> dspy.Module:
    """A module of the user's own: the caller's, with the numbers and switches that were saved."""
    searches = isinstance(given, dspy.Module) and retriever_of(given) is not None
    opened = None if searches and retriever is None else _retriever(folder, manifest.index, retriever)
    made = made_by_caller(manifest.program, given, opened, folder)
    if retriever is not None:
        for program in programs_within(made):
            program.retriever = opened
    set_options(made, manifest.options, manifest.parts)
    return made


def _state_of(folder: Path) -> dict[str, Any]:
    state, strange = harmless(read_json(folder / STATE))
    strange += [f"{name}.lm" for name, kept in state.items() if isinstance(kept, dict) and kept.get("lm")]
    if strange:
        raise InputError(
            f"the artifact {folder} sets {', '.join(strange)} in {STATE}, which no saved program may: where requests "
            "go is for the caller (--lm, --api-base). It was not written by raisf: do not use it"
        )
    return state


def _warn_of_lms(program: dspy.Module, folder: Path) -> None:
    """An LM that is dropped in silence would be another one's answers after `load`: that of DSPy's settings."""
    lost = {}
    for name, predictor in program.named_predictors():
        lm = predictor.lm or dspy.settings.lm
        if lm is not None and trained_folder(lm) is None and _spec(lm) is None:
            lost[name] = getattr(lm, "model", repr(lm))
    if lost:
        logger.warning(
            "the artifact %s does not keep the LM %s of %s, or its adapter, which raisf.connect does not make: "
            "give it again, raisf.load(..., lm=...)",
            folder,
            ", ".join(sorted(set(lost.values()))),
            ", ".join(lost),
        )


def _state(program: dspy.Module) -> dict[str, Any]:
    """DSPy's state of each predictor without its LM, whose endpoint DSPy drops and whose engine it cannot name."""
    state = {}
    for name, predictor in program.named_predictors():
        bare = copy.copy(predictor)
        bare.lm = None
        state[name] = bare.dump_state()
    return state


def _lms(program: dspy.Module, folder: Path) -> list[dict[str, Any]]:
    """What `raisf.optimize.manifest.KeptLM` says of each LM; one that `connect` cannot open is left out."""
    found: list[dict[str, Any]] = []
    for name, predictor in program.named_predictors():
        spec = _spec(predictor.lm or dspy.settings.lm)
        if spec is None:
            continue
        base, where = base_kept(spec["spec"], folder)
        connect = {**spec, "spec": base}
        same = next((known for known in found if known["connect"] == connect), None)
        if same is not None:
            same["predictors"].append(name)
        else:
            found.append({"connect": connect, "predictors": [name], **where})
    return found


def _spec(lm: Any) -> dict[str, Any] | None:
    told = {name: value for name, value in getattr(lm, "kwargs", {}).items() if value is not None}
    strange = told.keys() - {*OPTIONS, "api_base", "api_key"} if type(lm) is not LocalLM else ()  # it reads no others
    if type(lm) not in (dspy.LM, EndpointLM, LocalLM) or strange:
        return None
    adapter = getattr(lm, "adapter", None)
    name = next((n for n in ("chat", "compact", "pocket") if adapter and _same(adapter, adapter_named(n))), None)
    if adapter is not None and name is None:
        return None
    given = {
        "spec": lm.base if isinstance(lm, LocalLM) else lm.model,
        "adapter": name,
        "api_base": _without_secrets(base_of(lm)),
    }
    given |= {name.replace("completion_", ""): told[name] for name in OPTIONS if name in told}
    given |= lm.endpoint.chosen() if isinstance(lm, EndpointLM) else {}
    return {option: value for option, value in given.items() if value is not None}


def _same(adapter: dspy.Adapter, known: dspy.Adapter) -> bool:
    return type(adapter) is type(known) and vars(adapter) == vars(known)


def _without_secrets(url: str | None) -> str | None:
    return None if url is None else without_secrets(url)


def _set_lms(
    program: dspy.Module, folder: Path, manifest: Manifest, given: dspy.LM | None, api_base: str | None
) -> None:
    predictors, weights = dict(program.named_predictors()), manifest.weights
    if given is not None:
        program.set_lm(given)
    local = bool(manifest.lms) and all(entry.connect.spec.startswith(PREFIX) for entry in manifest.lms)
    served = served_lms(folder, manifest, api_base) if api_base and local and given is None else {}
    for entry in manifest.lms:
        if strangers := [name for name in entry.predictors if name not in predictors]:
            raise damaged(folder, f"lms in {MANIFEST}: {manifest.program} has no predictor {strangers[0]!r}")
        if served:
            for name in entry.predictors:
                predictors[name].lm = served[name]
            continue
        options = entry.connect.model_dump(exclude_none=True, exclude={"api_base"})
        base = given if isinstance(given, LocalLM) else None
        for name in [name for name in entry.predictors if name in weights]:
            predictors[name].lm = open_weights(folder, name, weights[name], options, base)
        others = [name for name in entry.predictors if name not in weights]
        if given is None and others:
            lm = _open_lm(folder, entry, options, api_base)
            for name in others:
                predictors[name].lm = lm


def _open_lm(folder: Path, entry: KeptLM, options: dict[str, Any], api_base: str | None) -> dspy.LM:
    spec, was = entry.connect.spec, entry.connect.api_base
    provider, _, _ = spec.partition("/")
    if spec.startswith(PREFIX):
        return connect(**{**options, "spec": base_from(spec, entry.relative, folder)})
    api_base = api_base or os.environ.get(f"{provider.upper()}_API_BASE")
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
    return connect(**options, api_base=api_base)


def _index(retriever: Any, folder: Path) -> dict[str, Any] | None:
    if retriever is None:
        return None
    if retriever.path is None:
        url = _without_secrets(getattr(retriever, "url", None))  # an index that is served
        return {"path": None, "url": url, "corpus_sha256": retriever.corpus_hash}
    index, path = read_manifest(retriever.path), Path(retriever.path).resolve()
    return {
        "path": str(path),
        "relative": relative_path(path, folder),
        "corpus_sha256": index.corpus_sha256,
        "checkpoint_sha256": index.checkpoint_sha256,
    }


def _retriever(folder: Path, wanted: KeptIndex | None, given: Retriever | Path | str | None) -> Retriever | None:
    if given is not None:
        return open_index(given) if isinstance(given, str | Path) else given
    if wanted is None:
        return None
    instead = "give an index with --index DIR (retriever=)"
    if wanted.url:
        raise InputError(
            f"the artifact {folder} was compiled with an index that is served at {wanted.url}, and cannot choose where "
            f"your questions go: {instead.replace('DIR', wanted.url)}"
        )
    if wanted.path is None:
        raise InputError(f"the artifact {folder} was compiled with a filter, or in memory: {instead}")
    path = Path(wanted.path)
    if wanted.relative and (folder / wanted.relative).exists():
        path = folder / wanted.relative
    try:
        found = read_manifest(path)
    except InputError as error:
        raise InputError(f"the artifact {folder} cannot open its index: {error}; or {instead}") from error
    for what in ("corpus", "checkpoint"):
        ours, theirs = (getattr(one, f"{what}_sha256") for one in (found, wanted))
        if ours != theirs:
            raise InputError(
                f"the index {path} is of another {what} than the one that {folder} was compiled with "
                f"({str(ours)[:12]}, not {str(theirs)[:12]}): compile again, or {instead}"
            )
    return open_folder(path)
