"""What an index folder says of itself: its segments, the documents they hold, and every file with size and checksum.

    manifest.json            the one file that is ever replaced; what it does not name does not belong to the index
    segments/1/              passages and their vectors, written once and never changed
        passages.jsonl
        vectors/ or plaid/   exact or packed, or compressed by PLAID
        cells.safetensors    of a large packed segment: its mean vectors, sorted
    segments/2/              what was added later
    words-2/                 BM25's counts over the whole corpus

Passages that were removed, and old versions, are found no more but stay in their segment's files, listed as deleted.
Exact and packed segments are written anew without them when they are merged: those of one size when there are many,
all as soon as more than a quarter of their passages are deleted. PLAID's never are: the files of one go when all of its
passages have gone.
"""

import errno
import glob
import importlib.metadata
import itertools
import os
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import ujson

from raisf.retrieval.store.packing import PACKING
from raisf.utils.errors import InputError
from raisf.utils.files import LOCK, sha256_file
from raisf.utils.leftovers import sweep
from raisf.utils.typed import check_types

FORMAT = 3
"""Raised when an older version could not read what this one writes, or the other way round."""

READABLE = (2, FORMAT)
"""The second had no packed segments."""

MANIFEST, PASSAGES, SEGMENTS = "manifest.json", "passages.jsonl", "segments"
INDEX = (MANIFEST, SEGMENTS, "words-*", LOCK)
"""All that lies in an index's folder."""
WHOLE_WORDS = "whole-words"
"""A file beside BM25's counts: single characters, Chinese and composed letters count too, and vowel signs belong to
their words, which they once did not."""
DOTLESS = "dotless"
"""Likewise, where passages have them: the Turkish letters \u0130 and \u0131 count as i."""
EXACT_UP_TO = 10_000
"""Passages that "auto" still compares all, as they are; with more, it packs all. And those that an index of PLAID's
takes in before it compresses them.

Of 10,000 paragraphs with 92 vectors each, exact search takes 0.15 s of one core and 0.5 GB of memory."""

VECTORS, PLAID = "vectors", "plaid"
_SEARCHES = {"exact": VECTORS, "packed": VECTORS, "plaid": PLAID, "none": PASSAGES}
"""What a segment is searched by, in its folder."""

LIBRARIES = ("bm25s", "colbert-ai", "faiss-cpu", "torch", "transformers")

_SWAP = 2.0
"""Seconds to wait for a folder that is just being replaced, which takes two renames; between them it is not there."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
"""What the system says where no file is."""

SMALL = 1 << 20
"""Bytes of a file whose checksum is verified whenever the index is opened: a millisecond. `verify` reads all."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of an index that was written in one go.

    Attributes:
        name: Its folder in `segments/`.
        passages: How many it holds, the deleted ones too.
        search: What its vectors are: "exact", "packed" or "plaid"; "none" where the engine needs none.
        deleted: Numbers of its passages that are no longer part of the index, ascending.
        packing: How they are packed, see `raisf.retrieval.store.packing`; None where they are not.
    """

    name: str
    passages: int
    search: str
    deleted: list[int] = field(default_factory=list)
    packing: str | None = None

    @property
    def alive(self) -> int:
        """How many of its passages are not deleted."""
        return self.passages - len(self.deleted)


@dataclass(frozen=True, slots=True)
class File:
    """A file of an index: its size in bytes, and its SHA-256."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class IndexManifest:
    """What an index is and what it was made from.

    Attributes:
        kind: The engine: "colbert", "bm25", "dense" or "hybrid".
        search: As it was asked for: "auto", "exact" or "plaid"; "none" where there are no vectors.
        passages: How many can be found.
        corpus_sha256: Of these passages, whatever their order and segments.
        checkpoint: The encoder's checkpoint: "raisf-minilm", "minilm", an absolute folder or a hub id; None for BM25.
        checkpoint_sha256: Of the checkpoint's files.
        segments: In the order of the passages' numbers.
        words: The folder of BM25's counts; None where the engine has none.
        documents: The fingerprint of each document that was read, by its name.
        files: Each other file of the folder, by its path in it.
        versions: The libraries it was made with; for the curious, not checked.
        format: The version of this layout.
        checkpoint_relative: The checkpoint's folder as seen from the index's, for when both are moved together; None
            where it is no folder.
        precision: In which its vectors were computed, "float32" or "bfloat16", and its queries are; None where there
            are none, or where it was made before that was told.
    """

    kind: str
    search: str
    passages: int
    corpus_sha256: str
    checkpoint: str | None
    checkpoint_sha256: str | None
    segments: list[Segment]
    words: str | None
    documents: dict[str, str]
    files: dict[str, File]
    versions: dict[str, str]
    format: int = FORMAT
    checkpoint_relative: str | None = None
    precision: str | None = None

    @property
    def shown_search(self) -> str:
        """How its passages are searched at present: "exact", "prefetch", "plaid", "exact + plaid", ... or "none"."""
        prefetch = {"packed"} | ({"exact"} if self.prefetches else set())
        kinds = {segment.search for segment in self.segments}
        return " + ".join(sorted({"prefetch" if kind in prefetch else kind for kind in kinds}))

    @property
    def ranking(self) -> str:
        """All of it that decides the scores: how it is searched, vectors packed, words counted; and in bfloat16."""
        packing = f" ({self.packing})" if self.packing else ""
        marks = {WHOLE_WORDS: " whole words", DOTLESS: " dotless"}
        words = "".join(told for mark, told in marks.items() if f"{self.words}/{mark}" in self.files)
        precision = f" {self.precision}" if self.precision not in (None, "float32") else ""
        return self.shown_search + packing + words + precision

    @property
    def prefetches(self) -> bool:
        """Whether it has more exact vectors than are compared, as format 2 had; its next change packs them."""
        exact = (segment.alive for segment in self.segments if segment.search == "exact")
        return self.search == "auto" and sum(exact) > EXACT_UP_TO

    @property
    def packing(self) -> str | None:
        """How its vectors are packed, and whatever is added will be; None where they are not."""
        return next((segment.packing for segment in self.segments if segment.packing), None)


class DamagedIndex(InputError):
    """An index of ours, as far as can be told, some of whose bytes are not as they were written."""


def check_no_strangers_manifest(path: Path) -> None:
    """Refuses a folder whose manifest is another program's, such as a web page's; a damaged one may be an index's.

    Raises:
        InputError: It is.
    """
    raw = _raw_manifest(path)
    try:
        found: Any = ujson.loads(raw or "")
    except ValueError:
        return
    if not _tells_an_index(found):
        raise InputError(f"{path} holds a {MANIFEST} that is no index's, which would be replaced: give a new folder")


def _tells_an_index(found: Any) -> bool:
    return isinstance(found, dict) and {"format", "kind"} <= found.keys()


def read_manifest(path: Path | str, check: bool = True) -> IndexManifest:
    """The manifest of the index in a folder, after a look at its files: sizes of all, checksums of the small ones.

    Args:
        path: The folder.
        check: False: no look at the files.

    Raises:
        InputError: Nothing there, a folder that is not an index, or another format version.
        DamagedIndex: Files are missing or changed.
    """
    path = Path(path)
    make = f"make one with: raisf index DOCS --out {shlex.quote(str(path))}"
    real = Path(os.path.realpath(path))  # where a link leads, the folder itself is replaced
    raw = _raw_manifest(real)
    sweep(real)
    if raw is None and (raw := _raw_manifest(real)) is None:  # the sweep may have put it back
        raise InputError(_no_index(path, make))
    try:
        found: Any = ujson.loads(raw)
    except ValueError as error:
        raise DamagedIndex(f"the {MANIFEST} of {path} is not JSON ({error}); {make}") from error
    if not _tells_an_index(found):
        raise InputError(
            f"{path} is not an index of this program: its {MANIFEST} says other things; give a folder that "
            "`raisf index` made"
        )
    if found["format"] not in READABLE:
        formats = " and ".join(map(str, READABLE))
        raise InputError(f"the index {path} has format {found['format']}, this version reads {formats}; {make}")
    try:
        segments = [Segment(**segment) for segment in found.pop("segments")]
        files = {_inside(name): File(**file) for name, file in found.pop("files").items()}
        manifest = IndexManifest(segments=segments, files=files, **found)
        _check(manifest)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DamagedIndex(f"the {MANIFEST} of {path} is damaged ({error}); {make}") from error
    if other := {segment.packing for segment in segments} - {None, PACKING}:
        raise InputError(f"the index {path} is packed as {other.pop()!r}, this version reads {PACKING!r}; {make}")
    if check and (problem := next(verify(path, manifest, largest=SMALL), None)):
        if _raw_manifest(real) != raw:
            return read_manifest(path)  # another process has just changed the index, and with it the files
        raise DamagedIndex(f"the index {path} is damaged: {problem}; {make}")
    return manifest


def _check(manifest: IndexManifest) -> None:
    """Makes sure that a manifest, which may come from a stranger, holds together.

    Raises:
        TypeError: Something in it has another type than it should.
        ValueError: What it says cannot be.
    """
    for record in (manifest, *manifest.segments, *manifest.files.values()):
        check_types(record)
    for segment in manifest.segments:
        ends = [-1, *segment.deleted, segment.passages]
        if any(one >= other for one, other in itertools.pairwise(ends)):
            raise ValueError(f"the deleted of segment {segment.name} are not ascending numbers of its passages")
        if segment.search not in _SEARCHES:
            raise ValueError(f"segment {segment.name} is searched by {segment.search!r}")
    if not 0 < manifest.passages == sum(segment.alive for segment in manifest.segments):
        raise ValueError(f"its segments do not hold the {manifest.passages} passages that it tells of")
    needed = [manifest.words] if manifest.words is not None else []
    for segment in manifest.segments:
        needed += [f"{SEGMENTS}/{segment.name}/{name}" for name in (PASSAGES, _SEARCHES[segment.search])]
    held = {str(part) for name in manifest.files for part in (name, *PurePosixPath(name).parents)}
    if unknown := [name for name in needed if name not in held]:
        raise ValueError(f"it has no checksum of {unknown[0]}")


def verify(path: Path, manifest: IndexManifest, largest: float = float("inf")) -> Iterator[str]:
    """What is wrong with the files of an index, one line a file; nothing if all are as they were written.

    Args:
        path: The index folder.
        manifest: Its manifest.
        largest: Files above so many bytes are only measured, not read.
    """
    for name, wanted in manifest.files.items():
        file = path / name
        try:
            if (size := file.stat().st_size) != wanted.bytes:
                yield f"{name} has {size} bytes, not {wanted.bytes}"
            elif size <= largest and sha256_file(file) != wanted.sha256:
                yield f"{name} has changed since the index was made"
        except (FileNotFoundError, NotADirectoryError):
            yield f"{name} is missing"


def describe_files(path: Path, folders: Iterable[Path]) -> dict[str, File]:
    """Size and checksum of each file in some folders of the index at `path`."""
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(path).as_posix(): File(file.stat().st_size, sha256_file(file)) for file in files}


def library_versions() -> dict[str, str]:
    """The versions of the libraries that an index depends on."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def _raw_manifest(folder: Path) -> bytes | None:
    """What stands in the manifest; None where there is none.

    It waits while another process is between the two renames of `raisf.utils.files.atomic_folder`.
    """
    file, old = folder / MANIFEST, f".{glob.escape(folder.name)}.*.old"
    end = time.monotonic() + _SWAP
    while True:
        try:
            return file.read_bytes()
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            replaced = any(folder.parent.glob(old)) or file.is_file()  # still going on, or done since
            if not replaced or time.monotonic() > end:
                return None
            time.sleep(0.005)


def _no_index(path: Path, make: str) -> str:
    if not path.exists():
        return f"no index at {path}; {make}"
    shown = shlex.quote(str(path))
    if not path.is_dir():
        return f"{path} is a file, an index is a folder; of documents make one with: raisf index {shown} --out DIR"
    return (
        f"{path} is not an index: it has no {MANIFEST}; give another folder, or, if documents are in it, make an index "
        f"of them: raisf index {shown} --out DIR"
    )


def _inside(name: str) -> str:
    """The name of a file of an index, which may come from a stranger, and must not lead out of the folder."""
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} lies outside of the index")
    return name
