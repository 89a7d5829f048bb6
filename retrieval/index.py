"""Making index folders of every kind, of documents, passages or texts, and looking at them."""

import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from raisf.retrieval.changing import Change, add_to_index, change_documents, fingerprints, remove_from_index
from raisf.retrieval.corpus.documents import Skip, Skipped, find_documents, stop
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.corpus.reading import log_skipped, read_whole
from raisf.retrieval.corpus.texts import TextLike, passages_of_texts
from raisf.retrieval.engines.base import Index, SearchMode
from raisf.retrieval.engines.checkpoints import find_again, is_of
from raisf.retrieval.opening import ENGINES, EngineName, engine_of, open_folder, open_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import FORMAT, MANIFEST, WHOLE_WORDS, IndexManifest, read_manifest, verify
from raisf.retrieval.store.packing import PACKING
from raisf.retrieval.store.rows import CorpusHash, line_of
from raisf.retrieval.store.segments import live_passages
from raisf.utils.cache import cache_folder, check_cache
from raisf.utils.checks import check_named
from raisf.utils.errors import InputError
from raisf.utils.leftovers import alone
from raisf.utils.text import composed

logger = logging.getLogger(__name__)

__all__ = [
    "ENGINES",
    "Change",
    "EngineName",
    "add_to_index",
    "build_index",
    "check_index",
    "documents_of",
    "index",
    "index_info",
    "open_folder",
    "open_index",
    "remove_from_index",
    "standing_at",
]


def build_index(
    docs: Path | str | Iterable[Passage],
    out: Path | str,
    engine: EngineName | None = None,
    checkpoint: str | Path | None = None,
    search: SearchMode | None = None,
    encoding: str | None = None,
    progress: bool = True,
    skip: Skip | None = None,
    ray: str | None = None,
) -> Index:
    """Makes an index of documents in the folder `out`, and opens it.

    Nothing is at `out` before the index is whole, and an index that was there stays usable until then. Where it is one
    of the same engine, checkpoint and search, and `docs` is a path, only what has changed is read and encoded; the
    index then finds the same passages as a new one, and its checkpoint where it was named now. Only of passages that
    fit exactly alike, as a clause that several documents share, it finds first what was added first; vectors that were
    packed stay so, however few they become; and in bfloat16 a text's vectors depend a little on what was encoded beside
    it (scores on the second decimal). And of a document that cannot be read any more it keeps what it had.

    A file of a folder that cannot be read never ends the work: it is skipped, whole, and named.

    Args:
        docs: A file or folder (see `reading.read_documents`), or passages.
        out: A new folder, or an index to replace.
        engine: "colbert", "bm25", "dense" or "hybrid" (ColBERT and BM25 fused). None: that of the index that stands at
            `out`, else "colbert".
        checkpoint: For all but bm25: "raisf-minilm" (ColBERT's default: trained, ships with the project), "minilm"
            (dense's default), a folder, or a hub id. None: that of the index that stands at `out`, else the default.
        search: For colbert and hybrid: "auto", "exact" or "plaid" (see `Index.build`). None: that of the index of this
            engine that stands at `out`, else "auto".
        encoding: See `raisf.retrieval.corpus.reading.read_documents`.
        progress: Whether to show a bar on standard error.
        skip: Is told of each file of a folder that is skipped, and may raise (`documents.stop` does); None: they are
            logged as warnings.
        ray: The address of a Ray cluster whose nodes encode the passages, as `ray.init` takes it; None: this machine
            does. Each node needs the same package and checkpoint; the index is the same.

    Raises:
        InputError: The options or the folder cannot be used, `docs` is a file that cannot be read, or nothing in it can
            be; the message says which and why.
    """
    standing = standing_at(out)
    told = standing or standing_at(out, damaged=True)
    had = told.documents if told else {}
    held = set(map(composed, had))
    kind = _engine(engine or (told.kind if told else "colbert"))
    if told and told.kind != kind.kind:
        logger.warning("%s was an index for %s: it is made anew, for %s", out, told.kind, kind.kind)
        standing = told = None
    if checkpoint is None:
        checkpoint = (_standing_checkpoint(out, kind, told) if told else None) or kind.default_checkpoint()
    mode: Any = search or (told.search if told and kind.compresses else None) or "auto"
    if not isinstance(docs, (str, Path)):
        return kind.build(docs, out, checkpoint, mode, progress, ray=ray)
    reasons: list[Skipped] = []
    grows = standing is not None and _is_like(standing, kind, checkpoint, mode)

    def note(file: Skipped) -> None:
        reasons.append(file)
        prints.pop(file.name, None)
        lost = not grows and not file.empty and composed(file.name) in held
        if lost or (file.unseen and any(map(file.hides, had))):
            what = "has of it stays" if grows else "had of it is gone, as it is made anew"
            file = dataclasses.replace(file, reason=f"{file.reason}; what the index {what}")
        (skip or log_skipped)(file)

    prints: dict[str, str] = {}
    documents = find_documents(docs, encoding, note)
    skip_one = stop if Path(docs).is_file() else note
    if documents and grows:
        change_documents(
            out, documents, skip_one, only=True, progress=progress, checkpoint=checkpoint, ray=ray, unseen=reasons
        )
        return kind.load(out, checkpoint)
    prints |= fingerprints(documents, skip_one)
    readable = [document for document in documents if document.name in prints]
    passages = _at_least_one(read_whole(readable, skip_one, SeenIds(), progress), Path(docs), reasons)
    return kind.build(passages, out, checkpoint, mode, progress, documents=prints, ray=ray)


def index(
    texts: Iterable[TextLike],
    engine: EngineName = "colbert",
    checkpoint: str | Path | None = None,
    out: Path | str | None = None,
    progress: bool = True,
) -> Index:
    """An index of texts, in one line: `raisf.index(["The Danube flows ...", "Chess is ..."])`.

    A text of more than 130 words is cut into passages. The same texts are indexed once: the folder is in the cache
    ($RAISF_CACHE, or ~/.cache/raisf), named by a hash of all that it is made of, and is opened the next time. It holds
    these texts alone: where `add_to_index` or `remove_from_index` has changed it, it is made anew.

    Args:
        texts: Strings; passages; or mappings with a `text`, maybe a `title` and an `id`, and whatever else is to be
            filtered by. Ids are numbers, from 0, where none are given.
        engine: "colbert", "bm25", "dense" or "hybrid".
        checkpoint: For all but bm25; see `build_index`.
        out: A folder to keep the index in instead.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: No text at all, something else among them, an id that comes twice, or a cache that has no such
            index and cannot be written.
    """
    kind, passages = _engine(engine), list(passages_of_texts(texts))
    checkpoint = kind.default_checkpoint() if checkpoint is None else checkpoint
    if out is not None:
        return build_index(passages, out, engine, checkpoint, progress=progress)
    found = kind.find(checkpoint).sha256 if kind.find else ""
    rules = [PACKING, *([WHOLE_WORDS] if kind.counts_words else [])]
    made_of, corpus = hashlib.sha256(f"{engine} {found} {FORMAT} {' '.join(rules)}".encode()), CorpusHash()
    for passage in passages:
        made_of.update(line_of(passage).encode())
        corpus.add(passage)
    cached = cache_folder() / "indexes" / made_of.hexdigest()[:16]

    def kept() -> Index | None:
        if (cached / MANIFEST).is_file():
            with contextlib.suppress(InputError):
                opened = kind.load(cached, checkpoint)
                return opened if opened.corpus_hash == corpus.hexdigest() else None
        return None

    if opened := kept():  # a cache that has it may be read-only
        return opened
    check_cache(cached.parent)
    with alone(cached.with_name(f".{cached.name}.lock")):  # of two processes the second waits, and opens it
        if opened := kept():
            return opened
        if (cached / MANIFEST).is_file():
            logger.warning(
                "the index %s was changed, or is damaged: it is made anew of these texts alone (out=FOLDER keeps one "
                "that is to change)",
                cached,
            )
        return build_index(passages, cached, engine, checkpoint, progress=progress)


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
        "packing": manifest.packing,
        "checkpoint": manifest.checkpoint,
        "precision": manifest.precision,
        "passages": manifest.passages,
        "documents": len(manifest.documents),
        "segments": len(manifest.segments),
        "deleted": sum(len(segment.deleted) for segment in manifest.segments),
        "bytes": sum(file.bytes for file in manifest.files.values()),
        "corpus_sha256": manifest.corpus_sha256,
        "versions": manifest.versions,
    }


def standing_at(path: Path | str, damaged: bool = False) -> IndexManifest | None:
    """The manifest of the index at a path; None where there is none that can be read.

    Args:
        path: The folder.
        damaged: The manifest of an index with damaged files, too: made anew, it is to be what it was.
    """
    try:
        return read_manifest(path, check=not damaged)
    except InputError:
        return None


def documents_of(path: Path | str) -> dict[str, str]:
    """The fingerprints of the documents that an index was made of, by name; none where no index can be read."""
    standing = standing_at(path)
    return standing.documents if standing else {}


def check_index(path: Path | str) -> list[str]:
    """What is wrong with an index: every byte is read and compared with its checksum, the passages and checkpoint too.

    Returns:
        A line a problem; none if the index is as it was written.

    Raises:
        InputError: There is no index.
    """
    path = Path(path)
    while True:
        standing = standing_at(path, damaged=True)
        problems = _problems(path)
        # The files that another process has dropped with its change are no damage: what stands now is looked at.
        if not problems or standing_at(path, damaged=True) == standing:
            return problems


def _problems(path: Path) -> list[str]:
    try:
        manifest = read_manifest(path)
        problems = list(verify(path, manifest))
        corpus = CorpusHash()
        for segment in manifest.segments if not problems else ():
            for passage in live_passages(path, segment):
                corpus.add(passage)
        if not problems and corpus.hexdigest() != manifest.corpus_sha256:
            problems = [f"the passages are others than when {MANIFEST} was written: what is deleted may have changed"]
        find_again(engine_of(path, manifest).find, path, manifest)
    except InputError as error:
        if not (path / MANIFEST).is_file():
            raise
        return [str(error)]
    return problems


def _engine(name: str) -> type[Index]:
    check_named("engine", name, ENGINES)
    return ENGINES[name]


def _at_least_one(passages: Iterator[Passage], docs: Path, reasons: list[Skipped]) -> Iterator[Passage]:
    """The same passages, at least one."""
    passage = None
    for passage in passages:
        yield passage
    if passage is None and reasons:
        told = "; ".join(f"{file.name}: {file.reason}" for file in reasons[:3])
        more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        raise InputError(f"the corpus is empty: no document in {docs} can be read ({told}{more})")
    if passage is None and docs.is_dir():
        raise InputError(f"the corpus is empty: no files in {docs}; give a folder that holds documents, or a file")


def _standing_checkpoint(out: Path | str, kind: type[Index], standing: IndexManifest) -> str | Path | None:
    """The checkpoint of the index of this engine that stands at `out`, so that what has not changed stays encoded."""
    try:
        found = find_again(kind.find, Path(out), standing) if kind.find else None
    except InputError as error:
        raise InputError(f"{error}; or name another with --checkpoint, which encodes {out} anew") from error
    if found is not None and found.name != kind.default_checkpoint():
        logger.warning(
            "%s keeps its checkpoint, %s; --checkpoint %s encodes it anew", out, found.name, kind.default_checkpoint()
        )
    return found.name if found else None


def _is_like(standing: IndexManifest, kind: type[Index], checkpoint: str | Path, search: str) -> bool:
    """Whether an index of this engine is of this checkpoint and search."""
    if kind.compresses and standing.search != search:
        return False
    return kind.find is None or is_of(kind.find, checkpoint, standing)
