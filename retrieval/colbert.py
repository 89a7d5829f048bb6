"""ColBERT, the default retriever: late interaction between the query's token vectors and each passage's."""

import dataclasses
import itertools
import math
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from data.errors import InputError
from data.files import read_jsonl
from retrieval.manifest import PASSAGES, Manifest, check_k, new_index, read_manifest, read_passages, write_passages
from retrieval.passage import Passage

Search = Literal["auto", "exact", "plaid"]

EXACT_UP_TO = 10_000
"""Passages that "auto" still searches exactly: 0.1 to 0.2 s a query on one core, about a call of a language model.
PLAID takes some 30 ms there but loses 3 points of recall@5 (HotpotQA, checkpoint minilm: 71.8 of 74.8%)."""

_VECTORS, _PLAID = "vectors", "plaid"
_WINDOW = 256
"""Passages encoded between two steps of the progress bar."""


class ColBERT:
    """Searches passages with a ColBERT checkpoint, exactly or, in a large corpus, with PLAID.

    Attributes:
        path: The index folder.
        corpus_hash: The SHA-256 of its passages.
        passages: All of them.
        manifest: What the index was made from.
    """

    def __init__(self, path: Path, manifest: Manifest, passages: list[Passage], encoder: Any, engine: Any):
        self.path: Path | None = path
        self.corpus_hash = manifest.corpus_sha256
        self.manifest = manifest
        self.passages = passages
        self._encoder = encoder
        self._engine = engine

    @classmethod
    def build(
        cls,
        passages: Iterable[Passage],
        out: Path | str,
        checkpoint: str | Path = "minilm",
        search: Search = "auto",
        progress: bool = True,
    ) -> "ColBERT":
        """Makes an index in the folder `out` and opens it. One that is there is replaced when it is whole.

        Args:
            passages: Streamed; never all in memory.
            out: A new folder, or an index.
            checkpoint: "minilm", a folder, or a hub id such as `colbert-ir/colbertv2.0`.
            search: "exact" compares with every passage (needs 512 bytes of memory a token); "plaid" compresses to 36
                bytes a token and searches approximately, for large corpora, and needs a C++ compiler; "auto" is
                "exact" up to 10,000 passages.
            progress: Whether to show a bar on standard error.

        Raises:
            InputError: No passage, an id that comes twice, `out` holds other things, or no such checkpoint.
            RaisfError: PLAID's C++ extensions cannot be compiled.
        """
        from retrieval import colbert_shims
        from retrieval.checkpoint import find_checkpoint
        from retrieval.encoder import load_encoder

        if search not in ("auto", "exact", "plaid"):
            raise InputError(f"unknown search {search!r}: choose auto, exact or plaid")
        if search == "plaid":
            colbert_shims.compile_extensions()  # fail before the long work, not after
        found = find_checkpoint(checkpoint)
        with new_index(out, "colbert") as (folder, facts):
            count = sum(1 for _ in write_passages(folder, passages))
            if search == "auto":
                search = "exact" if count <= EXACT_UP_TO else "plaid"
            facts.update(search=search, checkpoint=found.name, checkpoint_sha256=found.sha256)
            _encode(load_encoder(found), folder, count, progress)
            if search == "plaid":
                _compress(folder, progress)
        return cls.load(out, checkpoint)

    @classmethod
    def load(cls, path: Path | str, checkpoint: str | Path | None = None) -> "ColBERT":
        """Opens an index.

        Args:
            path: The index folder.
            checkpoint: Where the checkpoint is now; None: where it was when the index was made.

        Raises:
            InputError: No index there, one of another kind, a damaged one, or the checkpoint is gone or another.
        """
        from retrieval.checkpoint import find_checkpoint
        from retrieval.encoder import load_encoder
        from retrieval.maxsim import MaxSim
        from retrieval.plaid import Plaid
        from retrieval.vectors import Vectors

        path = Path(path)
        manifest = read_manifest(path)
        if manifest.kind != "colbert":
            raise InputError(f"{path} is a {manifest.kind} index, not colbert; open it with open_index")
        found = find_checkpoint(checkpoint or manifest.checkpoint or "")
        if found.sha256 != manifest.checkpoint_sha256:
            raise InputError(
                f"the index {path} was made with the checkpoint {manifest.checkpoint} ({manifest.checkpoint_sha256}), "
                f"but {found.name} is now another ({found.sha256}), and its vectors would mean nothing there; "
                "give the old checkpoint back or make the index again"
            )
        passages = read_passages(path, manifest)
        engine = Plaid(path / _PLAID) if manifest.search == "plaid" else MaxSim(Vectors(path / _VECTORS))
        return cls(path, manifest, passages, load_encoder(found), engine)

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The `k` best passages (all, where there are fewer), best first, each with its late-interaction score."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for several queries, in their order; they are encoded together."""
        check_k(k)
        hits = self._engine.search(self._encoder.encode_queries(queries), k)
        return [[dataclasses.replace(self.passages[number], score=score) for number, score in row] for row in hits]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ColBERT":
        """Itself: copies of a program search the same index."""
        return self


def _bar(progress: bool) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=not progress)


def _encode(encoder: Any, folder: Path, count: int, progress: bool) -> None:
    from retrieval.vectors import SHARD, write_shard

    rows = read_jsonl(folder / PASSAGES)
    texts = (Passage(row["id"], row["text"], row.get("title", "")).prompt_text for row in rows)
    with _bar(progress) as bar:
        task = bar.add_task("encoding passages", total=count)
        for number in range(math.ceil(count / SHARD)):
            parts, shard = [], itertools.islice(texts, SHARD)
            while window := list(itertools.islice(shard, _WINDOW)):
                parts.append(encoder.encode_passages(window))
                bar.advance(task, len(window))
            write_shard(folder / _VECTORS, number, parts)


def _compress(folder: Path, progress: bool) -> None:
    from retrieval.plaid import compress
    from retrieval.vectors import Vectors

    with _bar(progress) as bar:
        bar.add_task("compressing vectors", total=None)
        compress(Vectors(folder / _VECTORS), folder / _PLAID)
    shutil.rmtree(folder / _VECTORS)
