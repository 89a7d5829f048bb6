"""Exact late interaction: every query against every passage. For corpora whose vectors fit in memory."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from raisf.retrieval.store.vectors import Vectors

if TYPE_CHECKING:
    import torch

Hits = list[tuple[int, float]]
"""Passage numbers with their scores, best first."""

_CHUNK = 1 << 14
QUERIES = 16
"""Vectors, and queries, of one matrix product: of 32 tokens a query it takes 34 MB, of 128, minilm's most, 134."""


class MaxSim:
    """Scores a passage by the sum, over the query's vectors, of the best dot product with any of its vectors.

    Source: ColBERT, https://arxiv.org/abs/2004.12832, equation 3.

    Args:
        vectors: Of the passages. They are held in float32, which every processor multiplies fast: 512 bytes each.
    """

    def __init__(self, vectors: Vectors):
        self._vectors = vectors.all()
        ends = vectors.lengths.cumsum(0).numpy()
        self._starts = ends - vectors.lengths.numpy()
        # The first passage of each chunk, and behind the last one.
        self._chunks = [*np.unique(ends // _CHUNK, return_index=True)[1].tolist(), len(ends)]

    def search(self, queries: Sequence["torch.Tensor"], k: int, allowed: np.ndarray) -> list[Hits]:
        """The `k` best passages for each query `(n_tokens, dim)`; among equals the earlier one.

        Args:
            queries: Their vectors.
            k: How many passages at most.
            allowed: Which passages may be found, bool `(n_passages,)`.
        """
        numbers = np.flatnonzero(allowed)
        groups = [queries[i : i + QUERIES] for i in range(0, len(queries), QUERIES)]
        return [best_hits(scores[numbers], numbers, k) for group in groups for scores in self._scores(group)]

    def _scores(self, queries: Sequence["torch.Tensor"]) -> np.ndarray:
        """The score of every passage for each query, `(n_queries, n_passages)`."""
        import torch

        tokens = torch.cat(list(queries))
        ends = np.cumsum([len(query) for query in queries]).tolist()
        parts = [slice(*pair) for pair in itertools.pairwise([0, *ends])]
        scores = np.empty((len(queries), len(self._starts)), dtype=np.float32)
        for first, last in zip(self._chunks, self._chunks[1:], strict=False):
            start = self._starts[first]
            end = self._starts[last] if last < len(self._starts) else len(self._vectors)
            best = best_products(tokens, self._vectors[start:end], self._starts[first:last] - start)
            for row, part in zip(scores, parts, strict=True):
                best[part].sum(axis=0, out=row[first:last])
        return scores


def best_products(tokens: "torch.Tensor", vectors: "torch.Tensor", starts: np.ndarray) -> np.ndarray:
    """The best dot product `(n_tokens, n_passages)` of each query vector with any vector of each passage.

    Args:
        tokens: Of queries, float32 `(n_tokens, dim)`.
        vectors: Of passages, one after the other, float32 `(n_vectors, dim)`.
        starts: The row of each passage's first vector, `(n_passages,)`.
    """
    return np.maximum.reduceat((tokens @ vectors.T).numpy(), starts, axis=1)


def best_hits(scores: np.ndarray, numbers: np.ndarray, k: int) -> Hits:
    """The `k` best of some passages by their scores; among equals the first given."""
    best = np.argsort(-scores, kind="stable")[:k]
    return list(zip(numbers[best].tolist(), scores[best].tolist(), strict=True))
