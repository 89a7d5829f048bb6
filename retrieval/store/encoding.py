"""Encoding the passages of a segment. What a command has encoded that was stopped, or killed, is found again.

The vectors of a large segment's files are kept outside of it until the index that holds them is whole; see `kept`.
"""

import contextlib
import hashlib
import itertools
import math
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from raisf.retrieval.store.packing import PACKING
from raisf.utils.progress import progress_bar

if TYPE_CHECKING:
    import torch

_WINDOW = 256
"""Passages encoded between two steps of the progress bar, and in one task on a cluster; a part of `SHARD`."""


class Encoder(Protocol):
    """What turns texts into vectors, for late interaction or dense. Safe to call from several threads."""

    def encode_queries(self, queries: Sequence[str]) -> "list[torch.Tensor]":
        """Vectors `(n_vectors, dim)` for each query, float32 on the CPU."""
        ...

    def encode_passages(self, texts: Sequence[str]) -> "tuple[torch.Tensor, torch.Tensor]":
        """Vectors of all texts, one after the other, float16 `(n_vectors, dim)`, and how many each has `(n_texts,)`."""
        ...


@runtime_checkable
class StreamEncoder(Encoder, Protocol):
    """An encoder that has several windows of passages under way at a time."""

    def encode_stream(self, windows: Iterable[Sequence[str]]) -> "Iterator[tuple[torch.Tensor, torch.Tensor]]":
        """What `encode_passages` gives for one window after the other, in their order."""
        ...


class Checkpoint(Protocol):
    """A checkpoint on this machine: what it is called, what it is, and its encoder."""

    @property
    def name(self) -> str:
        """As it was asked for."""
        ...

    @property
    def sha256(self) -> str:
        """Of its files."""
        ...

    @property
    def precision(self) -> str:
        """In which it computes: "float32" or "bfloat16"."""
        ...

    def encoder(self) -> Encoder:
        """What it encodes with."""
        ...

    def computing_in(self, precision: str) -> "Checkpoint":
        """The same in another precision."""
        ...


def encode(
    checkpoint: Checkpoint,
    texts: Callable[[], Iterator[str]],
    count: int,
    folder: Path,
    progress: bool,
    packed: bool,
    kept: Path,
) -> None:
    """Writes the vectors of texts as the files of a segment's folder.

    Args:
        checkpoint: What to encode with.
        texts: Gives them anew, each time the same.
        count: How many there are.
        folder: A new one.
        progress: Whether to show a bar on standard error.
        packed: Whether to pack the vectors.
        kept: Where files of the same texts, checkpoint and packing may lie, which are then not encoded again. Of more
            texts than one file holds, each file stands there too, as a hard link, until whoever called deletes the
            folder; a file system without such links keeps none.

    Raises:
        KeyboardInterrupt: Ctrl-C; its message says what is kept, if anything is.
    """
    from raisf.retrieval.store.vectors import SHARD, is_shard, shard_file, write_shard

    def shards() -> Iterator[list[str]]:
        stream = texts()
        return iter(lambda: list(itertools.islice(stream, SHARD)), [])

    sizes = [min(SHARD, count - start) for start in range(0, count, SHARD)]
    of = f"{checkpoint.sha256} {checkpoint.precision} {PACKING if packed else 'exact'}"
    twins = [kept / f"{_digest(of, shard)}.safetensors" for shard in shards()] if count > SHARD else [None] * len(sizes)
    known = [twin is not None and is_shard(twin, size) for twin, size in zip(twins, sizes, strict=True)]
    new = itertools.compress(shards(), [not there for there in known])
    windows = (shard[start : start + _WINDOW] for shard in new for start in range(0, len(shard), _WINDOW))
    encoded = iter(()) if all(known) else _encoded(checkpoint.encoder(), windows)
    safe = sum(itertools.compress(sizes, known))
    try:
        with progress_bar(progress) as bar:
            task = bar.add_task("encoding passages", total=count, completed=safe)
            for number, (twin, size, there) in enumerate(zip(twins, sizes, known, strict=True)):
                if twin is not None and there:
                    folder.mkdir(exist_ok=True)
                    _link(twin, shard_file(folder, number))
                    continue
                parts = []
                for part in itertools.islice(encoded, math.ceil(size / _WINDOW)):
                    parts.append(part)
                    bar.advance(task, len(part[1]))
                write_shard(folder, number, parts, packed)
                if twin is not None and _keep(shard_file(folder, number), twin):
                    safe += size
    except KeyboardInterrupt:
        if not safe:
            raise
        raise KeyboardInterrupt(
            f"stopped: {safe} of {count} passages are encoded and kept in {kept}; the same command goes on from there"
        ) from None


def _encoded(encoder: Encoder, windows: Iterator[Sequence[str]]) -> "Iterator[tuple[torch.Tensor, torch.Tensor]]":
    if isinstance(encoder, StreamEncoder):
        return encoder.encode_stream(windows)
    return map(encoder.encode_passages, windows)


def _digest(of: str, texts: list[str]) -> str:
    digest = hashlib.sha256(of.encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()


def _keep(file: Path, twin: Path) -> bool:
    """Whether the file stands at `twin` too."""
    with contextlib.suppress(OSError):
        twin.parent.mkdir(exist_ok=True)
        twin.unlink(missing_ok=True)  # a damaged one
        os.link(file, twin)
        return True
    return False


def _link(file: Path, twin: Path) -> None:
    try:
        os.link(file, twin)
    except OSError:
        shutil.copyfile(file, twin)
