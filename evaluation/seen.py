"""Whether a program has learnt from the questions that it is measured on: its score on them says nothing of others."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

import dspy

from raisf.utils.text import print_of

logger = logging.getLogger(__name__)


def warn_of_seen(program: dspy.Module, examples: Sequence[dspy.Example], name: str) -> None:
    """Says so, where the program was compiled on some of these questions, or the encoder trained that it searches with.

    As far as that is known: artifacts and checkpoints that were made here keep a print of each question.

    Args:
        program: What is measured.
        examples: What it is measured on, with `question`.
        name: What the measurement is called.
    """
    asked = [example.question for example in examples]
    parts = [part for _, part in program.named_sub_modules()]
    compiled = {one for part in parts for one in getattr(part, "learnt_from", ())}
    _warn(f"{name}: the program was compiled", compiled, asked)
    retrievers: dict[int, Any] = {id(one): one for part in parts if (one := getattr(part, "retriever", None))}
    for retriever in retrievers.values():
        _warn(f"{name}: the encoder of its index was trained", getattr(retriever, "learnt_from", ()), asked)


def _warn(what: str, prints: Collection[str], asked: Sequence[str]) -> None:
    seen = [question for question in asked if print_of(question) in prints]
    if seen:
        logger.warning(
            "%s on %d of the %d questions, such as %r: what is measured on them says nothing about others",
            what,
            len(seen),
            len(asked),
            seen[0],
        )
