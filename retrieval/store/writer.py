"""Changing index folders, a new one or one in use.

A change writes new segments beside the old ones and then one new manifest, in one rename. So a crash leaves the old
index, a reader that has opened it keeps it, and whoever opens it next sees the change.
"""

import contextlib
import dataclasses
import math
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from raisf.retrieval.passage import Passage
from raisf.retrieval.store.encoding import Checkpoint, EncodedFolder
from raisf.retrieval.store.manifest import (
    EXACT_UP_TO,
    FORMAT,
    INDEX,
    MANIFEST,
    SEGMENTS,
    File,
    IndexManifest,
    Segment,
    check_no_strangers_manifest,
    describe_files,
    library_versions,
    read_manifest,
)
from raisf.retrieval.store.rows import CorpusHash, read_segment
from raisf.retrieval.store.segments import compress_segment, live_passages, merge, write_segment
from raisf.retrieval.store.words import write_words
from raisf.utils.errors import InputError
from raisf.utils.files import LOCK, atomic_folder, locked, write_json
from raisf.utils.leftovers import sweep
from raisf.utils.progress import progress_bar
from raisf.utils.space import naming_full_disk

MOST_SEGMENTS = 8
"""Exact or packed segments of one size, a power of eight, beside each other: more are merged, which copies vectors and
encodes nothing. So a passage is copied once a power, and a large segment never because of a small one."""


class Writer:
    """Changes to an index; they count once `commit` has run.

    Attributes:
        folder: The index.
        manifest: As it was when the changes began.
        segments: As they are to be.
        checkpoint: What `add` encodes with; None for an engine without vectors.

    Args:
        folder: The index.
        manifest: Its manifest.
        checkpoint: That of the manifest.
        progress: Whether to show bars on standard error.
        kept: Where vectors stand until the changes count.
    """

    def __init__(
        self, folder: Path, manifest: IndexManifest, checkpoint: Checkpoint | None, progress: bool, kept: EncodedFolder
    ):
        self.folder = folder
        self.manifest = manifest
        self.segments = list(manifest.segments)
        self.checkpoint = checkpoint
        self._progress = progress
        self._kept = kept
        # The folders of one change are numbered on from those of the changes before.
        self._written = max((int(re.sub(r"\D", "", _folder_of(name))) for name in manifest.files), default=0)

    def live(self) -> Iterator[Passage]:
        """The passages that can be found, in the order of their numbers, streamed from the disk."""
        for segment in self.segments:
            yield from live_passages(self.folder, segment)

    def add(self, passages: Iterable[Passage]) -> None:
        """Writes a segment of passages, at least one, with ids that are new to the index."""
        most = math.inf if self.manifest.search != "auto" else 0 if self.manifest.packing else EXACT_UP_TO
        name = self._new_name()
        segment = write_segment(self.folder, name, passages, self.checkpoint, self._progress, most, self._kept)
        self.segments.append(segment)

    def delete(self, pids: Iterable[str]) -> None:
        """Takes passages out that were there when the changes began, not those that `add` has put in their place."""
        gone = frozenset(pids)
        for place, segment in enumerate(self.manifest.segments):
            passages = enumerate(read_segment(self.folder, segment))
            found = {number for number, passage in passages if passage.pid in gone}
            self.segments[place] = dataclasses.replace(segment, deleted=sorted(found.union(segment.deleted)))

    def commit(self, documents: dict[str, str], **place: Any) -> None:
        """Makes the changes count.

        Args:
            documents: The fingerprint of each document that the index now holds.
            **place: Where its checkpoint is now, see `engines.checkpoints.place_of`; none: where it was.

        Raises:
            InputError: Nothing would be left.
        """
        corpus, count = CorpusHash(), 0
        for passage in self.live():
            corpus.add(passage)
            count += 1
        if not count:
            raise InputError(f"nothing would be left of the index {self.folder}: delete the folder instead")
        self._settle()
        words = None
        if self.manifest.words is not None:
            words = f"words-{self._new_name()}"
            with progress_bar(self._progress) as bar:
                bar.add_task("counting words", total=None)
                write_words((passage.prompt_text for passage in self.live()), self.folder / words)
        used = [f"{SEGMENTS}/{segment.name}" for segment in self.segments] + ([words] if words else [])
        manifest = dataclasses.replace(
            self.manifest,
            **place,
            passages=count,
            corpus_sha256=corpus.hexdigest(),
            segments=self.segments,
            words=words,
            documents=dict(sorted(documents.items())),
            files=self._files(used),
            versions=library_versions(),
            format=FORMAT,
        )
        write_json(self.folder / MANIFEST, dataclasses.asdict(manifest))
        _drop_unused(self.folder, manifest)

    def _settle(self) -> None:
        """Merges, packs and compresses segments where that is due."""
        self.segments = [segment for segment in self.segments if segment.alive]
        loose = [segment for segment in self.segments if segment.search != "plaid"]
        if not loose:
            return
        dead = sum(len(segment.deleted) for segment in loose)
        alive = sum(segment.alive for segment in loose)
        compressing = self.manifest.search == "plaid" and (not self.manifest.segments or alive > EXACT_UP_TO)
        # A segment that the old manifest names is never changed: what is compressed is a copy.
        copying = compressing and (dead > 0 or len(loose) > 1 or loose[0] in self.manifest.segments)
        packing = self.manifest.search == "auto" and (alive > EXACT_UP_TO or any(segment.packing for segment in loose))
        sizes: dict[int, list[Segment]] = defaultdict(list)
        for segment in loose:
            sizes[(segment.alive.bit_length() - 1) // 3].append(segment)  # eight is three bits
        crowd = next((segments for segments in sizes.values() if len(segments) > MOST_SEGMENTS), [])
        if old := loose if copying or 3 * dead > alive else crowd:
            merged = merge(self.folder, self._new_name(), old, packing)
            self.segments = [segment for segment in self.segments if segment not in old] + [merged]
        if packing:
            self.segments = [
                segment if segment.packing else merge(self.folder, self._new_name(), [segment], packed=True)
                for segment in self.segments
            ]
        if compressing:
            self.segments.append(compress_segment(self.folder, self.segments.pop(), self._progress))

    def _files(self, used: list[str]) -> dict[str, File]:
        """What a folder holds never changes, so that only the new ones must be read."""
        old = {name: file for name, file in self.manifest.files.items() if _folder_of(name) in used}
        new = [self.folder / name for name in used if name not in {_folder_of(name) for name in old}]
        mode = self.folder.stat().st_mode & 0o666
        for folder in new:
            for file in folder.rglob("*"):
                if file.is_file():
                    file.chmod(mode)  # safetensors makes files that nobody else may read
        return old | describe_files(self.folder, new)

    def _new_name(self) -> str:
        """A number above all that are in use, or were when the changes began."""
        self._written += 1
        return str(self._written)


@contextlib.contextmanager
def new_index(
    out: Path | str, manifest: IndexManifest, checkpoint: Checkpoint | None, progress: bool
) -> Iterator[Writer]:
    """A writer of a new index, which takes the place of `out` when the block, which must commit, ends well.

    Until then an index that stands at `out` stays as it is, and any exception (Ctrl-C too) leaves it there.

    Raises:
        InputError: `out` is a folder with other things in it, or another process is changing it.
    """
    check_no_strangers_manifest(Path(out))
    kept = EncodedFolder(out)
    with _locked(Path(out)):
        with atomic_folder(out, *INDEX) as folder:
            yield Writer(folder, manifest, checkpoint, progress, kept)
        kept.drop()


@contextlib.contextmanager
def changed_index(
    path: Path | str, find: Callable[[IndexManifest], Checkpoint | None] | None = None, progress: bool = True
) -> Iterator[Writer]:
    """A writer of changes to the index at `path`. Nothing has changed where the block ends without `commit`.

    Args:
        path: The index folder.
        find: Finds the checkpoint to encode with, while nobody else can change the index; None: nothing is added.
        progress: Whether to show bars on standard error.

    Raises:
        InputError: No index there, a damaged one, or another process is changing it.
    """
    path = Path(path)
    read_manifest(path)
    with _locked(path), naming_full_disk(path):
        manifest, kept = read_manifest(path), EncodedFolder(path)
        sweep(path / MANIFEST)
        _drop_unused(path, manifest)  # what a process that was killed had written
        try:
            yield Writer(path, manifest, find(manifest) if find else None, progress, kept)
        except BaseException:
            _drop_unused(path, read_manifest(path))
            raise
        if kept.asked:  # other changes leave to the command that was stopped what it had done
            kept.drop()


def _drop_unused(path: Path, manifest: IndexManifest) -> None:
    """Deletes the folders of the index at `path` that its manifest does not name. Only for who has its lock."""
    used = {_folder_of(name) for name in manifest.files}
    for folder in [*(path / SEGMENTS).iterdir(), *path.glob("words-*")]:
        if folder.relative_to(path).as_posix() not in used:
            shutil.rmtree(folder, ignore_errors=True)


def _locked(path: Path) -> contextlib.AbstractContextManager[None]:
    """Keeps other processes and threads from writing the index at `path`; where there is none, looks for one."""
    taken = f"another process is {{}} the index {path}: try again when it is done"
    if (path / MANIFEST).is_file():
        return locked(path / LOCK, taken.format("changing"))
    if sweep(Path(os.path.realpath(path)) if os.path.islink(path) else path):
        raise InputError(taken.format("making"))
    return contextlib.nullcontext()


def _folder_of(name: str) -> str:
    """The folder that is written in one go in which a file of an index lies: a segment's, or that of the words."""
    parts = Path(name).parts
    return "/".join(parts[:2] if parts[0] == SEGMENTS else parts[:1])
