"""Encoding the passages of a segment. What a command has encoded that was stopped, or killed, is found again.

The files of a large segment's vectors are kept outside of it until the index that holds them is whole.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import logging
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from raisf.retrieval.store.packing import PACKING
from raisf.utils.errors import RaisfError
from raisf.utils.files import link_or_copy
from raisf.utils.progress import progress_bar
from raisf.utils.space import naming_full_disk

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

_WINDOW = 256
"""Passages encoded between two steps of the progress bar, and in one task on a cluster; a part of `SHARD`."""
_UNKNOWN = 0.1
"""Share of unknown tokens from which on it is told."""


@dataclass
class Reading:
    """What an encoder has read so far: in its `reading`, where it counts.

    Attributes:
        longest: Tokens of a text that it reads; what stands behind them is not encoded.
        cut: Texts that have as many, or more.
        tokens: Of all texts.
        unknown: Those of them that its vocabulary has no words for, such as a script's that it does not know.
    """

    longest: int
    cut: int = 0
    tokens: int = 0
    unknown: int = 0

    def add(self, ids: "torch.Tensor", mask: "torch.Tensor", unknown: int | None) -> None:
        """Counts texts in, by their tokens and attention mask `(n_texts, n_tokens)` and the id of an unknown one."""
        self.cut += int((mask.sum(dim=1) >= self.longest).sum())
        self.tokens += int(mask.sum())
        self.unknown += 0 if unknown is None else int((ids == unknown).sum())


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

    def seen_queries(self) -> frozenset[str]:
        """A print of each query that it was trained on, as far as that is known."""
        ...

    def computing_in(self, precision: str) -> "Checkpoint":
        """The same in another precision."""
        ...


class EncodedFolder:
    """The folder beside an index, .NAME.encoded, where files of vectors stand until the index is whole.

    Each is named by what it was made of, and a hard link: it costs no place, and a file system without such links keeps
    none. Only a folder of the user's own counts: vectors that another had put there would be wrong in silence.

    Attributes:
        folder: Where it is, or would be.
        asked: Whether anything was looked for.
    """

    def __init__(self, index: Path | str):
        place = Path(os.path.realpath(index))
        self.folder = place.parent / f".{place.name}.encoded"
        self.asked = False

    def take(self, name: str, passages: int, place: Path) -> bool:
        """Puts the file of a name at a place, if it is whole and holds so many passages; says whether it did."""
        from raisf.retrieval.store.vectors import is_shard

        self.asked, file = True, self._file(name)
        if not self._is_own() or not is_shard(file, passages):
            return False
        try:
            link_or_copy(file, place)
        except FileNotFoundError:  # another process has just made its index of them
            return False
        return True

    def add(self, name: str, file: Path) -> bool:
        """Keeps a file under a name; says whether it did."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            if self._is_own():
                self._file(name).unlink(missing_ok=True)  # a damaged one
                os.link(file, self._file(name))
                return True
        with contextlib.suppress(OSError):
            self.folder.rmdir()  # where no link can be made; one that holds something stays
        return False

    def drop(self) -> None:
        """Deletes the folder: all that it holds stands in the index."""
        if self._is_own():
            shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def _is_own(self) -> bool:
        try:
            found = os.lstat(self.folder)
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def encode(
    checkpoint: Checkpoint,
    texts: Callable[[], Iterator[str]],
    count: int,
    folder: Path,
    progress: bool,
    packed: bool,
    kept: EncodedFolder,
) -> None:
    """Writes the vectors of texts as the files of a segment's folder.

    Args:
        checkpoint: What to encode with.
        texts: Gives them anew, each time the same.
        count: How many there are.
        folder: A new one.
        progress: Whether to show a bar on standard error.
        packed: Whether to pack the vectors.
        kept: What is found there, of the same texts, checkpoint and packing, is not encoded again. Of more texts than
            one file holds, each file is added.

    Raises:
        KeyboardInterrupt: Ctrl-C; its message says what is kept, if anything is.
        RaisfError: A full disk, or what the encoder raises; likewise.
    """
    from raisf.retrieval.store.vectors import SHARD, shard_file, write_shard

    def shards() -> Iterator[list[str]]:
        stream = texts()
        return iter(lambda: list(itertools.islice(stream, SHARD)), [])

    # One folder can be a checkpoint of ColBERT's and a dense one.
    family = type(getattr(checkpoint, "checkpoint", checkpoint)).__name__
    of = f"{family} {checkpoint.sha256} {checkpoint.precision} {PACKING if packed else 'exact'}"
    sizes = [min(SHARD, count - start) for start in range(0, count, SHARD)]
    names = [_digest(of, shard) for shard in shards()] if count > SHARD else []
    folder.mkdir()
    places = [shard_file(folder, number) for number in range(len(sizes))]
    missing = [not there for there in map(kept.take, names, sizes, places)] if names else [True] * len(sizes)
    unread = itertools.compress(shards(), missing)
    windows = (shard[start : start + _WINDOW] for shard in unread for start in range(0, len(shard), _WINDOW))
    encoder = checkpoint.encoder() if any(missing) else None
    encoded = iter(()) if encoder is None else _encoded(encoder, windows)
    reading = getattr(encoder, "reading", None)  # the nodes of a cluster tell nothing
    before = dataclasses.replace(reading) if reading else None
    new = sum(itertools.compress(sizes, missing))
    safe = count - new
    try:
        with naming_full_disk(folder), progress_bar(progress) as bar:
            task = bar.add_task("encoding passages", total=count, completed=safe)
            for number, size in itertools.compress(enumerate(sizes), missing):
                parts = []
                for part in itertools.islice(encoded, math.ceil(size / _WINDOW)):
                    parts.append(part)
                    bar.advance(task, len(part[1]))
                write_shard(folder, number, parts, packed)
                if names and kept.add(names[number], places[number]):
                    safe += size
    except (KeyboardInterrupt, RaisfError) as error:
        if not safe:
            raise
        told = f"{safe} of {count} passages are encoded and kept in {kept.folder}; the same command goes on from there"
        if isinstance(error, RaisfError):
            raise type(error)(f"{error}; {told}") from error
        raise KeyboardInterrupt(f"stopped: {told}") from None
    if reading and before:
        _tell_unread(reading, before, checkpoint.name, f"{new} passages{' encoded now' if new < count else ''}")


def _tell_unread(now: Reading, before: Reading, name: str, passages: str) -> None:
    """Warns of what an encoder, by its name, has not read of some passages."""
    unknown, tokens, cut = now.unknown - before.unknown, now.tokens - before.tokens, now.cut - before.cut
    if unknown > _UNKNOWN * tokens:
        logger.warning(
            "%s does not know %d%% of these passages' words or characters, and may not tell them apart by "
            "what they mean: a hybrid or bm25 index finds them by words, a --checkpoint for their language by both",
            *(name, 100 * unknown // tokens),
        )
    if cut:
        logger.warning(
            "%d of %s are longer than the %d tokens that %s reads: what stands behind these is found only by its "
            "words, in a hybrid or bm25 index",
            *(cut, passages, now.longest, name),
        )


def _encoded(encoder: Encoder, windows: Iterator[Sequence[str]]) -> "Iterator[tuple[torch.Tensor, torch.Tensor]]":
    if isinstance(encoder, StreamEncoder):
        return encoder.encode_stream(windows)
    return map(encoder.encode_passages, windows)


def _digest(of: str, texts: list[str]) -> str:
    digest = hashlib.sha256(of.encode())
    for text in texts:
        digest.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return digest.hexdigest()
