"""Turning RA-ISF's self-knowledge judge into one of another kind, to try which is worth most."""

from typing import Any

from raisf.optimize.adapters import trained_folder
from raisf.programs.ra_isf import RAISF
from raisf.programs.self_knowledge import Know, knowledge_judge
from raisf.utils.checks import check_named
from raisf.utils.errors import InputError

KINDS: tuple[Know, ...] = ("verbal", "confidence", "truth", "consistency")
"""Cheaper ones first."""


def check_kinds(kinds: tuple[Know, ...], program: RAISF | None = None) -> None:
    """Makes sure that these kinds of self-knowledge can be tried, by the program if there is one yet.

    Raises:
        InputError: An unknown kind, or a program that never asks what is known.
    """
    for kind in kinds:
        check_named("kind of self-knowledge", kind, KINDS)
    if kinds and program is not None and not program.use_know:
        raise InputError("kinds of self-knowledge to try, and a program that asks none (--no-know): leave one out")


def turn(program: RAISF, kind: Know) -> None:
    """Give a program another kind of self-knowledge.

    Its judge keeps what it was compiled to, except where a verdict on the question becomes one on a draft, or the other
    way round: that is a new judge, which nothing was compiled for, asked of an LM without trained weights if there is
    one.
    """
    if (kind == "truth") != (program.self_knowledge == "truth"):
        lms: list[Any] = [program.answer_directly.lm, *(one.lm for _, one in program.named_predictors())]
        vars(program)["know"] = knowledge_judge(kind)  # it is asked for something else than the one before
        program.know.lm = next((lm for lm in lms if trained_folder(lm) is None), lms[0])
    vars(program)["self_knowledge"] = kind
