"""The token vectors of a corpus on disk: safetensors files of some thousand passages each, written as they come.

A file holds, of each passage, how many vectors it has (`lengths`) and their mean (`means`, float16); and the vectors,
as they are (`vectors`, float16), or packed (`codes`, see `raisf.retrieval.store.packing`).
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from raisf.retrieval.store.packing import pack, unpack
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    import torch

SHARD = 4096
"""Passages a file: some 100 MB, 24 when packed, so that an index of any size is built in the memory of a few."""


class Vectors:
    """Reads what `write_shard` has written into one folder, or into several one after the other, packed or not.

    Attributes:
        lengths: Vectors of each passage, `(n_passages,)`, int64.
    """

    def __init__(self, *folders: Path):
        import torch

        self._folders = folders
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

        return torch.cat([means_of(file).float() for file in self.files()])

    def folders(self) -> "Iterator[tuple[Path, Vectors]]":
        """Each folder, and its part."""
        return ((folder, Vectors(folder)) for folder in self._folders)

    def files(self) -> "Iterator[dict[str, torch.Tensor]]":
        """The tensors of one file after the other.

        They are mapped: what nobody looks at is never read, and it can be read though the file has been deleted.
        """
        return (_read(file) for file in self._files)

    def __iter__(self) -> Iterator[tuple["torch.Tensor", "torch.Tensor"]]:
        """The vectors of one file after the other, float16 `(n_vectors, dim)`, and its part of `lengths`.

        Those that are not packed are mapped.
        """
        for file in self.files():
            yield (unpack(file).half() if "codes" in file else file["vectors"]), file["lengths"]

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


def means_of(file: "dict[str, torch.Tensor]") -> "torch.Tensor":
    """The mean vector of each passage of a file, `(n_passages, dim)`; computed only where none were written."""
    return file["means"] if "means" in file else mean_vectors(file["vectors"], file["lengths"])


def write_shard(
    folder: Path, number: int, parts: Iterable[tuple["torch.Tensor", "torch.Tensor"]], packed: bool = False
) -> None:
    """Writes the vectors and lengths of the passages of one file, given in parts, and the passages' mean vectors.

    Where each has one vector that is its mean, and is not written twice.
    """
    import torch

    vectors, lengths = (torch.cat(part) for part in zip(*parts, strict=True))
    tensors = {"vectors": vectors, "lengths": lengths}
    if len(vectors) > len(lengths) or packed:
        tensors["means"] = mean_vectors(vectors, lengths).half()
    if packed:
        tensors["codes"] = pack(tensors.pop("vectors"), tensors["means"], lengths)
    _write(folder, number, tensors)


def copy_shard(file: "dict[str, torch.Tensor]", kept: "torch.Tensor", folder: Path, number: int) -> None:
    """Writes some passages of a file, bool `(n_passages,)`, as one of another folder, packed or not as they are."""
    rows = kept.repeat_interleave(file["lengths"])
    passage = ("lengths", "means")
    _write(folder, number, {name: tensor[kept if name in passage else rows] for name, tensor in file.items()})


def _write(folder: Path, number: int, tensors: "dict[str, torch.Tensor]") -> None:
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / f"{number:05d}.safetensors")


def _read(file: Path) -> "dict[str, torch.Tensor]":
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except SafetensorError as error:
        raise InputError(f"{file} is damaged ({error}); make the index again") from error
