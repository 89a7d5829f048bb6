"""The score that a query may expect of a passage; and a large segment's passages in cells, few of which a search reads.

The cells are an inverted file: k-means (faiss) over the segment's passages, and the passages of each cell side by side.
They are kept as safetensors, which a search maps, and not as an index of faiss, whose reader trusts the file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raisf.retrieval.store.vectors import Vectors, means_of

if TYPE_CHECKING:
    import torch

CELLS = "cells.safetensors"
CELLS_FROM = 1 << 18
"""Passages of a segment that has cells. Reading the means of fewer takes some ten milliseconds."""

READ = 32
"""A search reads the likeliest cells until it has seen so many passages for each candidate."""

POINTS = 32
"""Vectors a centroid that k-means trains on."""


def promises(file: "dict[str, torch.Tensor]") -> "torch.Tensor":
    """Float32 `(n_passages, dim + 1)`, whose product with (mean of a query's vectors, 1) is the score to be expected.

    What one vector of a query adds to a passage's score is the best of n products. Their mean is the product with the
    passage's mean vector m, and they scatter around it by (1 - |m|²) / dim, were no direction better than another; the
    best of n is expected sqrt(2 ln n) standard deviations above.

    Args:
        file: The tensors of a file of vectors.
    """
    import torch

    means = means_of(file).float()
    variance = (1 - means.square().sum(dim=1)).clamp(min=0) / means.shape[1]
    above = (2 * file["lengths"].log() * variance).sqrt()
    return torch.cat([means, above.unsqueeze(1)], dim=1)


def expecting(query: "torch.Tensor") -> "torch.Tensor":
    """The vector, float32 `(dim + 1,)`, by which `promises` is multiplied for a query `(n_tokens, dim)`."""
    import torch

    return torch.cat([query.mean(dim=0), torch.ones(1)])


def centroid_count(vectors: int) -> int:
    """How many centroids for so many vectors: a power of two, up to 4 times their root, one for 8 vectors at most.

    colbert-ai takes 16 times the root, as its paper does for millions of passages; k-means costs the square of it. On
    9,078 paragraphs twice as many took 2.8 times as long to compress and brought nothing, half as many lost 3 points of
    overlap with exact search.
    """
    return 1 << (max(1, min(int(4 * vectors**0.5), vectors // 8)).bit_length() - 1)


def kmeans(sample: "torch.Tensor", count: int) -> Any:
    """The k-means of faiss, trained on a sample, float32 `(n_vectors, dim)`."""
    import faiss

    # 4 iterations are colbert-ai's; one point a centroid is the least that faiss takes without complaint.
    trained = faiss.Kmeans(sample.shape[1], count, niter=4, seed=123, min_points_per_centroid=1)
    trained.train(sample.numpy())
    return trained


def write_cells(vectors: Vectors, file: Path) -> None:
    """Sorts the passages of a segment into cells. In memory it needs 260 bytes a passage, at 128 dimensions."""
    import torch
    from safetensors.torch import save_file

    count = len(vectors.lengths)
    cells = centroid_count(count)
    rows = torch.cat([promises(tensors).half() for tensors in vectors.files()])
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(1))[: cells * POINTS]
    trained = kmeans(rows[drawn].float(), cells)
    nearest = [trained.index.search(part.float().numpy(), 1)[1][:, 0] for part in rows.split(1 << 16)]
    cell = np.concatenate(nearest)
    order = torch.from_numpy(np.argsort(cell, kind="stable"))
    tensors = {
        "centroids": torch.from_numpy(trained.centroids),
        "sizes": torch.from_numpy(np.bincount(cell, minlength=cells)),
        "numbers": order.int(),
        "rows": rows[order],
    }
    save_file(tensors, file)


class Cells:
    """Searches a file that `write_cells` has written. Mapped; in memory are the cells' centroids."""

    def __init__(self, file: Path):
        from safetensors.torch import load_file

        tensors = load_file(file)
        self._centroids = tensors["centroids"].clone()
        self._ends = tensors["sizes"].cumsum(0).numpy()
        self._starts = self._ends - tensors["sizes"].numpy()
        self._numbers, self._rows = tensors["numbers"].numpy(), tensors["rows"]

    def best(self, query: "torch.Tensor", count: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The about `count` passages that promise most, their numbers and what they promise.

        Cells are read, the likeliest first, until there are `READ` times as many allowed passages or no more cells.

        Args:
            query: See `expecting`.
            count: How many passages at most.
            allowed: Which of the segment's passages may be found, bool `(n_passages,)`.
        """
        numbers, scores, seen = [], [], 0
        for found, promised in self._read(query):
            may = allowed[found]
            numbers.append(found[may])
            scores.append(promised[may])
            seen += len(numbers[-1])
            if seen >= READ * count:
                break
        number, score = np.concatenate(numbers), np.concatenate(scores)
        best = np.argpartition(score, -count)[-count:] if len(score) > count else slice(None)
        return number[best], score[best]

    def _read(self, query: "torch.Tensor", at_once: int = 16) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The passages of some cells after the other, and what they promise."""
        import torch

        likely = np.argsort(-(self._centroids @ query).numpy())
        for some in np.split(likely, range(at_once, len(likely), at_once)):
            places = list(zip(self._starts[some].tolist(), self._ends[some].tolist(), strict=True))
            rows = torch.cat([self._rows[start:end] for start, end in places]).float()
            yield np.concatenate([self._numbers[start:end] for start, end in places]), (rows @ query).numpy()
