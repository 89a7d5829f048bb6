"""A program that is asked the same question again, a little otherwise each time, and makes equal calls once."""

import functools
import threading
from collections.abc import Sequence
from typing import Any

import dspy

from raisf.optimize.copying import copy_of
from raisf.optimize.within import programs_within
from raisf.programs.changing import given_forward
from raisf.retrieval.passage import Passage


def remembering(program: dspy.Module) -> Any:
    """A copy of a program, or of a module with such in it, that makes equal calls and searches once.

    Calls still count in a trace's cost: what a question would cost is asked for, not what it did cost.
    """
    copy: Any = copy_of(program)
    for _, predictor in copy.named_predictors():
        remember(predictor)
    for part in programs_within(copy):
        if part.retriever is not None:
            part.retriever = _Remembering(part.retriever)
    return copy


class _Remembering:
    """A `raisf.retrieval.passage.Retriever` that searches for each query once."""

    def __init__(self, retriever: Any):
        self.path, self.corpus_hash = retriever.path, retriever.corpus_hash
        self._retriever = retriever
        self._found: dict[tuple[str, int], list[Passage]] = {}

    @property
    def passages(self) -> Any:
        """The retriever's own, where it tells them: whether gold is among them is looked up (`evaluation.gold`)."""
        return self._retriever.passages

    def __call__(self, query: str, k: int) -> list[Passage]:
        if (query, k) not in self._found:
            self._found[query, k] = self._retriever(query, k)
        return self._found[query, k]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        new = [query for query in dict.fromkeys(queries) if (query, k) not in self._found]
        if new:
            found = self._retriever.search_many(new, k)
            self._found |= {(query, k): passages for query, passages in zip(new, found, strict=True)}
        return [self._found[query, k] for query in queries]


def remember(predictor: Any) -> None:
    """Let the predictor make equal calls of an LM once: another try meets the same judgements again.

    Those that come while one is under way wait for it, and if it fails one of them is made.
    """
    made: dict[tuple[Any, type, str], Any] = {}
    locks: dict[tuple[Any, type, str], threading.Lock] = {}
    forward = given_forward(predictor) or functools.partial(type(predictor).forward, predictor)

    def remembered(**inputs: Any) -> Any:
        key = predictor.lm or dspy.settings.lm, type(dspy.settings.adapter), repr(sorted(inputs.items()))
        with locks.setdefault(key, threading.Lock()):
            if key not in made:
                made[key] = forward(**inputs)
            return made[key]

    predictor.forward = remembered
