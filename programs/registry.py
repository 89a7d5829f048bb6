"""The systems by name, for the command line and for saved artifacts."""

import inspect
from typing import Any

from raisf.programs.baselines.blendfilter import BlendFilter
from raisf.programs.baselines.cot import CoT
from raisf.programs.baselines.cot_rag import CoTRAG
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.ircot import IRCoT
from raisf.programs.baselines.iter_retgen import IterRetGen
from raisf.programs.baselines.least_to_most import LeastToMost
from raisf.programs.baselines.rag import RAG
from raisf.programs.baselines.react import ReAct
from raisf.programs.baselines.replug import REPLUG
from raisf.programs.baselines.self_ask import SelfAsk
from raisf.programs.baselines.self_rag import SelfRAG
from raisf.programs.baselines.skr import SKR
from raisf.programs.changing import asked, given_forward
from raisf.programs.program import Program
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Retriever
from raisf.utils.checks import check_named
from raisf.utils.errors import InputError

# RA-ISF, then what answers from memory, what retrieves once, and what retrieves in steps.
PROGRAMS: dict[str, type[Program]] = {
    program.system: program
    for program in (
        RAISF,
        Direct,
        CoT,
        LeastToMost,
        RAG,
        CoTRAG,
        REPLUG,
        SKR,
        SelfRAG,
        BlendFilter,
        IterRetGen,
        IRCoT,
        SelfAsk,
        ReAct,
    )
}


def program_named(name: str) -> type[Program]:
    """A program's class.

    Raises:
        InputError: There is no such program.
    """
    check_named("program", name, PROGRAMS)
    return PROGRAMS[name]


def build(name: str, retriever: Retriever | None = None, /, **options: Any) -> Program:
    """Make a program.

    Args:
        name: A key of `PROGRAMS`.
        retriever: What it searches with; a program that never searches is made without.
        options: Its constructor's other arguments.

    Raises:
        InputError: There is no such program or option, or the option's value cannot be used.
    """
    program = program_named(name)
    known = defaults(program)
    for option in options:
        if option not in known:
            raise InputError(f"{name} has no option {option!r}: choose {', '.join(known)}")
    if searches(program):
        options["retriever"] = retriever
    return program(**options)


def options(program: Program) -> dict[str, Any]:
    """The options, JSON values, that `build` makes the same program from; the retriever is not among them.

    Nor are those that came later and are at their defaults (`Program.later`): what is saved stays as it was.
    """
    unchanged = program.unchanged()
    return {name: value for name, value in program.options().items() if program.stored.get(name, name) not in unchanged}


def check_predictors(program: Program) -> None:
    """Whether `build`, given the program's options, makes predictors that are asked and answer as its own do.

    Raises:
        InputError: One was exchanged for another kind, or an option was changed after its predictor was made.
    """
    plain = build(program.system, None, **options(program))
    has, made = asked(program), asked(plain)
    own_class = f"make a class of your own of {type(program).__name__}"
    remedy = f"build it with the options that these need, or {own_class}"
    if names := sorted(has.keys() ^ made.keys()):
        raise InputError(
            f"{program.system} has the predictors {', '.join(has)}, and with its options it would be made with "
            f"{', '.join(made)}: what {', '.join(names)} learnt would be lost; {remedy}"
        )
    for name, fields in has.items():
        if fields != made[name]:
            raise InputError(
                f"{program.system}'s {name} is {fields}, and with the program's options it would be made as "
                f"{made[name]}, and answer as it was never asked: {remedy}"
            )
    own = dict(program.named_predictors())
    for name, one in plain.named_predictors():
        kinds, lost = _kinds(own[name]), []
        if typed := [field for field, kind in _kinds(one).items() if kind != kinds[field]]:
            lost.append(f"the type of {', '.join(typed)}")
        if type(own[name]) is not type(one):
            lost.append(f"the class {type(own[name]).__name__}")
        if lost:
            raise InputError(f"{' and '.join(lost)} of {program.system}'s {name} would be lost: {own_class}")
    if given_forward(program) is not None:
        raise InputError(f"{program.system} was given another forward, which would be lost: {own_class}")


def _kinds(predictor: Any) -> dict[str, Any]:
    return {name: field.annotation for name, field in predictor.signature.fields.items()}


def defaults(program: type[Program]) -> dict[str, Any]:
    """A program's options with their defaults."""
    return {name: given.default for name, given in _parameters(program).items() if name != "retriever"}


def searches(program: type[Program]) -> bool:
    """Whether a program takes a retriever."""
    return "retriever" in _parameters(program)


def about(program: type[Program]) -> tuple[str, str]:
    """What a program does, in a line, and the source that describes it: both from its docstring."""
    summary, _, rest = inspect.cleandoc(program.__doc__ or "").partition("\n")
    return summary, " ".join(rest.rpartition("Source:")[2].split())


def _parameters(program: type[Program]) -> dict[str, inspect.Parameter]:
    names = dict(inspect.signature(program.__init__).parameters)
    del names["self"]
    return names
