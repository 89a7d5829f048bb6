"""Making, opening and changing index folders of every kind."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from raisf.retrieval.corpus.documents import Document, checked, find_documents
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.engines.base import Index, Search, find_again, place_of
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.engines.dense import Dense
from raisf.retrieval.engines.hybrid import Hybrid
from raisf.retrieval.engines.qdrant import SCHEMES, QdrantIndex
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.where import check_names, parse_where
from raisf.retrieval.serving.remote import RemoteIndex
from raisf.retrieval.store.manifest import MANIFEST, Manifest, read_manifest, row_of, verify
from raisf.retrieval.store.segments import Checkpoint
from raisf.retrieval.store.writer import Writer, changed_index
from raisf.utils.errors import InputError

Engine = Literal["colbert", "bm25", "dense", "hybrid"]

ENGINES: dict[str, type[Index]] = {engine.kind: engine for engine in (ColBERT, BM25, Dense, Hybrid)}


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


def build_index(
    docs: Path | str | Iterable[Passage],
    out: Path | str,
    engine: Engine = "colbert",
    checkpoint: str | Path = "minilm",
    search: Search = "auto",
    encoding: str | None = None,
    progress: bool = True,
) -> Index:
    """Makes an index of documents in the folder `out`, and opens it.

    Nothing is at `out` before the index is whole, and an index that was there stays usable until then. Where it is one
    of the same engine, checkpoint and search, and `docs` is a path, only what has changed is read and encoded; the
    index then finds the same passages as a new one, and its checkpoint where it was named now.

    Args:
        docs: A file or folder (see `documents.read_documents`), or passages.
        out: A new folder, or an index to replace.
        engine: "colbert", "bm25", "dense" or "hybrid" (ColBERT and BM25 fused).
        checkpoint: For all but bm25: "minilm", a folder, or a hub id.
        search: For colbert and hybrid: "auto", "exact" or "plaid" (see `Index.build`).
        encoding: How the files are encoded; None: by byte order mark, else UTF-8.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: The documents, the options or the folder cannot be used; the message says which and why.
    """
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}: choose {', '.join([*ENGINES][:-1])} or {[*ENGINES][-1]}")
    kind = ENGINES[engine]
    if not isinstance(docs, (str, Path)):
        return kind.build(docs, out, checkpoint, search, progress)
    documents = find_documents(docs, encoding)
    if _is_like(out, kind, checkpoint, search):
        _change(out, documents, only=True, progress=progress, checkpoint=checkpoint)
        return kind.load(out, checkpoint)
    prints = {document.name: document.fingerprint() for document in documents}
    passages = itertools.chain.from_iterable(document.passages() for document in documents)
    return kind.build(passages, out, checkpoint, search, progress, documents=prints)


def open_index(path: Path | str, checkpoint: str | Path | None = None) -> Index | RemoteIndex | QdrantIndex:
    """Opens the index in a folder, whatever its kind, one that `raisf serve-index` serves, or a collection of Qdrant.

    Args:
        path: The folder, the server's URL, or the collection's address (`qdrant+http://127.0.0.1:6333/wiki`).
        checkpoint: For a folder or a collection, where the checkpoint of its encoder is now; None: where it was.

    Raises:
        InputError: No index there, one of another format, checkpoint or damaged; the message says what to do.
    """
    if str(path).startswith(("http://", "https://")):
        return RemoteIndex(str(path))
    if str(path).startswith(SCHEMES):
        return QdrantIndex.open(str(path), checkpoint)
    return open_folder(path, checkpoint)


def open_folder(path: Path | str, checkpoint: str | Path | None = None) -> Index:
    """Opens the index in a folder; see `open_index`."""
    return _kind_of(path, read_manifest(path)).load(path, checkpoint)


def add_to_index(
    path: Path | str, docs: Path | str | Iterable[Passage], encoding: str | None = None, progress: bool = True
) -> Change:
    """Adds documents to an index, or passages. Nothing that is there already is encoded again.

    A document of a name, or a passage of an id, that the index has takes the old one's place. Handles that are open
    stay as they are; open the index again to search what is new. A document that passages were added to, or replaced
    in, counts as changed: indexing its folder again reads it anew.

    Args:
        path: The index folder.
        docs: A file or folder (see `documents.read_documents`), or passages.
        encoding: How the files are encoded; None: by byte order mark, else UTF-8.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: The index or the documents cannot be used, or an id belongs to another document of the index.
    """
    if isinstance(docs, (str, Path)):
        return _change(path, find_documents(docs, encoding), only=False, progress=progress)
    passages = {passage.pid: passage for passage in checked(docs)}
    with changed_index(path, _finder(path), progress) as writer:
        touched = {passage.source for passage in passages.values()}
        touched.update(old.source for old in writer.live() if old.pid in passages)
        return _apply(writer, passages.values(), lambda old: old.pid in passages, _untouched(writer, touched))


def remove_from_index(path: Path | str, where: str) -> Change:
    """Takes the passages that satisfy a filter out of an index, such as "source = 'old.pdf'". Encodes nothing.

    A document that has lost passages counts as changed: indexing its folder again brings them back. What is removed is
    found no more, but its text and vectors stay in the index's files for a while, see `raisf.retrieval.store.manifest`;
    to have them gone at once, make the index anew in another folder and delete this one.

    Raises:
        InputError: The index cannot be used, `where` is no filter of its passages, or nothing would be left.
    """
    test = parse_where(where)
    with changed_index(path) as writer:
        check_names(test, {name for passage in writer.live() for name in passage.metadata})
        gone = {passage.pid: passage.source for passage in writer.live() if test(passage)}
        if gone:
            writer.delete(gone)
            writer.commit(_untouched(writer, set(gone.values())))
    return Change(0, len(gone), writer.manifest.passages - len(gone))


def index_info(path: Path | str) -> dict[str, Any]:
    """What an index is, as JSON values.

    Raises:
        InputError: There is none, or it is damaged.
    """
    manifest = read_manifest(path)
    return {
        "path": str(path),
        "engine": manifest.kind,
        "search": manifest.shown_search,
        "checkpoint": manifest.checkpoint,
        "passages": manifest.passages,
        "documents": len(manifest.documents),
        "segments": len(manifest.segments),
        "deleted": sum(len(segment.deleted) for segment in manifest.segments),
        "bytes": sum(file.bytes for file in manifest.files.values()),
        "corpus_sha256": manifest.corpus_sha256,
        "versions": manifest.versions,
    }


def check_index(path: Path | str) -> list[str]:
    """What is wrong with an index: every byte is read and compared with its checksum, and the checkpoint too.

    Returns:
        A line a problem; none if the index is as it was written.

    Raises:
        InputError: There is no index.
    """
    path = Path(path)
    try:
        manifest = read_manifest(path)
        problems = list(verify(path, manifest))
        find_again(_kind_of(path, manifest), path, manifest)
    except InputError as error:
        if not (path / MANIFEST).is_file():
            raise
        return [str(error)]
    return problems


def _kind_of(path: Path | str, manifest: Manifest) -> type[Index]:
    if manifest.kind not in ENGINES:
        raise InputError(f"the index {path} is of an unknown kind, {manifest.kind!r}; make it again")
    return ENGINES[manifest.kind]


def _is_like(out: Path | str, kind: type[Index], checkpoint: str | Path, search: str) -> bool:
    """Whether a whole index of this engine, checkpoint and search stands at `out`."""
    try:
        manifest = read_manifest(out)
        if manifest.kind != kind.kind or (kind.compresses and manifest.search != search):
            return False
        return kind.find is None or kind.find(checkpoint).sha256 == manifest.checkpoint_sha256
    except InputError:
        return False


def _finder(path: Path | str, checkpoint: str | Path | None = None) -> Callable[[Manifest], Checkpoint | None]:
    """What finds the checkpoint of the index at `path`, once its manifest is safe from other processes."""
    return lambda manifest: find_again(_kind_of(path, manifest), Path(path), manifest, checkpoint)


def _untouched(writer: Writer, touched: set[str | None]) -> dict[str, str]:
    """The fingerprints without those of the documents whose passages are no longer what was read."""
    return {name: print for name, print in writer.manifest.documents.items() if name not in touched}


def _change(
    path: Path | str,
    documents: list[Document],
    *,
    only: bool,
    progress: bool,
    checkpoint: str | Path | None = None,
) -> Change:
    """Brings documents into an index; with `only`, takes all others out. `checkpoint` says where its encoder is now."""
    with changed_index(path, _finder(path, checkpoint), progress) as writer:
        place = place_of(writer.checkpoint, path) if checkpoint else {}
        known = writer.manifest.documents
        prints = {document.name: document.fingerprint() for document in documents}
        changed = [document for document in documents if known.get(document.name) != prints[document.name]]
        names = {document.name for document in changed}
        new = itertools.chain.from_iterable(document.passages() for document in changed)

        def replaceable(old: Passage) -> bool:
            return old.source in names or (only and old.source not in prints)

        return _apply(writer, new, replaceable, prints if only else {**known, **prints}, **place)


def _apply(
    writer: Writer,
    new: Iterable[Passage],
    replaceable: Callable[[Passage], bool],
    documents: dict[str, str],
    **place: Any,
) -> Change:
    """Puts new passages in the place of the replaceable old ones; those that are in both stay where they are.

    All are streamed: of the replaceable ones their hashes are kept, of the others only which ids there are.
    """
    seen, gone = SeenIds(), dict[str, bytes]()
    for passage in writer.live():
        if replaceable(passage):
            gone[passage.pid] = _digest(passage)
        else:
            seen.add(passage.pid, passage.citation)

    def fresh() -> Iterator[Passage]:
        for passage in new:
            if earlier := seen.add(passage.pid, passage.citation):
                raise InputError(
                    f"the id {passage.pid!r} comes twice: {earlier} and {passage.citation}; ids must differ"
                )
            if gone.get(passage.pid) == _digest(passage):
                del gone[passage.pid]
            else:
                yield passage

    stream = fresh()
    first = next(stream, None)
    if first is not None:
        writer.add(itertools.chain([first], stream))
    added = writer.segments[-1].passages if first is not None else 0
    writer.delete(gone)
    if added or gone or dataclasses.replace(writer.manifest, documents=documents, **place) != writer.manifest:
        writer.commit(documents, **place)
    return Change(added, len(gone), writer.manifest.passages - len(gone) + added)


def _digest(passage: Passage) -> bytes:
    return hashlib.sha256(row_of(passage).encode()).digest()
