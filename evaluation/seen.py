"""Whether a program has learnt from the questions that it is measured on: its score on them says nothing of others."""

import logging
from collections.abc import Collection, Sequence
from typing import Any

import dspy

from raisf.utils.text import print_of

logger = logging.getLogger(__name__)


def seen_by(program: dspy.Module, examples: Sequence[dspy.Example]) -> list[str]:
    """What to say of a program that was compiled on some of these questions, or whose index's encoder was trained on.

    As far as that is known: artifacts and checkpoints that were made here keep a print of each question.

    Args:
        program: What is measured.
        examples: What it is measured on, with `question`.
    """
    asked = [example.question for example in examples]
    parts = [part for _, part in program.named_sub_modules()]
    told = _told("the program was compiled", {one for part in parts for one in getattr(part, "learnt_from", ())}, asked)
    retrievers: dict[int, Any] = {id(one): one for part in parts if (one := getattr(part, "retriever", None))}
    for retriever in retrievers.values():
        told += _told("the encoder of its index was trained", getattr(retriever, "learnt_from", ()), asked)
    return told


def warn_of_seen(program: dspy.Module, examples: Sequence[dspy.Example], name: str) -> None:
    """Says it on the log, under the name of the measurement."""
    for told in seen_by(program, examples):
        logger.warning("%s: %s: what is measured on them says nothing about others", name, told)


def _told(what: str, prints: Collection[str], asked: Sequence[str]) -> list[str]:
    seen = [question for question in asked if print_of(question) in prints]
    return [f"{what} on {len(seen)} of the {len(asked)} questions, such as {seen[0]!r}"] if seen else []
