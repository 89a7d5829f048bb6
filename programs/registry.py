"""The systems by name, for the command line and for saved artifacts."""

import inspect
from typing import Any

from data.errors import InputError
from programs.baselines.direct import Direct
from programs.baselines.rag import RAG
from programs.program import Program
from programs.ra_isf import RAISF
from retrieval.passage import Retriever

PROGRAMS: dict[str, type[Program]] = {program.system: program for program in (RAISF, Direct, RAG)}


def build(name: str, retriever: Retriever | None = None, **options: Any) -> Program:
    """Make a program.

    Args:
        name: A key of `PROGRAMS`.
        retriever: What it searches with; a program that never searches is made without.
        options: Its constructor's other arguments.

    Raises:
        InputError: There is no such program or option, or the option's value cannot be used.
    """
    if name not in PROGRAMS:
        raise InputError(f"unknown program {name!r}: choose {', '.join(PROGRAMS)}")
    program = PROGRAMS[name]
    for option in options:
        if option not in _option_names(program):
            raise InputError(f"{name} has no option {option!r}: choose {', '.join(_option_names(program))}")
    if "retriever" in _takes(program):
        options["retriever"] = retriever
    return program(**options)


def options(program: Program) -> dict[str, Any]:
    """The options, JSON values, that `build` makes the same program from; the retriever is not among them."""
    return {name: getattr(program, name) for name in _option_names(type(program))}


def _takes(program: type[Program]) -> list[str]:
    return list(inspect.signature(program.__init__).parameters)[1:]  # less self


def _option_names(program: type[Program]) -> list[str]:
    return [name for name in _takes(program) if name != "retriever"]
