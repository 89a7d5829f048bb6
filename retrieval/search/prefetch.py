"""Late interaction in two steps, for corpora beyond exact search: mean vectors choose, all token vectors rank."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from raisf.retrieval.search.candidates import Candidates
from raisf.retrieval.search.maxsim import Hits, best_hits, best_products
from raisf.retrieval.store.packing import products, rotation
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

    Where a filter lets through no more passages than would be chosen, all are ranked. The token vectors stay in their
    files, out of which a search reads those that it ranks.

    Args:
        vectors: Of the passages, each of unit length; all packed, or none.
    """

    def __init__(self, vectors: Vectors):
        self._candidates = Candidates(vectors)
        self._files, files, starts, first = list(vectors.files()), [], [], []
        for number, tensors in enumerate(self._files):
            lengths = tensors["lengths"]
            files.append(np.full(len(lengths), number, dtype=np.int32))
            starts.append((lengths.cumsum(0) - lengths).numpy())
            first.append(np.arange(len(lengths), dtype=np.int32))
        self._file, self._start = np.concatenate(files), np.concatenate(starts)
        self._place = np.concatenate(first)
        self._end = self._start + vectors.lengths.numpy()
        self._packed = "codes" in self._files[0]

    def search(self, queries: Sequence["torch.Tensor"], k: int, allowed: np.ndarray) -> list[Hits]:
        """The about `k` best passages for each query; see `MaxSim.search`."""
        count = max(CANDIDATES, PER_HIT * k)
        if np.count_nonzero(allowed) <= count:
            numbers = np.flatnonzero(allowed)
            return [self._rank(query, numbers, k) for query in queries]
        chosen = self._candidates.choose(queries, count, allowed)
        return [self._rank(query, numbers, k) for query, numbers in zip(queries, chosen, strict=True)]

    def _rank(self, query: "torch.Tensor", numbers: np.ndarray, k: int) -> Hits:
        """The `k` best of some passages, given by their numbers in ascending order."""
        groups = [numbers[i : i + _AT_ONCE] for i in range(0, len(numbers), _AT_ONCE)]
        score = self._packed_scores if self._packed else self._scores
        turned = query @ rotation(query.shape[1]) if self._packed else query
        scores = [score(query, turned, group) for group in groups]
        return best_hits(np.concatenate(scores), numbers, k) if scores else []

    def _scores(self, query: "torch.Tensor", _: "torch.Tensor", numbers: np.ndarray) -> np.ndarray:
        return best_products(query, self._read("vectors", numbers).float(), self._starts(numbers)).sum(axis=0)

    def _packed_scores(self, query: "torch.Tensor", turned: "torch.Tensor", numbers: np.ndarray) -> np.ndarray:
        """The scores of packed passages: the products with the mean, and the best products with what is apart from it.

        The first are the same for all vectors of a passage, so that they do not change which one is the best.
        """
        import torch

        apart = products(turned, self._read("codes", numbers))
        best = np.maximum.reduceat(apart.numpy(), self._starts(numbers), axis=1).sum(axis=0)
        files, places = self._file[numbers], torch.from_numpy(self._place[numbers])
        ends = [*np.flatnonzero(np.diff(files)) + 1, len(files)]
        means = torch.cat(
            [self._files[files[start]]["means"][places[start:end]] for start, end in itertools.pairwise([0, *ends])]
        )
        return best + (means.float() @ query.sum(dim=0)).numpy()

    def _read(self, name: str, numbers: np.ndarray) -> "torch.Tensor":
        """What the files hold, under a name, of the vectors of some passages."""
        import torch

        files, starts, ends = self._file[numbers], self._start[numbers], self._end[numbers]
        places = zip(files.tolist(), starts.tolist(), ends.tolist(), strict=True)
        return torch.cat([self._files[file][name][start:end] for file, start, end in places])

    def _starts(self, numbers: np.ndarray) -> np.ndarray:
        """Where, in what `_read` gives, the vectors of each passage begin."""
        lengths = self._end[numbers] - self._start[numbers]
        return lengths.cumsum() - lengths
