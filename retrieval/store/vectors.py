"""The token vectors of a corpus on disk: safetensors files of some thousand passages each, written as they come."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from raisf.utils.errors import InputError

if TYPE_CHECKING:
    import torch

SHARD = 4096
"""Passages a file: some 100 MB, small enough to build an index of any size in the memory of a few files."""


class Vectors:
    """Reads what `write_shard` has written into one folder, or into several one after the other.

    Attributes:
        lengths: Vectors of each passage, `(n_passages,)`, int64.
    """

    def __init__(self, *folders: Path):
        import torch

        self._files = [file for folder in folders for file in sorted(folder.glob("*.safetensors"))]
        self.lengths = torch.cat([_read(file)["lengths"] for file in self._files])

    def all(self) -> "torch.Tensor":
        """Every vector in the order of the passages, float32 `(n_vectors, dim)`."""
        import torch

        whole, start = torch.empty(0), 0
        for vectors, _ in self:
            if start == 0:
                whole = torch.empty(int(self.lengths.sum()), vectors.shape[1])
            whole[start : start + len(vectors)] = vectors
            start += len(vectors)
        return whole

    def means(self) -> "torch.Tensor":
        """The mean vector of each passage, float32 `(n_passages, dim)`; computed only where none were written."""
        import torch

        files = (_read(file) for file in self._files)
        return torch.cat(
            [
                file["means"].float() if "means" in file else mean_vectors(file["vectors"], file["lengths"])
                for file in files
            ]
        )

    def __iter__(self) -> Iterator[tuple["torch.Tensor", "torch.Tensor"]]:
        """The vectors of one file after the other, float16 `(n_vectors, dim)`, and its part of `lengths`.

        They are mapped: what nobody looks at is never read, and it can be read though the file has been deleted.
        """
        for file in self._files:
            tensors = _read(file)
            yield tensors["vectors"], tensors["lengths"]

    def sample(self, count: int, seed: int) -> "torch.Tensor":
        """About `count` vectors drawn at random, from each file its share, float32; all if there are fewer."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        share = min(1.0, count / int(self.lengths.sum()))
        drawn = []
        for vectors, _ in self:
            some = torch.randperm(len(vectors), generator=generator)[: math.ceil(len(vectors) * share)]
            drawn.append(vectors[some].float())
        return torch.cat(drawn)


def mean_vectors(vectors: "torch.Tensor", lengths: "torch.Tensor") -> "torch.Tensor":
    """The mean vector of each passage, float32 `(n_passages, dim)`.

    Args:
        vectors: Of all passages, one after the other, `(n_vectors, dim)`.
        lengths: How many each has, at least one, `(n_passages,)`.
    """
    import torch

    return torch.segment_reduce(vectors.float(), "mean", lengths=lengths)


def write_shard(folder: Path, number: int, parts: Iterable[tuple["torch.Tensor", "torch.Tensor"]]) -> None:
    """Writes the vectors and lengths of the passages of one file, given in parts, and the passages' mean vectors.

    Where each has one vector that is its mean, and is not written twice.
    """
    import torch
    from safetensors.torch import save_file

    vectors, lengths = (torch.cat(part) for part in zip(*parts, strict=True))
    tensors = {"vectors": vectors, "lengths": lengths}
    if len(vectors) > len(lengths):
        tensors["means"] = mean_vectors(vectors, lengths).half()
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / f"{number:05d}.safetensors")


def _read(file: Path) -> "dict[str, torch.Tensor]":
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except SafetensorError as error:
        raise InputError(f"{file} is damaged ({error}); make the index again") from error
