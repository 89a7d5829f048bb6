"""Which passages an answer was made from, and where they come from: what stands around them, and their documents."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raisf.programs.events import DoneEvent
from raisf.programs.questions import UNKNOWN, normal
from raisf.programs.trace import JudgedPassage, Node
from raisf.retrieval.corpus.lines import marked_encoding
from raisf.retrieval.corpus.web_encoding import declared_charset
from raisf.retrieval.passage import PLACES, Passage, row_of
from raisf.serving.service import NotFound
from raisf.utils.errors import InputError, RaisfError

NEIGHBOURS = 2
"""Passages shown before and after the one that was asked for."""

LARGEST_FILE = 256 << 20
"""Bytes of a document that is handed out."""

_NUMBERS = re.compile(r"(#[0-9]{1,15})+$")


@dataclass(frozen=True)
class Document:
    """A file that is handed out: PDF as it is, text as plain text, whatever it holds, and others to be saved.

    Attributes:
        path: Where it is.
        media_type: As what it is handed out.
        attachment: Whether it is to be saved, and not shown: a browser would show its bytes.
    """

    path: Path
    media_type: str
    attachment: bool = False


def cited_passages(done: DoneEvent) -> list[JudgedPassage]:
    """The passages that the answer was made from, each once: the relevant ones, all where a reader's were not judged.

    Where each was read alone, it is the one whose answer was taken, whatever was judged of it.

    A composed answer is made from what its parts were, and from the relevant passages that stood beside them. Nothing
    was read for what is "unknown" or comes from memory, whatever was tried below it.
    """
    found: dict[str, JudgedPassage] = {}
    every = list(done.trace.root.walk()) if done.trace else []
    seen: set[int] = set()

    def visit(node: Node) -> None:
        if node.route == "duplicate":
            same = (one for one in every if one.answer == node.answer and normal(one.question) == normal(node.question))
            node = next(same)
        if node.answer == UNKNOWN or id(node) in seen:
            return
        seen.add(id(node))
        composed, taken = node.route == "decomposed", node.from_passage
        relevant = node.passages[taken - 1 : taken] if taken else [one for one in node.passages if one.relevant]
        if composed or node.route in ("passages", "acted"):
            for passage in relevant if composed else relevant or node.passages:
                found.setdefault(passage.pid, passage)
        for sub in node.sub_questions if composed else ():
            visit(sub)

    for root in every[:1]:
        visit(root)
    return list(found.values())


def source_of(retriever: Any, pid: str, text_sum: str | None = None) -> dict[str, Any]:
    """A passage and what stands around it in its document.

    Args:
        retriever: A program's; only what it may find is shown.
        pid: The passage's id.
        text_sum: `sum_of` its text when it was read: where its document has changed, it may have another id now, and
            its id another text. None: whatever has the id.

    Raises:
        NotFound: It finds no such passage.
        InputError: It is not at hand to be looked through: a search alone, or a document of too many passages on an
            index server.
    """
    passage = next((passage for passage in _passages_with(retriever, "id", pid) if passage.pid == pid), None)
    if passage is None and text_sum is None:
        raise NotFound(f"no passage {pid!r:.80} here")
    # By its place in the document: in the index, passages that have changed stand behind all others.
    source = passage.source if passage else row_of(pid)
    name, value = ("id", pid) if source is None else ("source", source)
    beside = _passages_with(retriever, name, value)
    together = (one for one in beside if one.pid == pid or (source is not None and one.source == source))
    document = sorted(together, key=_place)
    if passage is None or text_sum not in (None, sum_of(passage.text)):
        passage = next((one for one in document if sum_of(one.text) == text_sum), None)
    if passage is None:
        raise NotFound(f"the passage {pid!r:.80} has changed since this answer: its words are no longer here")
    place = document.index(passage)
    near = document[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1]
    return {"passage": _row(passage), "context": [_row(one) for one in near]}


def sum_of(text: str) -> str:
    """The checksum by which a client says which text was read; the page's script has the same (CRC-32, in hex)."""
    return f"{zlib.crc32(text.encode()):08x}"


def document_of(folder: Path | None, retriever: Any, source: str) -> Document:
    """The file of a source of this retriever's passages.

    Raises:
        NotFound: No documents are handed out, none of the passages names it, or it is no file within the folder.
        InputError: As `source_of`.
        RaisfError: It cannot be read.
    """
    if folder is None:
        raise NotFound("documents are not handed out here: start the server with --documents DIR")
    if not any(passage.source == source for passage in _passages_with(retriever, "source", source)):
        raise NotFound(f"no passage comes from {source!r:.80}")
    path = _within(folder, source)
    if path is None:
        raise NotFound(f"{source!r:.80} is not in the folder of documents")
    try:
        return _document(path)
    except OSError as error:
        reason = error.strerror or error
        raise RaisfError(f"cannot read {source!r:.80} ({reason}): let the server's user read it") from error


def _passages_with(retriever: Any, name: str, value: str) -> Sequence[Passage]:
    """The retriever's passages with a field of this value, and maybe others."""
    if hasattr(retriever, "passages_where"):
        quoted = value.replace("'", "''")
        return retriever.passages_where(f"{name} = '{quoted}'")
    passages: Sequence[Passage] | None = getattr(retriever, "passages", None)
    if passages is None:
        raise InputError("this index cannot be looked through from here: only its search is at hand")
    return passages


def _document(path: Path) -> Document:
    with path.open("rb") as file:
        head = file.read(1024)
    match path.suffix.lower():
        case ".pdf":
            return Document(path, "application/pdf")
        case ".docx" | ".gz" | ".bz2":
            return Document(path, "application/octet-stream", attachment=True)
    return Document(path, f"text/plain; charset={_charset(path, head)}")


def _charset(path: Path, head: bytes) -> str:
    """The encoding of a text: UTF-8, or what its byte order mark or the page itself says, or else what most are in."""
    marked = marked_encoding(head)
    try:
        with path.open(encoding=marked or "utf-8") as text:
            while text.read(1 << 20):
                pass
    except UnicodeDecodeError:
        return (declared_charset(head) if path.suffix.lower() in (".html", ".htm") else None) or "windows-1252"
    return (marked or "utf-8").removesuffix("-sig")


def _within(folder: Path, source: str) -> Path | None:
    """The file, links followed, if it lies in the folder; what the index calls a source may be no name of a file."""
    try:
        path = (folder / source).resolve()
        good = path.is_relative_to(folder.resolve()) and path.is_file() and path.stat().st_size <= LARGEST_FILE
    except (OSError, ValueError, RuntimeError):
        return None
    return path if good else None


def _place(passage: Passage) -> tuple[int, ...]:
    """Where in its document a passage stands: the numbers that end its id, behind its row where the id is its own."""
    numbered = _NUMBERS.search(passage.pid)
    numbers = [int(number) for number in numbered[0][1:].split("#")] if numbered else []
    if numbered and passage.pid[: numbered.start()] == passage.source:
        return tuple(numbers)
    row = next((value for name, value in passage.metadata.items() if name in PLACES), 0)  # as it is cited
    return row if isinstance(row, int) else 0, *numbers


def _row(passage: Passage) -> dict[str, Any]:
    return {
        "pid": passage.pid,
        "title": passage.title,
        "text": passage.text,
        "source": passage.source,
        "citation": passage.citation,
        "metadata": dict(passage.metadata),
    }
