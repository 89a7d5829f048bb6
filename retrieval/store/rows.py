"""The passages of an index on disk, a JSON line each."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import PASSAGES, SEGMENTS, Segment
from raisf.utils.errors import InputError
from raisf.utils.files import dump_line, read_jsonl


def line_of(passage: Passage) -> str:
    """A passage as a line of passages.jsonl."""
    row = {
        "id": passage.pid,
        "title": passage.title,
        "text": passage.text,
        "source": passage.source,
        "metadata": dict(passage.metadata),
    }
    return dump_line({key: value for key, value in row.items() if value or key in ("id", "text")})


def digest_of(passage: Passage) -> bytes:
    """The SHA-256 of a passage's line."""
    return hashlib.sha256(line_of(passage).encode()).digest()


def read_segment(path: Path, segment: Segment) -> Iterator[Passage]:
    """All passages of a segment of the index at `path`, the deleted ones too, in the order of their numbers.

    Raises:
        InputError: They are not those that the manifest tells of.
    """
    file, number = path / SEGMENTS / segment.name / PASSAGES, 0
    for number, row in enumerate(read_jsonl(file), start=1):
        given: tuple[Any, ...] = (row.get("id"), row.get("text"), row.get("title", ""), row.get("source"))
        pid, text, title, source = given
        metadata = row.get("metadata", {})
        if not (all(isinstance(one, str) for one in (pid, text, title, source or "")) and isinstance(metadata, dict)):
            raise InputError(f"{file}, line {number}: no passage; the index is damaged: make it again")
        yield Passage(pid, text, title, source=source, metadata=metadata)
    if number != segment.passages:
        raise InputError(f"{file} has {number} passages, not {segment.passages}; the index is damaged: make it again")


class CorpusHash:
    """A hash of a set of passages: the sum of their rows' hashes, hence streamed and free of any order."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, passage: Passage) -> None:
        """Counts one passage in."""
        self._sum += int.from_bytes(digest_of(passage), "big")

    def hexdigest(self) -> str:
        """The hash of all that were counted in."""
        return hashlib.sha256(str(self._sum).encode()).hexdigest()
