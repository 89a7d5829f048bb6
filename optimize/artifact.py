"""Keeping a compiled program: a folder that another process, folder or user can load. No pickle, no code."""

import copy
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dspy

from data.errors import InputError
from data.files import atomic_folder, read_json, sha256_file, write_json
from lm.adapter import adapter_named
from lm.connect import connect
from lm.local import LocalLM
from optimize.adapters import ADAPTERS, README, open_weights, save_weights
from optimize.reliability import PLOT, draw_reliability
from programs.program import Program
from programs.registry import PROGRAMS, build, options
from retrieval.index import open_index
from retrieval.manifest import read_manifest
from retrieval.passage import Retriever

FORMAT = 2
"""Raised when an older version could not read what this one writes; 1 had no trained weights."""
READABLE = (1, 2)

MANIFEST, STATE = "manifest.json", "program.json"
OWN = {MANIFEST, STATE, ADAPTERS, README, PLOT}
LIBRARIES = ("dspy", "pydantic", "torch", "transformers")


def save(program: dspy.Module, folder: Path | str) -> None:
    """Writes a program: what it is (manifest.json), its demonstrations and instructions (program.json), its weights.

    Weights that were trained for its predictors go into adapters/; a README.md says how to serve them elsewhere. Where
    its judges were calibrated, reliability.png shows what came of it; the points are in manifest.json.
    Language models are kept as the spec that `lm.connect` opens, never with keys; the index as its path and hashes.
    What stood at `folder` before stays whole until the new artifact is.

    Args:
        program: One of `programs.registry.PROGRAMS`.
        folder: A new folder, or an artifact to replace.

    Raises:
        InputError: A program of another class, or `folder` holds other things.
    """
    folder = Path(folder)
    name = next((name for name, kind in PROGRAMS.items() if type(program) is kind), None)
    if not isinstance(program, Program) or name is None:
        raise InputError(
            f"{type(program).__name__} is none of {', '.join(PROGRAMS)}, which an artifact can hold: "
            "a module of your own saves its state with DSPy's program.save('state.json')"
        )
    strangers = {file.name for file in folder.iterdir()} - OWN if folder.is_dir() else set()
    if strangers:
        raise InputError(f"{folder} holds other things ({', '.join(sorted(strangers)[:3])}): give a new folder")
    with atomic_folder(folder, MANIFEST) as made:
        write_json(made / STATE, _state(program))
        manifest = {
            "format": FORMAT,
            "program": name,
            "options": options(program),
            "state_sha256": sha256_file(made / STATE),
            "lms": _lms(program),
            "weights": save_weights(program, made),
            "index": _index(getattr(program, "retriever", None), folder),
            "versions": {"python": platform.python_version()}
            | {library: importlib.metadata.version(library) for library in LIBRARIES},
            "compile": getattr(program, "compile_report", None),
        }
        write_json(made / MANIFEST, manifest)
        plot = draw_reliability((manifest["compile"] or {}).get("calibration") or {"judges": {}})
        if plot is not None:
            plot.savefig(made / PLOT, dpi=130)


def load(
    folder: Path | str, lm: dspy.LM | str | None = None, retriever: Retriever | Path | str | None = None
) -> dspy.Module:
    """The program of an artifact, ready to be asked.

    Args:
        folder: What `save` wrote.
        lm: Instead of the LM it was compiled with: an LM, or a spec such as "openai/gpt-4o-mini". Predictors with
            weights of their own keep these, and take it as their base if it is the very same one.
        retriever: Instead of the index it was compiled with: a retriever, or an index folder. Any corpus will do, it is
            your choice; the artifact's own index must be the very same one.

    Raises:
        InputError: No artifact there, one of another format, damaged or changed, its index is gone or another, or its
            LM or the base of its weights is gone or another.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    program: Any = build(manifest["program"], _retriever(folder, manifest, retriever), **manifest["options"])
    try:
        program.load_state(read_json(folder / STATE))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"the artifact {folder} was compiled from another version of {manifest['program']} "
            f"({type(error).__name__}: {error}): compile it again"
        ) from error
    _set_lms(program, folder, manifest, connect(lm) if isinstance(lm, str) else lm)
    program.compile_report = manifest["compile"]
    return program


def _state(program: dspy.Module) -> dict[str, Any]:
    """DSPy's state of each predictor without its LM, whose endpoint DSPy drops and whose engine it cannot name."""
    state = {}
    for name, predictor in program.named_predictors():
        bare = copy.copy(predictor)
        bare.lm = None
        state[name] = bare.dump_state()
    return state


def _lms(program: dspy.Module) -> list[dict[str, Any]]:
    """The LMs as arguments of `connect`, with the predictors that ask each; one that it cannot open is left out."""
    found: list[dict[str, Any]] = []
    for name, predictor in program.named_predictors():
        spec = _spec(predictor.lm or dspy.settings.lm)
        same = next((known for known in found if known["connect"] == spec), None)
        if same is not None:
            same["predictors"].append(name)
        elif spec is not None:
            found.append({"connect": spec, "predictors": [name]})
    return found


def _spec(lm: Any) -> dict[str, Any] | None:
    if type(lm) not in (dspy.LM, LocalLM):
        return None
    adapter = getattr(lm, "adapter", None)
    adapters = ("chat", "compact", "pocket")
    name = next((name for name in adapters if adapter is not None and _same(adapter, adapter_named(name))), None)
    if adapter is not None and name is None:
        return None
    given = {
        "spec": lm.base if isinstance(lm, LocalLM) else lm.model,
        "adapter": name,
        "api_base": _without_user(lm.kwargs.get("api_base")),
    }
    given |= {option: lm.kwargs.get(option) for option in ("temperature", "max_tokens")}
    return {option: value for option, value in given.items() if value is not None}


def _same(adapter: dspy.Adapter, known: dspy.Adapter) -> bool:
    return type(adapter) is type(known) and vars(adapter) == vars(known)


def _without_user(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _set_lms(program: dspy.Module, folder: Path, manifest: dict[str, Any], given: dspy.LM | None) -> None:
    predictors, weights = dict(program.named_predictors()), manifest.get("weights", {})
    if given is not None:
        program.set_lm(given)
    for entry in manifest["lms"]:
        base = given if isinstance(given, LocalLM) else None
        for name in [name for name in entry["predictors"] if name in weights]:
            predictors[name].lm = open_weights(folder, name, weights[name], entry["connect"], base)
        others = [name for name in entry["predictors"] if name not in weights]
        if given is None and others:
            lm = connect(**entry["connect"])
            for name in others:
                predictors[name].lm = lm


def _index(retriever: Any, folder: Path) -> dict[str, Any] | None:
    if retriever is None:
        return None
    if retriever.path is None:
        url = getattr(retriever, "url", None)  # an index that is served
        return {"path": None, "url": url, "corpus_sha256": retriever.corpus_hash}
    index, path = read_manifest(retriever.path), Path(retriever.path).resolve()
    return {
        "path": str(path),
        # For when both are moved together, or another user has them.
        "relative": Path(os.path.relpath(path, folder.resolve())).as_posix(),
        "corpus_sha256": index.corpus_sha256,
        "checkpoint_sha256": index.checkpoint_sha256,
    }


def _retriever(folder: Path, manifest: dict[str, Any], given: Retriever | Path | str | None) -> Retriever | None:
    if given is not None:
        return open_index(given) if isinstance(given, str | Path) else given
    wanted = manifest["index"]
    if wanted is None:
        return None
    instead = "give an index with --index DIR (retriever=)"
    if wanted.get("url"):
        served = open_index(wanted["url"])
        if served.corpus_hash != wanted["corpus_sha256"]:
            raise InputError(f"{wanted['url']} serves another index than {folder} was compiled with: {instead}")
        return served
    if wanted["path"] is None:
        raise InputError(f"the artifact {folder} was compiled with a filter, or in memory: {instead}")
    beside = folder / wanted["relative"]
    path = beside if beside.exists() else Path(wanted["path"])
    try:
        found = read_manifest(path)
    except InputError as error:
        raise InputError(f"the artifact {folder} cannot open its index: {error}; or {instead}") from error
    for what, ours in (("corpus", found.corpus_sha256), ("checkpoint", found.checkpoint_sha256)):
        theirs = wanted[f"{what}_sha256"]
        if ours != theirs:
            raise InputError(
                f"the index {path} is of another {what} than the one that {folder} was compiled with "
                f"({str(ours)[:12]}, not {str(theirs)[:12]}): compile again, or {instead}"
            )
    return open_index(path)


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(f"no artifact at {folder}: give a folder made by `raisf compile`")
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder} is no artifact, it has no {MANIFEST}: give a folder made by `raisf compile`")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not {"format", "program", "state_sha256"} <= manifest.keys():
        raise InputError(f"{folder} is no artifact, its {MANIFEST} says other things: give one made by `raisf compile`")
    if manifest["format"] not in READABLE:
        raise InputError(
            f"the artifact {folder} has format {manifest['format']}, this version reads "
            f"{' and '.join(map(str, READABLE))}: compile it again"
        )
    if not (folder / STATE).is_file():
        raise InputError(f"the artifact {folder} is damaged, {STATE} is missing: compile it again")
    if sha256_file(folder / STATE) != manifest["state_sha256"]:
        raise InputError(f"the artifact {folder} is damaged, {STATE} has changed since it was saved: compile it again")
    return manifest
