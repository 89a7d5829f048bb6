"""From names to running things: the language model, the index and the program that a command or the demo asks for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raisf.commands.options import DEFAULT_LM, FROM_MEMORY, PROGRAM_NAMES
from raisf.utils.errors import InputError


def open_lm(spec: str | None, **options: Any) -> Any:
    """The language model of a spec such as "pocket"; the default one if there is none.

    Args:
        spec: As `raisf.lm.connect.connect` takes it.
        **options: That function's others. None means not given.

    Raises:
        InputError: The spec names nothing that can be opened, or an option does not go with it.
    """
    from raisf.lm.connect import connect

    return _forgetful(connect(DEFAULT_LM if spec is None else spec, **_given(options)))


def open_program(
    name: str,
    *,
    lm: str | None = None,
    index: Path | str | None = None,
    where: str | None = None,
    lm_options: dict[str, Any] | None = None,
    searches: bool = True,
    switches: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """A program that is ready to be asked, from the registry or from an artifact.

    Args:
        name: A name of the registry, or the folder of an artifact.
        lm: The LM's spec; if None, the artifact's own, or the default for a name of the registry.
        index: The folder of an index, or a server's URL; an artifact remembers its own.
        where: A filter on the index's passages.
        lm_options: The LM's, see `open_lm`.
        searches: False where it will not be asked to search: then it needs no index.
        switches: Constructor options by name, whatever they are; they win over `options`.
        **options: Constructor options of the program. None means not given: the default, or what the artifact holds.

    Raises:
        InputError: An unknown name, a missing index, an option that the program does not have.
    """
    options = {**_given(options), **(switches or {})}
    from_registry = name in PROGRAM_NAMES
    if not from_registry and not Path(name).is_dir():
        raise InputError(
            f"no program {name!r}: choose one of {', '.join(PROGRAM_NAMES)}, or give a folder made by `raisf compile`"
        )
    model_options = _given(lm_options or {})
    # The one that an artifact cannot bring: where its LM is served.
    api_base = model_options.pop("api_base", None) if not from_registry and lm is None else None
    if not from_registry and lm is None and model_options:
        shown = ", ".join(f"--{option.replace('_', '-')}" for option in model_options)
        raise InputError(f"{shown} without --lm: {name} brings its own language model; give --lm too")
    if searches and from_registry and index is None and name not in FROM_MEMORY:
        raise InputError(f"{name} retrieves passages: give --index DIR (made by: raisf index DOCS --out DIR)")
    model = None if lm is None and not from_registry else open_lm(lm, **model_options)
    retriever = _open_index(index, where)
    if not from_registry:
        return _load_artifact(name, model, retriever, options, api_base)
    from raisf.programs.registry import build

    program = build(name, retriever, **options)
    program.set_lm(model)
    return program


def without_cache(program: Any) -> Any:
    """The same program, whose LMs ask anew where DSPy's cache has an answer: else its cost would be the cache's."""
    for _, predictor in program.named_predictors():
        if predictor.lm is not None:
            predictor.lm = predictor.lm.copy(cache=False)
    return program


def records_path(folder: Path, name: str, program: Any, examples: Sequence[Any]) -> Path:
    """Where a program's records on a test set go: the same path for the same pair, so that a second run resumes it."""
    from raisf.evaluation.identity import describe, describe_test, digest

    return folder / f"{name}-{digest([describe(program), describe_test(examples)])[:8]}.jsonl"


def _load_artifact(folder: str, lm: Any, retriever: Any, given: dict[str, Any], api_base: str | None) -> Any:
    from raisf.optimize.artifact import load
    from raisf.programs.registry import build, options

    compiled: Any = load(Path(folder), lm=lm, retriever=retriever, api_base=api_base)
    for _, predictor in compiled.named_predictors():
        predictor.lm = predictor.lm and _forgetful(predictor.lm)
    if not given:
        return compiled
    program: Any = build(compiled.system, compiled.retriever, **{**options(compiled), **given})
    for name, predictor in compiled.named_predictors():
        if predictor.signature.fields.keys() != getattr(program, name).signature.fields.keys():
            raise InputError(f"{folder} was compiled with another --relevance: leave that option out, or compile again")
        setattr(program, name, predictor)
    return program


def _open_index(index: Path | str | None, where: str | None) -> Any:
    if where is not None and index is None:
        raise InputError("--where without --index: give the index that it filters")
    if index is None:
        return None
    from raisf.retrieval.index import open_index

    retriever = open_index(index)
    return retriever if where is None else retriever.where(where)


def _forgetful(lm: Any) -> Any:
    """The same LM, of whose calls DSPy keeps no history: a command never looks at it, and a long one makes millions."""
    lm.update_history = _forget
    return lm


def _forget(entry: dict[str, Any]) -> None:
    pass


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
