"""Exact late interaction: every query against every passage. For corpora whose vectors fit in memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from retrieval.vectors import Vectors

if TYPE_CHECKING:
    import torch

Hits = list[tuple[int, float]]
"""Passage numbers with their scores, best first."""

_CHUNK = 1 << 16
_QUERIES = 16
"""Vectors, and queries, of one matrix product: its result stays within some 100 MB."""


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

    def search(self, queries: Sequence["torch.Tensor"], k: int, allowed: np.ndarray | None = None) -> list[Hits]:
        """The `k` best passages for each query `(n_tokens, dim)`; among equals the earlier one.

        Args:
            queries: Their vectors.
            k: How many passages at most.
            allowed: Which passages may be found, bool `(n_passages,)`; None: all.
        """
        numbers = np.arange(len(self._starts)) if allowed is None else np.flatnonzero(allowed)
        groups = [queries[i : i + _QUERIES] for i in range(0, len(queries), _QUERIES)]
        return [_top(scores, numbers, k) for group in groups for scores in self._scores(group)]

    def _scores(self, queries: Sequence["torch.Tensor"]) -> list[np.ndarray]:
        """The score of every passage, for each query."""
        import torch

        tokens = torch.cat(list(queries))
        best = np.empty((len(tokens), len(self._starts)), dtype=np.float32)
        for first, last in zip(self._chunks, self._chunks[1:], strict=False):
            start = self._starts[first]
            end = self._starts[last] if last < len(self._starts) else len(self._vectors)
            products = (tokens @ self._vectors[start:end].T).numpy()
            best[:, first:last] = np.maximum.reduceat(products, self._starts[first:last] - start, axis=1)
        splits = np.cumsum([len(query) for query in queries])[:-1]
        return [rows.sum(axis=0) for rows in np.split(best, splits)]


def _top(scores: np.ndarray, numbers: np.ndarray, k: int) -> Hits:
    best = numbers[np.argsort(-scores[numbers], kind="stable")[:k]]
    return list(zip(best.tolist(), scores[best].tolist(), strict=True))
