"""Where a passage comes from: its neighbours in its document, and the document itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError

NEIGHBOURS = 2
"""Passages shown before and after the one that was asked for."""

LARGEST_FILE = 256 << 20
"""Bytes of a document that is handed out."""


@dataclass(frozen=True)
class Document:
    """A file that may be opened in a browser: PDF as it is, all others as plain text, whatever they hold."""

    path: Path
    media_type: str


def source_of(retriever: Any, pid: str) -> dict[str, Any]:
    """A passage and what stands around it in its document.

    Args:
        retriever: A program's; only what it may find is shown.
        pid: The passage's id.

    Raises:
        InputError: It finds no such passage, or is not at hand to be looked through (an index server).
    """
    passages: Sequence[Passage] | None = getattr(retriever, "passages", None)
    if passages is None:
        raise InputError("this index cannot be looked through from here: only its search is at hand")
    for place, passage in enumerate(passages):
        if passage.pid == pid:
            around = range(max(0, place - NEIGHBOURS), min(len(passages), place + NEIGHBOURS + 1))
            near = [passages[at] for at in around if at == place or _together(passages[at], passage)]
            return {"passage": _row(passage), "context": [_row(one) for one in near]}
    raise InputError(f"no passage {pid!r:.80} here")


def document_of(folder: Path | None, retriever: Any, source: str) -> Document:
    """The file of a source of this retriever's passages.

    Raises:
        InputError: No documents are handed out, none of the passages names it, or it is no file within the folder.
    """
    if folder is None:
        raise InputError("documents are not handed out here: start the server with --documents DIR")
    if not any(passage.source == source for passage in getattr(retriever, "passages", ())):
        raise InputError(f"no passage comes from {source!r:.80}")
    path = (folder / source).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file() or path.stat().st_size > LARGEST_FILE:
        raise InputError(f"{source!r:.80} is not in the folder of documents")
    return Document(path, "application/pdf" if path.suffix.lower() == ".pdf" else "text/plain; charset=utf-8")


def _together(one: Passage, other: Passage) -> bool:
    return one.source is not None and one.source == other.source


def _row(passage: Passage) -> dict[str, Any]:
    return {
        "pid": passage.pid,
        "title": passage.title,
        "text": passage.text,
        "source": passage.source,
        "citation": passage.citation,
        "metadata": dict(passage.metadata),
    }
