"""What an artifact says of an index, and how it is found again."""

from pathlib import Path
from typing import Any

from raisf.optimize.manifest import KeptIndex
from raisf.retrieval.adapting import as_retriever
from raisf.retrieval.index import open_folder, open_index
from raisf.retrieval.passage import Retriever
from raisf.retrieval.store.manifest import read_manifest
from raisf.utils.errors import InputError
from raisf.utils.files import relative_path
from raisf.utils.urls import without_secrets


def index_of(retriever: Any, folder: Path) -> dict[str, Any] | None:
    """What `raisf.optimize.manifest.KeptIndex` says of a retriever, for an artifact in this folder."""
    if retriever is None:
        return None
    if retriever.path is None:
        url = getattr(retriever, "url", None)  # an index that is served
        return {"path": None, "url": url and without_secrets(url), "corpus_sha256": retriever.corpus_hash}
    # As it was opened: compiling takes hours, and what stands in the folder by now is not what the program learnt over.
    index = getattr(retriever, "manifest", None) or read_manifest(retriever.path)
    path = Path(retriever.path).resolve()
    return {
        "path": str(path),
        "relative": relative_path(path, folder),
        "corpus_sha256": index.corpus_sha256,
        "checkpoint_sha256": index.checkpoint_sha256,
    }


def open_kept(folder: Path, wanted: KeptIndex | None, given: Retriever | Path | str | None) -> Retriever | None:
    """The index of an artifact in this folder, or the caller's own.

    Raises:
        InputError: It is gone, another, or one that the caller has to name.
    """
    if given is not None:
        return open_index(given) if isinstance(given, str | Path) else as_retriever(given)
    if wanted is None:
        return None
    instead = "give an index with --index DIR (retriever=)"
    if wanted.url:
        raise InputError(
            f"the artifact {folder} was compiled with an index that is served at {wanted.url}, and cannot choose where "
            f"your questions go: {instead.replace('DIR', wanted.url)}"
        )
    if wanted.path is None:
        raise InputError(f"the artifact {folder} was compiled with a filter, or in memory: {instead}")
    path = Path(wanted.path)
    if wanted.relative and (folder / wanted.relative).exists():
        path = folder / wanted.relative
    try:
        found = read_manifest(path)
    except InputError as error:
        raise InputError(f"the artifact {folder} cannot open its index: {error}; or {instead}") from error
    for what in ("corpus", "checkpoint"):
        ours, theirs = (getattr(one, f"{what}_sha256") for one in (found, wanted))
        if ours != theirs:
            raise InputError(
                f"the index {path} is of another {what} than the one that {folder} was compiled with "
                f"({str(ours)[:12]}, not {str(theirs)[:12]}): compile again, or {instead}"
            )
    return open_folder(path)
