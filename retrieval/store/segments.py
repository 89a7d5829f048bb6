"""Writing the segments of an index: new ones, merged ones, compressed ones."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from raisf.retrieval.passage import Passage
from raisf.retrieval.store.encoding import Checkpoint, EncodedFolder, encode
from raisf.retrieval.store.manifest import PASSAGES, PLAID, SEGMENTS, VECTORS, Segment
from raisf.retrieval.store.packing import PACKING
from raisf.retrieval.store.rows import line_of, read_segment
from raisf.utils.progress import progress_bar


def vectors_folder(index: Path, segment: Segment) -> Path:
    """Where an index keeps the vectors of a segment that is not compressed."""
    return index / SEGMENTS / segment.name / VECTORS


def write_segment(
    index: Path,
    name: str,
    passages: Iterable[Passage],
    checkpoint: Checkpoint | None,
    progress: bool,
    exact_up_to: float,
    kept: EncodedFolder,
) -> Segment:
    """Writes passages as a new segment of the index at `index`: streamed to the disk, then encoded from there.

    Args:
        index: The index folder.
        name: The segment's, that no other has.
        passages: At least one.
        checkpoint: None for an engine without vectors.
        progress: Whether to show a bar on standard error.
        exact_up_to: The vectors of more passages are packed.
        kept: See `encode`.
    """
    folder = index / SEGMENTS / name
    folder.mkdir(parents=True)
    count = _write_passages(folder, passages)
    if not checkpoint:
        return Segment(name, count, "none")
    segment = _segment(name, count, count > exact_up_to)

    def texts() -> Iterator[str]:
        return (passage.prompt_text for passage in read_segment(index, segment))

    encode(checkpoint, texts, count, folder / VECTORS, progress, segment.packing is not None, kept)
    _sort(folder, segment)
    return segment


def merge(index: Path, name: str, segments: Sequence[Segment], packed: bool = False) -> Segment:
    """Writes the passages of exact and packed segments, without the deleted ones, as one new segment. Encodes nothing.

    Args:
        index: The index folder.
        name: The new segment's.
        segments: At least one; exact ones stay as they are where nothing is packed.
        packed: Whether to pack what is not packed.
    """
    import torch

    from raisf.retrieval.store.vectors import Gathered, Vectors

    folder = index / SEGMENTS / name
    folder.mkdir(parents=True)
    count = _write_passages(folder, (passage for segment in segments for passage in live_passages(index, segment)))
    if segments[0].search == "none":
        return Segment(name, count, "none")
    merged = _segment(name, count, packed or any(segment.packing for segment in segments))
    gathered = Gathered(folder / VECTORS, merged.packing is not None)
    for segment in segments:
        keep, start = torch.from_numpy(alive_in(segment)), 0
        for tensors in Vectors(vectors_folder(index, segment)).files():
            end = start + len(tensors["lengths"])
            gathered.add(tensors, keep[start:end])
            start = end
    gathered.write()
    _sort(folder, merged)
    return merged


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


def alive_in(segment: Segment) -> np.ndarray:
    """Which passages of a segment are not deleted, bool `(n_passages,)`."""
    alive = np.ones(segment.passages, dtype=bool)
    alive[segment.deleted] = False
    return alive


def _write_passages(folder: Path, passages: Iterable[Passage]) -> int:
    count = 0
    with (folder / PASSAGES).open("w", encoding="utf-8") as out:
        for passage in passages:
            out.write(line_of(passage))
            count += 1
    return count


def _segment(name: str, count: int, packed: bool) -> Segment:
    return Segment(name, count, "packed", packing=PACKING) if packed else Segment(name, count, "exact")


def _sort(folder: Path, segment: Segment) -> None:
    """Writes the cells of a segment that is large enough for them."""
    from raisf.retrieval.search import cells
    from raisf.retrieval.store.vectors import Vectors

    if segment.packing and segment.passages >= cells.CELLS_FROM:
        cells.write_cells(Vectors(folder / VECTORS), folder / cells.CELLS)
