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
        self._files = [file for folder in folders for file in _files_of(folder)]
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
    """The mean vector, float32 `(n_passages, dim)`, of each passage, which has at least one vector."""
    import torch

    return torch.segment_reduce(vectors.float(), "mean", lengths=lengths)


def means_of(file: "dict[str, torch.Tensor]") -> "torch.Tensor":
    """The mean vector of each passage of a file, `(n_passages, dim)`; computed only where none were written."""
    return file["means"] if "means" in file else mean_vectors(file["vectors"], file["lengths"])


def write_shard(
    folder: Path, number: int, parts: Iterable[tuple["torch.Tensor", "torch.Tensor"]], packed: bool = False
) -> None:
    """Writes the vectors and lengths of the passages of one file, given in parts, and the passages' mean vectors."""
    import torch

    vectors, lengths = (torch.cat(part) for part in zip(*parts, strict=True))
    _write(folder, number, _tensors(vectors, lengths, packed))


def is_shard(file: Path, passages: int) -> bool:
    """Whether there is a file of the vectors of so many passages, and it is whole."""
    if not file.is_file():
        return False
    try:
        tensors = _read(file)
    except InputError:
        return False
    vectors = tensors.get("codes", tensors.get("vectors", ()))
    return len(tensors["lengths"]) == passages and int(tensors["lengths"].sum()) == len(vectors)


class Gathered:
    """Writes some of the passages of other folders' files as one folder's, as few as hold `SHARD` passages each.

    Args:
        folder: The new one.
        packed: Whether to pack what is not packed.
    """

    def __init__(self, folder: Path, packed: bool):
        self._folder, self._packed = folder, packed
        self._parts: list[dict[str, torch.Tensor]] = []
        self._number = 0

    def add(self, file: "dict[str, torch.Tensor]", kept: "torch.Tensor") -> None:
        """Takes the passages of a file that are kept, bool `(n_passages,)`."""
        if not kept.any():
            return
        rows, passage = kept.repeat_interleave(file["lengths"]), ("lengths", "means")
        part = {name: tensor[kept if name in passage else rows] for name, tensor in file.items()}
        if self._packed and "codes" not in part:
            part = _tensors(part["vectors"], part["lengths"], packed=True)
        if sum(len(one["lengths"]) for one in [*self._parts, part]) > SHARD:
            self.write()
        self._parts.append(part)

    def write(self) -> None:
        """Writes what is not written yet."""
        import torch

        if not self._parts:
            return
        # Where each passage of a part has one vector, its mean is that, and was not written twice.
        for part in self._parts:
            if any("means" in other for other in self._parts):
                part["means"] = means_of(part).half()
        joined = {name: torch.cat([part[name] for part in self._parts]) for name in self._parts[0]}
        _write(self._folder, self._number, joined)
        self._number, self._parts = self._number + 1, []


def _tensors(vectors: "torch.Tensor", lengths: "torch.Tensor", packed: bool) -> "dict[str, torch.Tensor]":
    """What a file holds. Where each passage has one vector that is its mean, and is not written twice."""
    tensors = {"vectors": vectors, "lengths": lengths}
    if len(vectors) > len(lengths) or packed:
        tensors["means"] = mean_vectors(vectors, lengths).half()
    if packed:
        tensors["codes"] = pack(tensors.pop("vectors"), tensors["means"], lengths)
    return tensors


def _files_of(folder: Path) -> list[Path]:
    """The files of a folder in the order of their numbers, which may have more digits than the first's.

    What else lies there, such as the copy `00000 (1)` of a program that syncs folders, is none of them: its vectors
    would be taken for those of the next passages.
    """
    return sorted((file for file in folder.glob("*.safetensors") if file.stem.isdecimal()), key=lambda f: int(f.stem))


def shard_file(folder: Path, number: int) -> Path:
    """Where `write_shard` writes."""
    return folder / f"{number:05d}.safetensors"


def _write(folder: Path, number: int, tensors: "dict[str, torch.Tensor]") -> None:
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    save_file(tensors, shard_file(folder, number))


def _read(file: Path) -> "dict[str, torch.Tensor]":
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except SafetensorError as error:
        raise InputError(f"{file} is damaged ({error}); make the index again") from error
