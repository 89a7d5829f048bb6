"""Late interaction in two steps, for corpora beyond exact search: mean vectors choose, all token vectors rank."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from raisf.retrieval.search.maxsim import QUERIES, Hits, best_hits, best_products
from raisf.retrieval.store.vectors import Vectors

if TYPE_CHECKING:
    import torch

CANDIDATES, PER_HIT = 800, 4
"""Passages that are chosen: so many, or so many for each one asked for, whichever are more.

Out of 10,000 Wikipedia paragraphs 800 hold 99.5% of the first ten of exact search (100 HotpotQA questions, checkpoint
minilm), 200 hold 95.9%; out of 100,000 passages (14,861 paragraphs, their 54,221 sentences, 30,918 of the closed world)
98.4 and 94.5%. Ranked by the cosine of the means alone 800 would hold 96.0% there, by their product 88.1%."""

_AT_ONCE = 128
"""Passages whose vectors are compared at once: some 6 MB, which a processor can keep in its cache."""


class Prefetch:
    """Ranks, by MaxSim, the passages that their mean vectors promise most of.

    What one vector of a query adds to a passage's score is the best of n products. Their mean is the product with the
    passage's mean vector m, and they scatter around it by (1 - |m|²) / dim, were no direction better than another; the
    best of n is expected sqrt(2 ln n) standard deviations above. The sum of both orders the passages.

    Where a filter lets through no more passages than would be chosen, it is exact search. In memory are the means, 512
    bytes a passage; the token vectors stay in their files, out of which a search reads those that it ranks.

    Args:
        vectors: Of the passages, each of unit length.
    """

    def __init__(self, vectors: Vectors):
        self._means = vectors.means()
        variance = (1 - self._means.square().sum(dim=1)).clamp(min=0) / self._means.shape[1]
        self._above = (2 * vectors.lengths.log() * variance).sqrt()
        self._files, files, starts = [], [], []
        for number, (rows, lengths) in enumerate(vectors):
            self._files.append(rows)
            files.append(np.full(len(lengths), number))
            starts.append((lengths.cumsum(0) - lengths).numpy())
        self._file, self._start = np.concatenate(files), np.concatenate(starts)
        self._end = self._start + vectors.lengths.numpy()

    def search(self, queries: Sequence["torch.Tensor"], k: int, allowed: np.ndarray | None = None) -> list[Hits]:
        """The about `k` best passages for each query `(n_tokens, dim)`; among equals the earlier one.

        Args:
            queries: Their vectors.
            k: How many passages at most.
            allowed: Which passages may be found, bool `(n_passages,)`; None: all.
        """
        numbers = np.arange(len(self._end)) if allowed is None else np.flatnonzero(allowed)
        count = max(CANDIDATES, PER_HIT * k)
        if len(numbers) <= count:
            return [self._rank(query, numbers, k) for query in queries]
        hits: list[Hits] = []
        for start in range(0, len(queries), QUERIES):
            group = queries[start : start + QUERIES]
            for query, scores in zip(group, self._promise(group), strict=True):
                chosen = np.argpartition(scores[numbers], -count)[-count:]
                hits.append(self._rank(query, np.sort(numbers[chosen]), k))
        return hits

    def _promise(self, queries: Sequence["torch.Tensor"]) -> np.ndarray:
        """What each query may expect of each passage, `(n_queries, n_passages)`."""
        import torch

        return (torch.stack([query.mean(dim=0) for query in queries]) @ self._means.T + self._above).numpy()

    def _rank(self, query: "torch.Tensor", numbers: np.ndarray, k: int) -> Hits:
        """The `k` best of some passages, given by their numbers in ascending order."""
        groups = [numbers[i : i + _AT_ONCE] for i in range(0, len(numbers), _AT_ONCE)]
        scores = [best_products(query, *self._read(group)).sum(axis=0) for group in groups]
        return best_hits(np.concatenate(scores), numbers, k) if scores else []

    def _read(self, numbers: np.ndarray) -> tuple["torch.Tensor", np.ndarray]:
        """The vectors of some passages, float32, and where each one's begin."""
        import torch

        files, starts, ends = self._file[numbers], self._start[numbers], self._end[numbers]
        places = zip(files.tolist(), starts.tolist(), ends.tolist(), strict=True)
        rows = torch.cat([self._files[file][start:end] for file, start, end in places])
        return rows.float(), (ends - starts).cumsum() - (ends - starts)
