"""Keeping a compiled program: a folder that another process, folder or user can load. No pickle, no code."""

import contextlib
import copy
import importlib.metadata
import logging
import platform
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from pydantic_core import to_jsonable_python

from raisf.evaluation.runner import check_module
from raisf.lm.connect import connect
from raisf.optimize.adapters import ADAPTERS, README, save_weights
from raisf.optimize.foreign import (
    PLAIN,
    is_foreign,
    made_by_caller,
    modules_of,
    name_of,
    options_of,
    parts_of,
    places,
    retriever_of,
    set_options,
)
from raisf.optimize.judges.reliability import PLOT, save_reliability
from raisf.optimize.kept_index import index_of, open_kept
from raisf.optimize.kept_lms import asks, describe_lms, set_lms, warn_of_lms
from raisf.optimize.manifest import MANIFEST, STATE, Manifest, damaged, format_of, read
from raisf.optimize.overlap import note_learnt
from raisf.optimize.shipped import PROGRAMS as SHIPPED_PROGRAMS
from raisf.optimize.shipped import shipped_folder
from raisf.optimize.within import all_within
from raisf.programs.changing import given_forward
from raisf.programs.program import Program
from raisf.programs.registry import build, check_predictors, options, program_named
from raisf.programs.state import OF_GENERATION, check_fields, harmless
from raisf.retrieval.passage import Retriever
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, check_replaceable, read_json, sha256_file, write_json
from raisf.utils.learnt import learnt_by
from raisf.utils.predictors import all_predictors

logger = logging.getLogger(__name__)

ARTIFACT = (MANIFEST, STATE, ADAPTERS, README, PLOT)
"""All that lies in an artifact's folder."""
LIBRARIES = ("dspy", "pydantic", "torch", "transformers")


def save(program: dspy.Module, folder: Path | str) -> None:
    """Writes a program: what it is (manifest.json), its demonstrations and instructions (program.json), its weights.

    Weights that were trained for its predictors go into adapters/; a README.md says how to serve them elsewhere. Where
    its judges were calibrated, reliability.png shows what came of it; the points are in manifest.json.
    Language models are kept as the spec that `raisf.lm.connect` opens, never with keys or what follows the `?` of a
    URL; the index as its path and hashes. Folders are found again from anywhere, also where they are moved with the
    artifact. An LM that `raisf.lm.connect` does not make is not kept, which is logged as a warning: give it again to
    `load`. What stood at `folder` before stays whole until the new artifact is. Of a module of the user's own numbers
    and switches are kept, and hashes of texts: one may be a key.

    Args:
        program: One of `raisf.programs.registry.PROGRAMS`, or a module of the user's own, whose class the artifact
            names and never imports: `load` is given it.
        folder: A new folder, or an artifact to replace.

    Raises:
        InputError: What is no dspy.Module, `folder` holds other things, or a model that weights of the program were
            trained on, or is the name of a program that ships, or a program of the registry has a predictor of another
            kind than its options ask for: `load` would make the one that they ask for.
    """
    _check_name(folder)
    folder = Path(folder)
    check_module(program)
    name = name_of(program)
    if isinstance(program, Program) and not is_foreign(name):
        check_predictors(program)
    _warn_of_forwards(program, folder)
    warn_of_lms(program, folder)
    with atomic_folder(folder, *ARTIFACT) as made:
        write_json(made / STATE, _state(program))
        weights = save_weights(program, made, folder)
        manifest = {
            "format": format_of(weights),
            "program": name,
            **_options(program, name),
            "state_sha256": sha256_file(made / STATE),
            "lms": describe_lms(program, folder),
            "weights": weights,
            **_indexes(program, name, folder),
            "versions": {"python": platform.python_version()}
            | {library: importlib.metadata.version(library) for library in LIBRARIES},
            "compile": getattr(program, "compile_report", None),
            "learnt_from": sorted(learnt_by(program)),
        }
        write_json(made / MANIFEST, manifest)
        if calibration := (manifest["compile"] or {}).get("calibration"):
            save_reliability(calibration, made)


def _warn_of_forwards(program: dspy.Module, folder: Path) -> None:
    """Warns of a `forward` given to an instance: code is not kept, and once loaded it would answer without it."""
    parts = {place.removeprefix("self."): part for place, part in program.named_sub_modules(dspy.Module)}
    if given := [place for place, part in parts.items() if given_forward(part) is not None]:
        logger.warning(
            "the artifact %s does not keep the forward that %s was given in place of its class's, as dspy.KNNFewShot "
            "does: load it with an instance that has it, raisf.load(..., program=...)",
            folder,
            " and ".join("the module" if place == "self" else place for place in given),
        )


def check_folder(folder: Path | str) -> None:
    """Makes sure that an artifact can be written to a folder, and is what `load` gives of it.

    Raises:
        InputError: It holds other things, or `load` would give a program that ships instead.
    """
    _check_name(folder)
    check_replaceable(folder, *ARTIFACT)


def _check_name(folder: Path | str) -> None:
    if str(folder) in SHIPPED_PROGRAMS:
        raise InputError(f"{folder} is the name of a compiled program that ships, which loading it gives: take another")


Program.write_folder = save  # type: ignore[assignment]  # compiled.save(folder) is what a DSPy user writes


def load(
    folder: Path | str,
    lm: dspy.LM | str | None = None,
    retriever: Retriever | Path | str | None = None,
    api_base: str | None = None,
    program: dspy.Module | type[dspy.Module] | None = None,
) -> dspy.Module:
    """The program of an artifact, ready to be asked; of one that is replaced meanwhile, the old or the new one, whole.

    An artifact is data, from whomever it came: it says which model it was compiled with, and never where a request or
    a key goes. A model of a well-known provider is asked at that provider; any other remote one, an endpoint and a
    server with the index are yours to name.

    Args:
        folder: What `save` wrote; or the name of a compiled program that ships (`raisf.optimize.shipped.PROGRAMS`).
        lm: Instead of the LM it was compiled with: an LM, or a spec such as "openai/gpt-4o-mini". Predictors with
            weights of their own keep these, and take it as their base if it is the very same one.
        retriever: Instead of the index it was compiled with: a retriever, or an index folder. Any corpus will do, it is
            your choice; the artifact's own index must be the very same one.
        api_base: URL of the endpoint that serves the LM it was compiled with, or the one that `lm` names. Of an
            artifact that was made with a model in the process: each predictor with a LoRA adapter asks the module of
            its own name there, the others the base (`raisf.optimize.served`).
        program: The class of a program of the user's own, which is made with the numbers and switches that were saved;
            or an instance that was made with the same, and stays as it is. Not needed where that class is imported and
            wants no other arguments but a retriever. An artifact chooses no code to import. Where the artifact kept no
            LM, what is loaded has the instance's.

    Raises:
        InputError: No artifact there, one of another format, damaged or changed, its index is gone or another, its LM
            or the base of its weights is gone or another, or one that the caller has to name, or the program given is
            another than was saved.
    """
    named, folder = folder, shipped_folder(str(folder)) if str(folder) in SHIPPED_PROGRAMS else Path(folder)
    if lm is not None and not isinstance(lm, str | dspy.BaseLM):
        raise InputError(f"the LM is {lm!r:.80}: give a dspy.LM, or a spec such as 'openai/gpt-4o-mini'")
    if api_base is not None and isinstance(lm, dspy.BaseLM):
        raise InputError(f"{lm.model} knows where it is asked: leave out api_base, or give it to raisf.connect")
    while True:
        before = _stamp(folder)
        try:
            opened = _load(named, folder, lm, retriever, api_base, program)
        except (InputError, OSError):
            if _stamp(folder) == before:
                raise
        else:
            if _stamp(folder) == before:
                return opened


def _stamp(folder: Path) -> str | None:
    """Tells one artifact from another that takes its place; None while there is none."""
    with contextlib.suppress(OSError):
        return sha256_file(folder / MANIFEST)


def _load(
    named: Path | str,
    folder: Path,
    lm: dspy.LM | str | None,
    retriever: Retriever | Path | str | None,
    api_base: str | None,
    program: dspy.Module | type[dspy.Module] | None,
) -> dspy.Module:
    manifest = read(folder)
    made = _foreign if is_foreign(manifest.program) else _ours
    opened: Any = made(folder, manifest, program, retriever)
    try:
        _take_state(opened, _state_of(folder))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"the artifact {folder} was compiled from another version of {manifest.program} "
            f"({type(error).__name__}: {error}): compile it again"
        ) from error
    given = connect(lm, api_base) if isinstance(lm, str) else lm
    set_lms(opened, folder, manifest, given, api_base)
    if given is not None and not any(asks(predictor.lm, given) for _, predictor in all_predictors(opened)):
        why = (
            f"answers with weights of its own: {given.model} is not their base and is never asked; for that LM take a "
            "program without weights (--program ra-isf; raisf.RAISF), or compile for it"
            if manifest.weights
            else f"has no predictor that asks {given.model}: give it to the module itself, or dspy.configure(lm=...)"
        )
        logger.warning("%s %s", named, why)
    opened.compile_report, opened.learnt_from = manifest.compile, manifest.learnt_from
    note_learnt(opened, opened)
    return opened


def _options(program: Any, name: str) -> dict[str, Any]:
    if not is_foreign(name):
        return {"options": options(program)}
    return {"options": options_of(program), "parts": parts_of(program), "modules": modules_of(program)}


def _indexes(program: Any, name: str, folder: Path) -> dict[str, Any]:
    """The index that a program searches, and those of a module's parts that search another."""
    index = index_of(retriever_of(program), folder)
    parts = places(program).items() if is_foreign(name) else ()
    of = {place: index_of(part.retriever, folder) for place, part in parts if part.retriever is not None}
    others = {place: kept for place, kept in of.items() if kept != index}
    return {"index": index, "indexes": others} if others else {"index": index}


def _ours(folder: Path, manifest: Manifest, given: Any, retriever: Any) -> dspy.Module:
    """A program of the registry, as it was saved."""
    if given is not None:
        raise InputError(f"the artifact {folder} holds {manifest.program}, which needs no program=: leave it out")
    program_named(manifest.program)  # one that is not known is no damage
    opened = open_kept(folder, manifest.index, retriever)
    try:
        return build(manifest.program, opened, **manifest.options)
    except (TypeError, InputError) as error:
        raise damaged(folder, f"options in {MANIFEST}: {error}") from error


def _foreign(folder: Path, manifest: Manifest, given: Any, retriever: Any) -> dspy.Module:
    """A module of the user's own: the caller's, which has the numbers and switches that were saved."""
    searches = isinstance(given, dspy.Module) and retriever_of(given) is not None
    opened = None if searches and retriever is None else open_kept(folder, manifest.index, retriever)
    made = made_by_caller(manifest.program, given, manifest.options, opened, folder)
    for program in all_within(made).values():
        if retriever is not None or program.retriever is None:
            program.retriever = opened
    settable = not isinstance(given, dspy.Module)
    set_options(made, manifest.options, manifest.parts, manifest.modules, settable)
    if retriever is None and not searches:
        programs = places(made)
        for place, kept in manifest.indexes.items():
            if place not in programs:
                raise damaged(folder, f"indexes in {MANIFEST}: {manifest.program} has no part {place!r}")
            programs[place].retriever = open_kept(folder, kept, None)
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


def _take_state(program: dspy.Module, state: dict[str, Any]) -> None:
    """Gives each predictor what it had learnt; its LM stays, which an artifact may not know."""
    check_fields(program, state)
    predictors = all_predictors(program)
    if lost := state.keys() - {name for name, _ in predictors}:
        name = name_of(program)
        remedy = (
            "give an instance made as it was, raisf.load(..., program=...)" if is_foreign(name) else "compile it again"
        )
        raise InputError(f"the artifact's program has {', '.join(sorted(lost))}, and this {name} has not: {remedy}")
    for name, predictor in predictors:
        lm = predictor.lm
        predictor.load_state(state[name])
        predictor.lm = lm


def _state(program: dspy.Module) -> dict[str, Any]:
    """DSPy's state of each predictor without its LM, whose endpoint DSPy drops and whose engine it cannot name.

    With the predictor's own settings of a call, which DSPy leaves out, as far as a saved program may have any.
    """
    state, lost = {}, []
    for name, predictor in all_predictors(program):
        bare = copy.copy(predictor)
        bare.lm = None
        state[name] = bare.dump_state()
        state[name]["demos"] = _jsonable(state[name]["demos"], name)
        kept = {one: value for one, value in predictor.config.items() if one in OF_GENERATION and _plain(value)}
        state[name] |= {"config": kept} if kept else {}
        lost += [f"{name}.{one}" for one in predictor.config if one not in kept]
    if lost:
        logger.warning("an artifact does not keep %s, which its predictor tells the LM: set it again", ", ".join(lost))
    return state


def _jsonable(demos: Any, name: str) -> Any:
    """A predictor's demonstrations with dates, members of an Enum and NumPy's numbers as an LM is shown them."""

    def other(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return list(value) if value.ndim else value[()]
        if isinstance(value, np.generic):  # in half the digits 0.1 is another number
            return float(str(value)) if isinstance(value, np.floating) else value.item()
        raise InputError(f"a demonstration of {name} holds {value!r:.60}, which no artifact keeps: write it as text")

    return to_jsonable_python(demos, bytes_mode="base64", fallback=other)


def _plain(value: Any) -> bool:
    return isinstance(value, PLAIN | str) or (isinstance(value, list) and all(isinstance(one, str) for one in value))
