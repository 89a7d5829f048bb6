"""Writing the vectors of an index's segments: encoding, merging, compressing."""

import itertools
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import PASSAGES, SEGMENTS, Segment
from raisf.retrieval.store.rows import read_segment, row_of
from raisf.utils.progress import progress_bar

if TYPE_CHECKING:
    import torch

VECTORS, PLAID = "vectors", "plaid"
_WINDOW = 256
"""Passages encoded between two steps of the progress bar."""


class Encoder(Protocol):
    """What turns texts into vectors, for late interaction or dense. Safe to call from several threads."""

    def encode_queries(self, queries: Sequence[str]) -> "list[torch.Tensor]":
        """Vectors `(n_vectors, dim)` for each query, float32 on the CPU."""
        ...

    def encode_passages(self, texts: Sequence[str]) -> "tuple[torch.Tensor, torch.Tensor]":
        """Vectors of all texts, one after the other, float16 `(n_vectors, dim)`, and how many each has `(n_texts,)`."""
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


def write_segment(
    index: Path, name: str, passages: Iterable[Passage], encoder: Encoder | None, progress: bool
) -> Segment:
    """Writes passages as a new segment of the index at `index`: streamed to the disk, then encoded from there.

    Args:
        index: The index folder.
        name: The segment's, that no other has.
        passages: At least one.
        encoder: None for an engine without vectors.
        progress: Whether to show a bar on standard error.
    """
    folder = index / SEGMENTS / name
    shutil.rmtree(folder, ignore_errors=True)  # what a crash has left
    folder.mkdir(parents=True)
    segment = Segment(name, _write_passages(folder, passages), "exact" if encoder else "none")
    if encoder:
        texts = (passage.prompt_text for passage in read_segment(index, segment))
        _encode(encoder, texts, segment.passages, folder / VECTORS, progress)
    return segment


def merge(index: Path, name: str, segments: Sequence[Segment]) -> Segment:
    """Writes the passages of exact segments, without the deleted ones, as one new segment. Encodes nothing."""
    import torch

    from raisf.retrieval.store.vectors import Vectors, write_shard

    folder = index / SEGMENTS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write_passages(folder, (passage for segment in segments for passage in live_passages(index, segment)))
    shard = 0
    for segment in segments if segments[0].search == "exact" else ():
        keep = torch.ones(segment.passages, dtype=torch.bool)
        keep[segment.deleted] = False
        start = 0
        for vectors, lengths in Vectors(index / SEGMENTS / segment.name / VECTORS):
            kept = keep[start : start + len(lengths)]
            start += len(lengths)
            if kept.any():
                write_shard(folder / VECTORS, shard, [(vectors[kept.repeat_interleave(lengths)], lengths[kept])])
                shard += 1
    return Segment(name, sum(segment.alive for segment in segments), segments[0].search)


def compress_segment(index: Path, segment: Segment, progress: bool) -> Segment:
    """Replaces the vectors of a segment that no manifest names yet by a PLAID index of them."""
    from raisf.retrieval.search.plaid import compress
    from raisf.retrieval.store.vectors import Vectors

    folder = index / SEGMENTS / segment.name
    with progress_bar(progress) as bar:
        bar.add_task("compressing vectors", total=None)
        compress(Vectors(folder / VECTORS), folder / PLAID)
    shutil.rmtree(folder / VECTORS)
    return Segment(segment.name, segment.passages, "plaid")


def live_passages(index: Path, segment: Segment) -> Iterable[Passage]:
    """The passages of a segment that are not deleted, in the order of their numbers."""
    deleted = set(segment.deleted)
    return (passage for number, passage in enumerate(read_segment(index, segment)) if number not in deleted)


def _write_passages(folder: Path, passages: Iterable[Passage]) -> int:
    count = 0
    with (folder / PASSAGES).open("w", encoding="utf-8") as out:
        for passage in passages:
            out.write(row_of(passage))
            count += 1
    return count


def _encode(encoder: Encoder, texts: Iterable[str], count: int, folder: Path, progress: bool) -> None:
    from raisf.retrieval.store.vectors import SHARD, write_shard

    texts = iter(texts)
    with progress_bar(progress) as bar:
        task = bar.add_task("encoding passages", total=count)
        for number in range(math.ceil(count / SHARD)):
            parts, shard = [], itertools.islice(texts, SHARD)
            while window := list(itertools.islice(shard, _WINDOW)):
                parts.append(encoder.encode_passages(window))
                bar.advance(task, len(window))
            write_shard(folder, number, parts)
