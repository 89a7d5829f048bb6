"""Opening an index of any kind: a folder, a server, a collection of Qdrant."""

from pathlib import Path
from typing import Literal

from raisf.retrieval.engines.base import Index
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.engines.dense import Dense
from raisf.retrieval.engines.hybrid import Hybrid
from raisf.retrieval.engines.qdrant import SCHEMES, QdrantIndex
from raisf.retrieval.serving.remote import RemoteIndex
from raisf.retrieval.store.manifest import IndexManifest, read_manifest
from raisf.utils.errors import InputError
from raisf.utils.urls import is_address

EngineName = Literal["colbert", "bm25", "dense", "hybrid"]

ENGINES: dict[str, type[Index]] = {engine.kind: engine for engine in (ColBERT, BM25, Dense, Hybrid)}


def open_index(path: Path | str, checkpoint: str | Path | None = None) -> Index | RemoteIndex | QdrantIndex:
    """Opens the index in a folder, whatever its kind, one that `raisf serve-index` serves, or a collection of Qdrant.

    Args:
        path: The folder, the server's URL, or the collection's address (`qdrant+http://127.0.0.1:6333/wiki`).
        checkpoint: For a folder or a collection, where the checkpoint of its encoder is now; None: where it was.

    Raises:
        InputError: No index there, one of another format, checkpoint or damaged; the message says what to do.
    """
    if not is_address(path):
        return open_folder(path, checkpoint)
    scheme, _, rest = str(path).strip().partition("://")
    address = f"{scheme.lower()}://{rest}"
    if address.startswith(("http://", "https://")):
        return RemoteIndex(address)
    if address.startswith(SCHEMES):
        return QdrantIndex.open(address, checkpoint)
    raise InputError(f"{scheme}:// leads to no index: write http://, https:// or qdrant+http://")


def open_folder(path: Path | str, checkpoint: str | Path | None = None) -> Index:
    """Opens the index in a folder; see `open_index`."""
    return engine_of(path, read_manifest(path)).load(path, checkpoint)


def engine_of(path: Path | str, manifest: IndexManifest) -> type[Index]:
    """The class that opens the index at `path`.

    Raises:
        InputError: The manifest names none, or has not what it searches by.
    """
    if manifest.kind not in ENGINES:
        raise InputError(f"the index {path} is of an unknown kind, {manifest.kind!r}; make it again")
    engine = ENGINES[manifest.kind]
    engine.check(path, manifest)
    return engine
