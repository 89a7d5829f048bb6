"""The index folder at work: opened, searched, filtered. The engines are subclasses that say what they search by."""

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self, cast, get_args
from weakref import WeakValueDictionary

import numpy as np

from raisf.retrieval.corpus.checking import checked
from raisf.retrieval.encoders.checkpoint import MINILM
from raisf.retrieval.engines.checkpoints import find_again, findable_name, place_of
from raisf.retrieval.passage import Passage, check_k
from raisf.retrieval.search.filtered import Filtered
from raisf.retrieval.search.maxsim import Hits
from raisf.retrieval.search.where import check_names, parse_where
from raisf.retrieval.spread import spread
from raisf.retrieval.store.encoding import Checkpoint, Encoder
from raisf.retrieval.store.manifest import IndexManifest, library_versions, read_manifest
from raisf.retrieval.store.rows import read_segment
from raisf.retrieval.store.segments import alive_in
from raisf.retrieval.store.writer import new_index
from raisf.utils.checks import check_named
from raisf.utils.errors import InputError
from raisf.utils.kept import Kept
from raisf.utils.text import text_of

SearchMode = Literal["auto", "exact", "plaid"]

KEPT, HIT = 32 << 20, 120
"""Bytes of searches that an index keeps with their hits, 20,000 questions or so: compiling searches for the same ones
again and again. And bytes of a hit."""


class Searcher(Protocol):
    """One way to search the passages of an index."""

    def search(self, queries: Sequence[str], k: int, allowed: np.ndarray) -> list[Hits]:
        """The at most `k` best passage numbers for each query out of the allowed ones, bool `(n_passages,)`."""
        ...


class Index:
    """An index folder, opened: a snapshot that stays as it is whatever happens to the folder.

    Attributes:
        path: The folder.
        corpus_hash: Of the passages that it finds.
        manifest: What the index was made from.
        kind: The engine's name.
        find: Finds the checkpoint of the engine's encoder; None for an engine without one.
        compresses: Whether its vectors may be compressed (PLAID).
        counts_words: Whether it searches by BM25.
    """

    kind: ClassVar[str]
    find: ClassVar[Callable[[str | Path], Checkpoint] | None] = None
    compresses: ClassVar[bool] = False
    counts_words: ClassVar[bool] = False
    _checkpoint: Checkpoint | None = None
    _moved_to: str | None = None  # where its checkpoint was said to be, and the manifest does not say

    @staticmethod
    def default_checkpoint() -> str:
        """The name of a new index's checkpoint."""
        return MINILM

    def __init__(self, path: Path, manifest: IndexManifest, encoder: Encoder | None):
        self.path = path
        self.corpus_hash = manifest.corpus_sha256
        self.manifest = manifest
        self._passages = [passage for segment in manifest.segments for passage in read_segment(path, segment)]
        self._alive = np.concatenate(list(map(alive_in, manifest.segments)))
        self._names = {name for passage in self.passages for name in passage.metadata}
        self._searchers: list[Searcher] = []
        self._encoder = encoder
        if encoder is not None:
            from raisf.retrieval.search.vector_search import VectorSearch

            self._searchers.append(VectorSearch(path, manifest, encoder))
        if manifest.words is not None:
            from raisf.retrieval.store.words import Words

            self._searchers.append(Words(path / manifest.words, np.flatnonzero(self._alive)))
        # It holds the passages, not the index, which would else hold itself and outlive its last user.
        find = functools.partial(_find_allowed, self._passages, self._alive, self._names)
        self._allowed = functools.lru_cache(maxsize=32)(find)
        self._found: Kept[Hits] = Kept(KEPT)
        self._finding = threading.Lock()

    @functools.cached_property
    def learnt_from(self) -> frozenset[str]:
        """A print of each query that its encoder was trained on, as far as that is known."""
        return self._checkpoint.seen_queries() if self._checkpoint else frozenset()

    @property
    def ranking(self) -> str:
        """All that decides its scores, beside its passages and its encoder."""
        return self.manifest.ranking

    @property
    def passages(self) -> list[Passage]:
        """All passages that it finds."""
        return [passage for passage, alive in zip(self._passages, self._alive, strict=True) if alive]

    def passages_where(self, condition: str) -> list[Passage]:
        """Those among them that satisfy a filter."""
        return [passage for passage, allowed in zip(self._passages, self._allowed(condition), strict=True) if allowed]

    @classmethod
    def build(
        cls,
        passages: Iterable[Passage],
        out: Path | str,
        checkpoint: str | Path | None = None,
        search: SearchMode = "auto",
        progress: bool = True,
        documents: dict[str, str] | None = None,
        ray: str | None = None,
    ) -> Self:
        """Makes an index in the folder `out` and opens it. One that is there is replaced when it is whole.

        Args:
            passages: Streamed; never all in memory, but where the engine counts words.
            out: A new folder, or an index.
            checkpoint: The encoder's: "raisf-minilm", "minilm", a folder, or a hub id such as
                `colbert-ir/colbertv2.0`; None: the engine's default.
            search: For ColBERT's vectors. "exact" compares with every passage (needs 512 bytes of memory a token).
                "auto" does so up to 10,000 passages; of more, it keeps 66 bytes a token of 128 dimensions, and the mean
                vectors choose those that are compared, out of the disk (`raisf.retrieval.search.prefetch`). "plaid"
                compresses them to 36 bytes a token; it finds less of what exact search finds, and needs a C++ compiler.
            progress: Whether to show a bar on standard error.
            documents: The fingerprints of the documents that the passages come from, by name.
            ray: The address of a Ray cluster whose nodes encode the passages; None: this machine does.

        Raises:
            InputError: No passage, an id that comes twice, `out` holds other things, no such checkpoint or cluster.
            RaisfError: PLAID's C++ extensions cannot be compiled.
        """
        check_named("search", search, get_args(SearchMode))
        if search != "auto" and not cls.compresses:
            raise InputError(f"search={search!r} is for ColBERT's vectors, not for {cls.kind}: leave it out")
        if search == "plaid":
            from raisf.retrieval.encoders import colbert_shims

            colbert_shims.compile_extensions()  # fail before the long work, not after
        checkpoint = cls.default_checkpoint() if checkpoint is None else checkpoint
        found = cls.find(checkpoint) if cls.find else None
        manifest = IndexManifest(
            kind=cls.kind,
            search=search if cls.compresses else "exact" if found else "none",
            passages=0,
            corpus_sha256="",
            **place_of(found, out),
            segments=[],
            words="words-0" if cls.counts_words else None,
            documents={},
            files={},
            versions=library_versions(),
        )
        with new_index(out, manifest, spread(cls.find, found, ray), progress) as writer:
            writer.add(checked(passages))
            writer.commit(documents or {})
        return cls.load(out, checkpoint)

    @classmethod
    def load(cls, path: Path | str, checkpoint: str | Path | None = None) -> Self:
        """Opens an index; one that is open in this process already, and has not been changed since, is that very one.

        Args:
            path: The index folder.
            checkpoint: Where its encoder's checkpoint is now; None: where it was when the index was made.

        Raises:
            InputError: No index there, one of another kind, a damaged one, or the checkpoint is gone or another.
        """
        path = Path(path)
        while True:
            manifest = read_manifest(path)
            cls.check(path, manifest)
            found = find_again(cls.find, path, manifest, checkpoint)
            kept = _OPEN.get((cls, str(path.absolute()), manifest.corpus_sha256))
            if kept is not None and kept.path == path and kept.manifest == manifest:
                return cast(Self, kept)  # it is what would be opened, and remembers what it has found
            # Another process may change the index meanwhile. A new index has folders of the same names, so that what
            # was read can be of both, and fit or not.
            try:
                index = cls(path, manifest, found.encoder() if found else None)
            except Exception:
                if read_manifest(path) == manifest:
                    raise
            else:
                index._checkpoint, index._moved_to = found, findable_name(found) if found and checkpoint else None
                if read_manifest(path) == manifest:
                    _OPEN[cls, str(path.absolute()), index.corpus_hash] = index
                    return index

    @classmethod
    def check(cls, path: Path | str, manifest: IndexManifest) -> None:
        """Makes sure that the index at a path is of this engine, and has what it searches by.

        Raises:
            InputError: It is not.
        """
        if manifest.kind != cls.kind:
            raise InputError(f"{path} is a {manifest.kind} index, not {cls.kind}; open it with open_index")
        words, vectors = manifest.words is not None, any(segment.search != "none" for segment in manifest.segments)
        if words != cls.counts_words or vectors != (cls.find is not None):
            found = " and ".join(["counts of words"] * words + ["vectors"] * vectors) or "nothing to search by"
            raise InputError(
                f"the index {path} is damaged: it has {found}, {cls.kind} searches by others; make it again"
            )

    def __call__(self, query: str, k: int, where: str | None = None) -> list[Passage]:
        """The at most `k` best passages, best first, each with its score; see `search_many`."""
        return self.search_many([query], k, where)[0]

    def search_many(self, queries: Sequence[str], k: int, where: str | None = None) -> list[list[Passage]]:
        """The same for several queries, in their order; they are encoded together.

        Args:
            queries: Any texts; what is longer than the encoder reads is cut.
            k: How many passages at most.
            where: A filter such as "source = 'handbook.pdf'", see `raisf.retrieval.search.where`; None: all passages.

        Raises:
            InputError: `k` is below 1, or `where` is no filter of these passages.
        """
        k, queries = check_k(k), [text_of(query) for query in queries]
        allowed = self._alive if where is None else self._allowed(where)
        with self._finding:
            found = {query: hits for query in queries if (hits := self._found.get((query, k, where))) is not None}
        if unknown := [query for query in dict.fromkeys(queries) if query not in found]:
            found.update(zip(unknown, self._hits(unknown, k, allowed), strict=True))
            with self._finding:
                for query in unknown:
                    size = sys.getsizeof(query) + sys.getsizeof(where) + HIT * len(found[query])
                    self._found.put((query, k, where), found[query], size)
        return [
            [dataclasses.replace(self._passages[number], score=score) for number, score in found[query]]
            for query in queries
        ]

    def forget_searches(self) -> None:
        """Remembers no search any more: the next one takes as long as the first."""
        with self._finding:
            self._found.clear()
        if forget := getattr(self._encoder, "forget_queries", None):
            forget()

    def where(self, condition: str) -> Filtered:
        """The same index, reduced to the passages that satisfy a filter: a retriever for a program.

        Raises:
            InputError: It is no filter of these passages.
        """
        self._allowed(condition)
        return Filtered(self, condition)

    def _hits(self, queries: Sequence[str], k: int, allowed: np.ndarray) -> list[Hits]:
        (searcher,) = self._searchers
        return searcher.search(queries, k, allowed)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: copies of a program search the same index."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as its folder, which is opened again; in this process it is itself once more."""
        path = str(self.path.absolute())
        _OPEN[type(self), path, self.corpus_hash] = self
        return _open_again, (type(self), path, self.corpus_hash, self._moved_to)


_OPEN: "WeakValueDictionary[tuple[type[Index], str, str], Index]" = WeakValueDictionary()


def _open_again(kind: type[Index], path: str, corpus_hash: str, checkpoint: str | None = None) -> Index:
    """The index that was pickled.

    Raises:
        InputError: Its folder is gone, or has other passages by now.
    """
    if (kept := _OPEN.get((kind, path, corpus_hash))) is not None:
        return kept
    try:
        index = kind.load(path, checkpoint)
    except InputError as error:
        raise InputError(
            f"what was pickled searches the index {path}, which cannot be opened here ({error}): put the folder back "
            "in its place, or pickle it again where it is now"
        ) from error
    if index.corpus_hash != corpus_hash:
        raise InputError(f"the index {path} has other passages than when it was pickled: open it, and pickle it again")
    return index


def _find_allowed(passages: list[Passage], alive: np.ndarray, names: set[str], where: str) -> np.ndarray:
    """Which of an index's passages satisfy a filter, bool `(n_passages,)`."""
    test = parse_where(where)
    check_names(test, names)
    return alive & np.fromiter((test(passage) for passage in passages), bool, len(passages))
