"""Changing an index in use: documents and passages come in, change and go; only what is new is encoded."""

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raisf.retrieval.corpus.checking import checked
from raisf.retrieval.corpus.documents import Document, Skip, Skipped, find_documents, skipped, stop
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.corpus.reading import log_skipped, read_whole
from raisf.retrieval.engines.checkpoints import find_again, place_of
from raisf.retrieval.opening import engine_of
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.where import check_names, parse_where
from raisf.retrieval.spread import spread
from raisf.retrieval.store.encoding import Checkpoint
from raisf.retrieval.store.manifest import IndexManifest
from raisf.retrieval.store.rows import digest_of
from raisf.retrieval.store.writer import Writer, changed_index
from raisf.utils.errors import InputError
from raisf.utils.text import composed


@dataclass(frozen=True, slots=True)
class Change:
    """What a change has done to an index, in passages.

    Attributes:
        added: New ones, and new versions of old ones.
        removed: Old ones, and old versions.
        passages: How many the index now finds.
    """

    added: int
    removed: int
    passages: int


def add_to_index(
    path: Path | str,
    docs: Path | str | Iterable[Passage],
    encoding: str | None = None,
    progress: bool = True,
    skip: Skip | None = None,
) -> Change:
    """Adds documents to an index, or passages. Nothing that is there already is encoded again.

    A document of a name, or a passage of an id, that the index has takes the old one's place. A file that cannot be
    read is skipped; of an older version of it, the passages stay. Handles that are open stay as they are; open the
    index again to search what is new. A document that passages were added to, or replaced in, counts as changed:
    indexing its folder again reads it anew.

    Args:
        path: The index folder.
        docs: A file or folder (see `reading.read_documents`), or passages.
        encoding: See `raisf.retrieval.corpus.reading.read_documents`.
        progress: Whether to show a bar on standard error.
        skip: Is told of each file of a folder that is skipped, and may raise; None: they are logged as warnings.

    Raises:
        InputError: The index or the passages cannot be used, or `docs` is a file that cannot be read.
    """
    if isinstance(docs, (str, Path)):
        skip = skip or log_skipped
        documents = find_documents(docs, encoding, skip)
        if not documents and not any(Path(docs).iterdir()):
            raise InputError(f"nothing is in {docs}: give a file, or a folder with documents")
        return change_documents(path, documents, stop if Path(docs).is_file() else skip, only=False, progress=progress)
    passages = {passage.pid: passage for passage in checked(docs)}
    with changed_index(path, _finder(path), progress) as writer:
        touched = {passage.source for passage in passages.values()}
        touched.update(old.source for old in writer.live() if old.pid in passages)
        changes = _Changes(writer, lambda old: old.pid in passages)
        return changes.apply(passages.values(), lambda: _untouched(writer, touched))


def remove_from_index(path: Path | str, where: str, progress: bool = True) -> Change:
    """Takes the passages that satisfy a filter out of an index, such as "source = 'old.pdf'". Encodes nothing.

    A document that has lost passages counts as changed: indexing its folder again brings them back. What is removed is
    found no more, but its text and vectors stay in the index's files for a while, see `raisf.retrieval.store.manifest`;
    to have them gone at once, make the index anew in another folder and delete this one.

    Args:
        path: The index folder.
        where: The filter.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: The index cannot be used, `where` is no filter of its passages, or nothing would be left.
    """
    test = parse_where(where)
    with changed_index(path, progress=progress) as writer:
        check_names(test, {name for passage in writer.live() for name in passage.metadata})
        gone = {passage.pid: passage.source for passage in writer.live() if test(passage)}
        if gone:
            writer.delete(gone)
            writer.commit(_untouched(writer, set(gone.values())))
    return Change(0, len(gone), writer.manifest.passages - len(gone))


def change_documents(
    path: Path | str,
    documents: list[Document],
    skip: Skip,
    *,
    only: bool,
    progress: bool,
    checkpoint: str | Path | None = None,
    ray: str | None = None,
    unseen: Sequence[Skipped] = (),
) -> Change:
    """Brings documents into an index.

    A document that cannot be read leaves in the index what was read of it before, if anything was, and is tried again
    the next time: a disk that fails for a moment must not empty an index.

    Args:
        path: The index folder.
        documents: Those that are new or may have changed.
        skip: Is told of each that cannot be read.
        only: Whether all others are taken out.
        progress: Whether to show a bar on standard error.
        checkpoint: Where its encoder's checkpoint is now; None: where it was.
        ray: The address of a Ray cluster whose nodes encode the passages; None: this machine does.
        unseen: What was skipped when the documents were looked for; what it hides is not taken out.

    Raises:
        InputError: The index cannot be used, or nothing would be left of it.
    """
    with changed_index(path, _finder(path, checkpoint, ray), progress) as writer:
        place = place_of(writer.checkpoint, path) if checkpoint else {}
        known = writer.manifest.documents
        held = set(map(composed, known))

        @functools.cache
        def sources() -> set[str | None]:
            return {_composed(passage.source) for passage in writer.live()}

        def told(file: Skipped) -> None:
            name = composed(file.name)
            if not file.empty and (name in held or name in sources()):
                what = "its older version" if name in held else "what is left of its older version"
                file = dataclasses.replace(file, reason=f"{file.reason}; {what} stays in the index")
            skip(file)

        prints = fingerprints(documents, told)
        changed = [one for one in documents if one.name in prints and prints[one.name] != known.get(one.name)]
        names = {composed(document.name) for document in changed}
        there = {composed(document.name) for document in documents}
        hiding = [file for file in unseen if file.unseen]

        def goes(name: str | None) -> bool:
            return only and _composed(name) not in there and not any(name and file.hides(name) for file in hiding)

        changes = _Changes(writer, lambda old: _composed(old.source) in names or goes(old.source))
        torn = set[str]()  # of which not all is in the index any more: read again whatever they hold

        def left_out(file: Skipped) -> None:
            told(file)
            del prints[file.name]
            if file.empty or not changes.keep(file.name):
                torn.add(file.name)

        def now() -> dict[str, str]:
            new = {*map(composed, prints), *map(composed, torn)}
            before = {name: print for name, print in known.items() if not goes(name) and composed(name) not in new}
            return {**before, **prints}

        return changes.apply(read_whole(changed, left_out, changes.seen, progress), now, **place)


def fingerprints(documents: Iterable[Document], skip: Skip) -> dict[str, str]:
    """The fingerprint of each document that can be read, by its name."""
    prints = {}
    for document in documents:
        try:
            prints[document.name] = document.fingerprint()
        except InputError as error:
            skip(skipped(document.name, error))
    return prints


class _Changes:
    """New passages in the place of old ones; those that are in both stay where they are.

    All are streamed: of the replaceable ones their hashes are kept, of the others only which ids there are.

    Attributes:
        seen: The ids of the passages that stay.

    Args:
        writer: Of the index.
        replaceable: Which of the old ones go, unless they come again.
    """

    def __init__(self, writer: Writer, replaceable: Callable[[Passage], bool]):
        self.seen = SeenIds()
        self._writer = writer
        self._gone: dict[str | None, dict[str, bytes]] = defaultdict(dict)
        for passage in writer.live():
            if replaceable(passage):
                self._gone[_composed(passage.source)][passage.pid] = digest_of(passage)
            else:
                self.seen.add(passage.pid, passage.citation)

    def keep(self, source: str) -> bool:
        """Lets the passages of a document stay after all; whether all do: not those whose id another has taken."""
        name = composed(source)
        for pid, print in self._gone.pop(name, {}).items():
            if self.seen.add(pid, source):
                self._gone[name][pid] = print
        return name not in self._gone

    def apply(self, new: Iterable[Passage], documents: Callable[[], dict[str, str]], **place: Any) -> Change:
        """Writes them, where anything has changed.

        Args:
            new: Their ids differ from each other's and from `seen`.
            documents: Gives the fingerprints of the documents that the index then holds, once `new` is used up.
            **place: See `Writer.commit`.
        """
        writer, stream = self._writer, self._fresh(new)
        first = next(stream, None)
        if first is not None:
            writer.add(itertools.chain([first], stream))
        added = writer.segments[-1].passages if first is not None else 0
        gone = {pid for pids in self._gone.values() for pid in pids}
        if gone:
            writer.delete(gone)
        prints = documents()
        if added or gone or dataclasses.replace(writer.manifest, documents=prints, **place) != writer.manifest:
            writer.commit(prints, **place)
        return Change(added, len(gone), writer.manifest.passages - len(gone) + added)

    def _fresh(self, new: Iterable[Passage]) -> Iterator[Passage]:
        """Those that are not there already."""
        for passage in new:
            gone = self._gone[_composed(passage.source)]
            if gone.get(passage.pid) == digest_of(passage):
                del gone[passage.pid]
            else:
                yield passage


def _finder(
    path: Path | str, checkpoint: str | Path | None = None, ray: str | None = None
) -> Callable[[IndexManifest], Checkpoint | None]:
    """A function that finds the checkpoint of the index at `path` by its manifest, which is read under the lock."""

    def find(manifest: IndexManifest) -> Checkpoint | None:
        kind = engine_of(path, manifest)
        return spread(kind.find, find_again(kind.find, Path(path), manifest, checkpoint), ray)

    return find


def _composed(source: str | None) -> str | None:
    """A document's name, however its letters are composed."""
    return None if source is None else composed(source)


def _untouched(writer: Writer, touched: set[str | None]) -> dict[str, str]:
    """The fingerprints without those of the documents whose passages are no longer what was read."""
    return {name: print for name, print in writer.manifest.documents.items() if name not in touched}
