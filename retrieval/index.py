"""Making and opening index folders of every kind."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from data.errors import InputError
from retrieval.bm25 import BM25
from retrieval.colbert import ColBERT, Search
from retrieval.documents import read_documents
from retrieval.manifest import read_manifest
from retrieval.passage import Passage

Engine = Literal["colbert", "bm25"]


def build_index(
    docs: Path | str | Iterable[Passage],
    out: Path | str,
    engine: Engine = "colbert",
    checkpoint: str | Path = "minilm",
    search: Search = "auto",
    encoding: str | None = None,
    progress: bool = True,
) -> ColBERT | BM25:
    """Makes an index of documents in the folder `out`, and opens it.

    Nothing is at `out` before the index is whole, and an index that was there stays usable until then.

    Args:
        docs: A file or folder (see `documents.read_documents`), or passages.
        out: A new folder, or an index to replace.
        engine: "colbert" or "bm25".
        checkpoint: For ColBERT: "minilm", a folder, or a hub id.
        search: For ColBERT: "auto", "exact" or "plaid" (see `ColBERT.build`).
        encoding: How the files are encoded; None: by byte order mark, else UTF-8.
        progress: Whether to show a bar on standard error.

    Raises:
        InputError: The documents, the options or the folder cannot be used; the message says which and why.
    """
    passages = read_documents(docs, encoding) if isinstance(docs, (str, Path)) else docs
    if engine == "colbert":
        return ColBERT.build(passages, out, checkpoint=checkpoint, search=search, progress=progress)
    if engine == "bm25":
        return BM25.build(passages, out)
    raise InputError(f"unknown engine {engine!r}: choose colbert or bm25")


def open_index(path: Path | str, checkpoint: str | Path | None = None) -> ColBERT | BM25:
    """Opens the index in a folder, whatever its kind.

    Args:
        path: The folder.
        checkpoint: For ColBERT, where its checkpoint is now; None: where it was when the index was made.

    Raises:
        InputError: No index there, one of another format, checkpoint or damaged; the message says what to do.
    """
    kind = read_manifest(path).kind
    if kind == "colbert":
        return ColBERT.load(path, checkpoint)
    if kind == "bm25":
        return BM25.load(path)
    raise InputError(f"the index {path} is of an unknown kind, {kind!r}; make it again")
