"""Whether a program has learnt from the questions that it is measured on: its score on them says nothing of others."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dspy

from raisf.evaluation.examples import asked_text
from raisf.retrieval.adapting import searched
from raisf.utils.learnt import learnt_by
from raisf.utils.text import by_reason, print_of

logger = logging.getLogger(__name__)


def seen_by(program: dspy.Module, examples: Sequence[dspy.Example], parts: Sequence[str] | None = None) -> list[str]:
    """Messages where a program was compiled, or the encoder of its index trained, on some of these questions.

    As far as that is known: artifacts and checkpoints that were made here keep a print of each question. An index that
    is searched through its server does not tell.

    Args:
        program: What is measured.
        examples: What it is measured on, with `question`.
        parts: What its judges alone are asked instead, the sub-questions too, which two questions may share.
    """
    asked = [asked_text(example) for example in examples] if parts is None else list(dict.fromkeys(parts))
    told = _message("the program was compiled", learnt_by(program), asked)
    for retriever in retrievers_of(program):
        told += _message("the encoder of its index was trained", learnt_by(retriever), asked)
    return told


def retrievers_of(program: dspy.Module) -> list[Any]:
    """What a program and its parts search: under whatever name they keep it, or DSPy's `rm` where they ask that."""
    found: list[Any] = []
    for _, part in program.named_sub_modules():
        found += [value for value in vars(part).values() if hasattr(value, "corpus_hash")]
        if isinstance(part, dspy.Retrieve) or vars(part).get("retriever", part) is None:
            found.append(searched(part))
    return list({id(one): one for one in found if one is not None}.values())


def warn_of_seen(
    program: dspy.Module, examples: Sequence[dspy.Example], name: str, parts: Sequence[str] | None = None
) -> list[str]:
    """Logs what `seen_by` says as warnings, under the name of the measurement, and gives it back."""
    seen = seen_by(program, examples, parts)
    for told in seen:
        logger.warning("%s: %s: a score on what it has seen says nothing about others", name, told)
    return seen


def seen_lines(seen: Mapping[str, Sequence[str]]) -> list[str]:
    """For a table's text: a sentence a way in which rows have learnt from the questions.

    Args:
        seen: By the row's label, what `seen_by` says.
    """
    ways = by_reason({label: " and ".join(of) for label, of in seen.items() if of})
    return [f"Not held out: {'; '.join(labels)} ({told})." for told, labels in ways.items()]


def _message(what: str, prints: Collection[str], asked: Sequence[str]) -> list[str]:
    seen = [question for question in asked if print_of(question) in prints]
    if not seen:
        return []
    if len(asked) == 1:
        return [f"{what} on the one question"]
    return [f"{what} on {len(seen)} of the {len(asked)} questions, such as {seen[0]!r:.80}"]
