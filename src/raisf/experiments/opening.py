"""From names to running things: the language model, the index and the program that a command or an experiment asks for.

A program's name is one of the registry, the folder of an artifact, or a class of the user's (`raisf.experiments.own`).
"""

import functools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from raisf.evaluation import QUESTIONS, QUESTIONS_REMOTE
from raisf.experiments import own
from raisf.utils.errors import InputError
from raisf.utils.files import read_json

logger = logging.getLogger(__name__)
_CHANGES = {"relevant": "--relevance", "know": "--know", "decompose": "--decomposition"}
_warn_once = functools.cache(logger.warning)

POCKET = "pocket"
"""The default LM of a closed world, and of nothing else: it has never heard of the real one."""
ZERO_SHOT = "ra-isf"
"""The default program, but for an LM that a compiled one ships for."""


@dataclass(frozen=True, slots=True)
class LMChoice:
    """Which language model answers and how it is spoken to, as `raisf.lm.connect.connect` takes it; None: not given."""

    spec: str | None = None
    api_base: str | None = None
    adapter: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    dtype: str | None = None
    calls: int | None = None
    completions: bool | None = None
    probabilities: bool | None = None

    @property
    def options(self) -> dict[str, Any]:
        """All but the spec, and the limit of calls, which is the process's.

        The newer ones only where they were given: folders are called after these, and keep their names.
        """
        optional = {name for name in ("dtype", "completions", "probabilities") if getattr(self, name) is None}
        return {name: value for name, value in asdict(self).items() if name not in {"spec", "calls"} | optional}

    @property
    def remote(self) -> bool:
        """Whether an endpoint is named, here or in the environment."""
        from raisf.lm.connect import VARIABLE

        return self.api_base is not None or _remote(self.spec or os.environ.get(VARIABLE, "").strip())

    def at_a_time(self, programs: Iterable[str]) -> int:
        """How many questions programs are asked at a time where nobody says: fewer where an endpoint answers.

        Args:
            programs: Their names; an artifact's own LM counts where no other is given.
        """
        specs = [spec for name in programs for spec in _specs(name)] if self.spec is None else []
        return QUESTIONS_REMOTE if self.remote or any(map(_remote, specs)) else QUESTIONS

    def limit(self) -> None:
        """Lets so many calls be under way in this process."""
        if self.calls is not None:
            from raisf.programs.concurrency import set_concurrency

            set_concurrency(self.calls)

    def open(self) -> Any:
        """The language model; the default one of real text where there is no spec.

        Raises:
            InputError: The spec names nothing that can be opened, or an option does not go with it; there is no spec,
                and the default LM is not here.
        """
        from raisf.lm.connect import connect

        self.limit()
        return _forgetful(connect(self.spec, **given(self.options)))

    def decided(self, index: Any = None, questions: Sequence[Any] = ()) -> "LMChoice":
        """The choice with a spec: its own, else `RAISF_LM`, else what suits the passages.

        Args:
            index: What is searched, a folder, an address or a retriever; None: nothing is known of it.
            questions: What is asked, as `raisf.load_questions` gives it; they say where there is no index.

        Raises:
            InputError: There is no spec, the passages are no closed world's, and the default LM is not here.
        """
        if self.spec is not None:
            return self
        from raisf.data.world.recognising import is_world_question
        from raisf.lm.connect import VARIABLE, default_spec
        from raisf.retrieval.closed_world import of_closed_world

        if os.environ.get(VARIABLE, "").strip():
            closed = False
        elif index is not None:
            closed = of_closed_world(index)
        else:
            closed = bool(questions) and all(is_world_question(example.get("id")) for example in questions[:5])
        return replace(self, spec=POCKET if closed else default_spec())

    def instead_of(self, artifact: str) -> Any:
        """The language model; None, the artifact's own, where there is no spec.

        Raises:
            InputError: As `open` does, or an option is given without a spec, other than where the LM is served, which
                no artifact can say.
        """
        if self.spec is None and (alone := given({**self.options, "api_base": None})):
            shown = ", ".join(f"--{option.replace('_', '-')}" for option in alone)
            raise InputError(f"{shown} without --lm: {artifact} brings its own language model; give --lm too")
        self.limit()
        return None if self.spec is None else self.open()


def _remote(spec: str) -> bool:
    base = spec.partition("@")[0]  # what follows is a LoRA adapter's folder
    return "/" in base and not base.startswith("local/")


def _specs(program: str) -> list[str]:
    """The LMs of an artifact, as its manifest names them; none of what is no artifact, or a broken one."""
    folder = program.partition("@")[2] if own.is_own(program) else program
    try:
        found = read_json(Path(folder) / "manifest.json") if folder else {"lms": []}  # a class is no artifact
        return [lm["connect"]["spec"] for lm in found["lms"]]
    except (InputError, OSError, LookupError, TypeError):
        return []


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def default_program(lm: LMChoice, index: Any, questions: Sequence[Any] = ()) -> str:
    """The program where none is named: the one that ships compiled for the LM, else ra-isf as it is.

    Raises:
        InputError: The LM is a default one, and it, or the program compiled for it, is not here.
    """
    from raisf.optimize.shipped import PROGRAMS, shipped_folder

    spec = lm.decided(index, questions).spec or ""
    if spec not in PROGRAMS or lm.adapter not in (None, "compact"):
        return ZERO_SHOT
    shipped_folder(spec)
    return spec


def open_program(
    name: str | None,
    *,
    lm: LMChoice | None = None,
    index: Path | str | None = None,
    where: str | None = None,
    searches: bool = True,
    about: Path | str | None = None,
    questions: Sequence[Any] = (),
    warns: bool = True,
    **options: Any,
) -> Any:
    """A program that is ready to be asked.

    Args:
        name: A name of the registry or of a compiled program that ships, the folder of an artifact, or
            package.module:Class; None: see `default_program`.
        lm: The LM; without a spec the artifact's own, or the default one (`LMChoice.decided`).
        index: The folder of an index, or a server's URL; an artifact remembers its own.
        where: A filter on the index's passages.
        searches: False where it will not be asked to search: then it needs no index.
        about: The index that it is asked about without searching it; like that, it decides on the default LM.
        questions: What it will be asked, as far as that is known; they decide where there is no index.
        warns: Whether to say so where an artifact asks a pocket model about the real world.
        **options: Constructor options of the program, instead of its defaults, or of what the artifact holds.

    Raises:
        InputError: An unknown name, a missing index, an option that the program does not have.
    """
    from raisf.optimize.shipped import PROGRAMS as SHIPPED
    from raisf.programs.registry import PROGRAMS, build
    from raisf.programs.registry import searches as takes_retriever
    from raisf.programs.tracing import trace_from_environment

    trace_from_environment()
    lm = lm or LMChoice()
    if name is None:
        if searches and index is None:
            raise own.without_index(ZERO_SHOT)
        name = default_program(lm, index, questions)
    if own.is_own(name) and "@" in name:
        return own.open_artifact(name, functools.partial(_load, lm, _open_index(index, where)), options)
    if own.is_own(name):
        kind = own.load_class(name)
        program = own.make(name, kind, lambda: _open_index(index, where), options, given=index is not None)
    elif name in PROGRAMS:
        if searches and index is None and takes_retriever(PROGRAMS[name]):
            raise own.without_index(name)
        program = build(name, _open_index(index, where), **options)
    elif name in SHIPPED or Path(name).is_dir():
        if name in SHIPPED and searches and index is None:
            raise own.without_index(name)
        program = _open_artifact(name, lm, _open_index(index, where), options)
        if lm.spec is None and warns:
            _warn_of_made_up(name, program)
        return program
    else:
        raise InputError(
            f"no program {name!r}: choose one of {', '.join([*PROGRAMS, *SHIPPED])}, or give a folder made by "
            "`raisf compile`, or package.module:Class for a class of your own"
        )
    if any(program.named_predictors()):  # a module of the user's own may ask nobody
        program.set_lm(lm.decided(about if index is None else index, questions).open())
    return program


def open_fitting(
    name: str,
    *,
    lm: LMChoice | None = None,
    index: Path | str | None = None,
    where: str | None = None,
    questions: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """`open_program`, without the index and the options for which a program has no use."""
    from raisf.optimize.manifest import read
    from raisf.optimize.shipped import PROGRAMS as SHIPPED
    from raisf.programs.registry import PROGRAMS, defaults, searches

    named = name in PROGRAMS or name in SHIPPED or not Path(name).is_dir()
    system = name if named else read(Path(name)).program
    if own.is_own(name):
        class_name, compiled, _ = name.partition("@")
        known, searching = own.fitting(own.load_class(class_name), compiled=bool(compiled))
        for option in sorted(options.keys() - known):
            logger.warning("%s has no option %s of its own: what was given is not for it", name, option)
    elif system in PROGRAMS:
        known, searching = set(defaults(PROGRAMS[system])), searches(PROGRAMS[system])
    else:
        return open_program(name, lm=lm, index=index, where=where, **options)
    fitting = {key: value for key, value in options.items() if key in known}
    searched = {"index": index, "where": where} if searching else {}
    return open_program(name, lm=lm, about=index, questions=questions, **fitting, **searched)


def without_cache(program: Any) -> Any:
    """The same program, whose LMs ask anew where DSPy's cache has an answer: else its cost would be the cache's."""
    from raisf.utils.predictors import held_lms

    for attributes, name, lm in held_lms(program):
        attributes[name] = lm.copy(cache=False)
    return program


def _open_artifact(folder: str, lm: LMChoice, retriever: Any, options: dict[str, Any]) -> Any:
    from raisf.optimize.adapters import trained_folder
    from raisf.optimize.shipped import PROGRAMS as SHIPPED
    from raisf.programs.registry import build

    if folder in SHIPPED and lm.spec is None and given({**lm.options, "api_base": None}):
        lm = replace(lm, spec=folder)  # it is called after its LM, whose options these are
    compiled = _load(lm, retriever, folder)
    if not options:
        return compiled
    from raisf.experiments.changed_options import with_changes
    from raisf.utils.learnt import learnt_by

    program: Any = build(compiled.system, compiled.retriever, **with_changes(compiled, options, folder))
    program.compile_report = getattr(compiled, "compile_report", None)
    program.learnt_from = sorted(learnt_by(compiled))
    for name, predictor in compiled.named_predictors():
        if not hasattr(program, name):
            continue  # an option of this call leaves that judge out
        if predictor.signature.fields.keys() != getattr(program, name).signature.fields.keys():
            changes = _CHANGES.get(name, "evidence")
            raise InputError(
                f"{folder} was compiled with another {changes}: leave that option out, give --program {ZERO_SHOT}, or "
                "compile again"
            )
        setattr(program, name, predictor)
    lms = [predictor.lm for _, predictor in compiled.named_predictors() if predictor.lm is not None]
    for _, predictor in program.named_predictors():
        if predictor.lm is None and lms:  # a judge that was not compiled is asked of the base
            predictor.lm = next((lm for lm in lms if trained_folder(lm) is None), lms[0])
    return program


def _load(lm: LMChoice, retriever: Any, folder: str, program: type | None = None) -> Any:
    """The program of an artifact, with the LM that is named; else with its own, asked at the endpoint that is given."""
    from raisf.optimize.artifact import load
    from raisf.utils.predictors import all_predictors

    api_base = lm.api_base if lm.spec is None else None
    compiled = load(folder, lm=lm.instead_of(folder), retriever=retriever, api_base=api_base, program=program)
    for _, predictor in all_predictors(compiled):  # a part of the user's own may read what its LM remembers
        predictor.lm = predictor.lm and _forgetful(predictor.lm)
    return compiled


def _warn_of_made_up(folder: str, compiled: Any) -> None:
    """Says so where a compiled program asks a pocket model about the real world, unless that model was named."""
    from raisf.lm.local.weights import PREFIX
    from raisf.lm.pocket import WEIGHTS
    from raisf.retrieval.closed_world import of_closed_world

    bases = {str(getattr(predictor.lm, "base", "")) for _, predictor in compiled.named_predictors()}
    found = sorted({base.removeprefix(PREFIX).partition("#")[0] for base in bases} & WEIGHTS.keys())
    retriever = getattr(compiled, "retriever", None)
    if found and retriever is not None and not of_closed_world(retriever):
        logger.warning(
            "%s asks %s, which knows a made-up world only, and this index is of another: what it says of it is "
            "invented; for real documents leave --program out, or compile with another --base",
            folder,
            " and ".join(found),
        )


def _forgetful(lm: Any) -> Any:
    """The same LM, of whose calls DSPy keeps no history: a command never looks at it, and a long one makes millions."""
    lm.update_history = _forget
    return lm


def _forget(entry: dict[str, Any]) -> None:
    pass


def _open_index(index: Path | str | None, where: str | None) -> Any:
    if where is not None and index is None:
        raise InputError("--where without --index: give the index that it filters")
    if index is None:
        return None
    from raisf.retrieval.index import open_index

    found = open_index(index) if where is None else open_index(index).where(where)
    if where is not None and not getattr(found, "passages", True):  # a server does not tell them
        _warn_once("no passage of %s satisfies --where %r: nothing will be found", str(index), where)
    return found
