"""Gold passages that an index does not hold: nobody can find them, and what is found instead says nothing."""

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import dspy

from raisf.evaluation.examples import gold_passages
from raisf.evaluation.seen import retrievers_of
from raisf.retrieval.passage import Passage, row_of
from raisf.utils.text import composed

logger = logging.getLogger(__name__)

MOST_PASSAGES = 1_000_000
"""Of an index whose passages are looked through, in half a second or so."""

Wanted = tuple[str, Collection[str], bool]
"""What is asked, its gold passages' names, and whether these are ids."""

_TOLD: defaultdict[str, set[str]] = defaultdict(set)
"""By the hash of a corpus, the questions that were told of: programs that are compared all search the same one."""


def outside(retriever: Any, asked: Sequence[Wanted]) -> list[Wanted]:
    """The questions that name gold passages, none of which is in the index; empty where the index cannot be asked.

    A served index, a retriever of another make and one of more than `MOST_PASSAGES` are not asked.
    """
    passages = getattr(retriever, "passages", None)
    named = [one for one in asked if any(one[1])]
    if not named or not isinstance(passages, list) or not 0 < len(passages) <= MOST_PASSAGES:
        return []
    if not all(isinstance(passage, Passage) for passage in passages):
        return []
    ids = {name for _, names, by_id in named if by_id for name in names}
    titles = {name for _, names, by_id in named if not by_id for name in names}
    held = {composed(passage.title) for passage in passages} & titles
    held_ids = {name for one in passages for name in map(composed, (one.pid, row_of(one.pid))) if name in ids}
    return [one for one in named if not any(name in (held_ids if one[2] else held) for name in one[1] if name)]


def warn_of_outside(retriever: Any, asked: Sequence[Wanted], so: str) -> list[Wanted]:
    """The questions that are `outside`, with a warning for those not warned of before; `so` says what comes of it."""
    missing = outside(retriever, asked)
    told = _TOLD[getattr(retriever, "corpus_hash", "")]
    if new := [one for one in missing if one[0] not in told]:
        told.update(question for question, _, _ in new)
        question, names, by_id = new[0]
        shown = retriever.passages[0]
        field, own = ("gold_pids", row_of(shown.pid)) if by_id else ("gold_titles", shown.title)
        logger.warning(
            "of %d questions that name gold passages, those of %d are nowhere in the index, such as %r of %r: %s. Give "
            "the index that they are of, or in %s what its passages are called, such as %r",
            sum(any(names) for _, names, _ in asked),
            len(new),
            next(name for name in names if name)[:60],
            question[:80],
            so,
            field,
            own[:60],
        )
    return missing


def warn_of_gold_outside(program: dspy.Module, examples: Sequence[dspy.Example]) -> None:
    """Says so where a program is measured on questions whose gold passages its one index does not hold."""
    if len(found := retrievers_of(program)) == 1:
        asked = [(example.question, *gold_passages(example)) for example in examples if "question" in example]
        warn_of_outside(found[0], asked, "their recall is 0 whatever is found")
