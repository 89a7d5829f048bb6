"""Choosing the passages whose token vectors are worth looking at, by their mean vectors."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from raisf.retrieval.search.cells import CELLS, Cells, expecting, promises
from raisf.retrieval.search.maxsim import QUERIES
from raisf.retrieval.store.vectors import Vectors

if TYPE_CHECKING:
    import torch


class Candidates:
    """Finds the passages that promise a query most; see `raisf.retrieval.search.cells.promises`.

    Of large segments a search reads the likeliest cells, out of their files. All means of the others are in memory, 516
    bytes a passage, and read whole.

    Args:
        vectors: Of the passages, each of unit length.
    """

    def __init__(self, vectors: Vectors):
        import torch

        self._cells: list[tuple[int, int, Cells]] = []
        flat, numbers, start = [torch.empty(0)], [np.empty(0, dtype=np.int64)], 0
        for folder, part in vectors.folders():
            end = start + len(part.lengths)
            if (file := folder.parent / CELLS).is_file():
                self._cells.append((start, end, Cells(file)))
            else:
                flat += [promises(tensors) for tensors in part.files()]
                numbers.append(np.arange(start, end))
            start = end
        self._flat = torch.cat(flat) if len(flat) > 1 else None
        self._numbers = np.concatenate(numbers)

    def choose(self, queries: Sequence["torch.Tensor"], count: int, allowed: np.ndarray) -> Iterator[np.ndarray]:
        """The numbers, ascending, of the about `count` most promising passages for each query `(n_tokens, dim)`.

        Args:
            queries: Their vectors.
            count: How many passages.
            allowed: Which passages may be chosen, bool `(n_passages,)`; more than `count`.
        """
        import torch

        flat = np.flatnonzero(allowed[self._numbers])
        for start in range(0, len(queries), QUERIES):
            rows = torch.stack([expecting(query) for query in queries[start : start + QUERIES]])
            expected = (rows @ self._flat.T).numpy() if self._flat is not None else np.empty((len(rows), 0))
            for row, scores in zip(rows, expected, strict=True):
                parts = [(self._numbers[flat], scores[flat])]
                for first, end, cells in self._cells:
                    numbers, promised = cells.best(row, count, allowed[first:end])
                    parts.append((numbers + first, promised))
                number, score = (np.concatenate(part) for part in zip(*parts, strict=True))
                chosen = np.argpartition(score, -count)[-count:] if len(score) > count else slice(None)
                yield np.sort(number[chosen])
