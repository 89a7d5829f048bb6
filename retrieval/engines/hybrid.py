"""Hybrid search: ColBERT's ranking and BM25's, fused. Finds by meaning, and by names that no encoder has ever seen."""

from collections import defaultdict
from collections.abc import Sequence
from typing import cast

import numpy as np

from raisf.retrieval.encoders.checkpoint import default_checkpoint, find_checkpoint
from raisf.retrieval.engines.base import Index
from raisf.retrieval.search.maxsim import Hits
from raisf.retrieval.store.words import Words

RANK_OFFSET = 60
"""The constant of reciprocal rank fusion, as in its paper: how little the first ranks stand out from the next."""

DEPTH = 100
"""Passages of each ranking that are fused, where k is smaller."""


class Hybrid(Index):
    """Searches with ColBERT and with BM25. A passage's score is the sum of 1 / (60 + rank) over the two rankings.

    Those that fit alike in one share its rank: many passages have a word once, and their places in the index, which
    hang on what was added when, would else decide.

    Source: Cormack et al., Reciprocal rank fusion, SIGIR 2009, https://doi.org/10.1145/1571941.1572114.
    """

    kind = "hybrid"
    find = staticmethod(find_checkpoint)
    default_checkpoint = staticmethod(default_checkpoint)
    compresses = True
    counts_words = True

    def _hits(self, queries: Sequence[str], k: int, allowed: np.ndarray) -> list[Hits]:
        depth, (vectors, words) = max(k, DEPTH), self._searchers
        near = vectors.search(queries, depth, allowed)
        # Else their places would decide which of hundreds that have a word alike are among BM25's first.
        numbers = [[number for number, _ in hits] for hits in near]
        alike = cast(Words, words).search(queries, depth, allowed, numbers)
        return [fuse(rows)[:k] for rows in zip(near, alike, strict=True)]


def fuse(rankings: Sequence[Hits]) -> Hits:
    """One ranking out of several, in each of which equals share a rank; among equals the earlier passage first."""
    scores: dict[int, float] = defaultdict(float)
    for hits in rankings:
        rank, last = 0, None
        for place, (number, score) in enumerate(hits, start=1):
            if score != last:
                rank, last = place, score
            scores[number] += 1 / (RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))
