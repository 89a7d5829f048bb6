"""What the document says beside a passage: a club's handbook names the club on its first page alone."""

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np

from raisf.retrieval.passage import Passage, row_of
from raisf.retrieval.search.maxsim import Hits
from raisf.retrieval.store.words import words_of

WEIGHT = 4.0
"""What a document adds to ColBERT's score that has all of a question's words. A passage that fits has 10 to 20."""

DEPTH = 50
"""The best passages, which are ranked anew."""

_KEPT = 1024
"""Documents whose words are remembered."""


class DocumentWords:
    """Ranks what was found anew, by how many of a question's words the passage's document has, each at its rarity.

    Args:
        passages: Of the index, by number.
        parts: By document, the numbers of its passages.
    """

    def __init__(self, passages: Sequence[Passage], parts: Mapping[str, Sequence[int]]):
        self._passages = passages
        # It does not hold this object, which would else hold itself and outlive its last user.
        self._words = functools.lru_cache(maxsize=_KEPT)(functools.partial(_count, passages, parts))

    @classmethod
    def of(cls, passages: Sequence[Passage], alive: np.ndarray) -> Self | None:
        """Of the passages, by number, that an index finds, bool `(n_passages,)`.

        None unless there are several documents, with two of them or more on average: a row says what its passage says,
        and what a single document says tells none of its passages from another.
        """
        numbers = np.flatnonzero(alive).tolist()
        if 2 * sum("#" in passages[number].pid for number in numbers) <= len(numbers):
            return None  # at once, of millions of rows
        parts: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            parts[row_of(passages[number].pid)].append(number)
        return cls(passages, parts) if 1 < len(parts) <= len(numbers) / 2 else None

    def ranked(self, query: str, hits: Hits) -> Hits:
        """The hits in their new order, with their new scores; those beyond the first `DEPTH` stay where they are."""
        (asked,) = map(set, words_of([query]))
        best, others = hits[:DEPTH], hits[DEPTH:]
        documents = {number: row_of(self._passages[number].pid) for number, _ in best}
        found = {name: asked & self._words(name) for name in dict.fromkeys(documents.values())}
        worth = {word: _rarity(sum(word in has for has in found.values()), len(found)) for word in asked}
        whole = sum(worth.values()) or 1.0
        shares = {name: sum(worth[word] for word in has) / whole for name, has in found.items()}
        weighed = [(number, score + WEIGHT * shares[documents[number]]) for number, score in best]
        return sorted(weighed, key=lambda hit: (-hit[1], hit[0])) + others


def _count(passages: Sequence[Passage], parts: Mapping[str, Iterable[int]], name: str) -> frozenset[str]:
    texts = [f"{passages[number].source or ''} {passages[number].prompt_text}" for number in parts[name]]
    return frozenset().union(*words_of(texts))


def _rarity(having: int, count: int) -> float:
    """What a word is worth that so many of some documents have: BM25's inverse document frequency."""
    return math.log(1 + (count - having + 0.5) / (having + 0.5))
