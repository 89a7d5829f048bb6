"""What is searched for, and what every retriever offers."""

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

from raisf.utils.errors import InputError
from raisf.utils.text import clean, composed

Value = str | int | float | bool
"""What a piece of metadata may be."""

PLACES = ("page", "line", "row", "file line", "file row")
"""What in the metadata says where in its document a passage stands; of several the first, others are columns."""


def is_value(value: object) -> TypeGuard[Value]:
    """Whether a piece of metadata may be this: no NaN and no infinity, which JSON has no words for."""
    return isinstance(value, Value) and not (isinstance(value, float) and not math.isfinite(value))


def cell(row: Mapping[str, Any], name: str) -> Any:
    """What a row has under a name; None also for NaN, which pandas writes where a cell is empty."""
    value = row.get(name)
    return None if isinstance(value, float) and math.isnan(value) else value


def columns_of(row: Mapping[Any, Any]) -> dict[str, Value]:
    """What a row tells besides its id, title and text, to filter by.

    Lists and objects, an embedding say, are nothing to filter by; empty cells, NaN and what has no name are nothing.
    """
    named = ((clean(str(name)), value) for name, value in row.items() if name not in ("id", "title", "text"))
    return {name: value for name, value in named if name and is_value(value) and value != ""}


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text of about 100 words, the unit of retrieval and of citation.

    Attributes:
        pid: Its id, unique in a corpus.
        text: What it says, whitespace collapsed.
        title: What it is about; empty where the document has none.
        score: How well it fits the query that found it, higher is better, comparable within one search only;
            None outside of a search.
        source: The document it was read from, a path within the indexed folder; None where it was made in memory.
        metadata: What else is known of it, to filter by and to cite: the `page`, `section`, `line` or `row` in its
            document, and then the other columns of a table or JSON Lines row.
    """

    pid: str
    text: str
    title: str = ""
    score: float | None = None
    source: str | None = None
    metadata: Mapping[str, Value] = field(default_factory=dict, hash=False)

    @property
    def prompt_text(self) -> str:
        """The passage as one line, for a language model or an encoder: `title | text`, or the text alone."""
        return f"{self.title} | {self.text}" if self.title else self.text

    @property
    def long_text(self) -> str:
        """`prompt_text`, by the name under which `dspy.Retrieve` looks for it."""
        return self.prompt_text

    @property
    def citation(self) -> str:
        """Where a reader finds it: `handbook.pdf, page 3`; its id where it comes from no document."""
        place = next((f", {name} {value}" for name, value in self.metadata.items() if name in PLACES), "")
        return f"{self.source}{place}" if self.source else self.pid


def row_of(pid: str) -> str:
    """The id of the row, or the name of the document, that a passage with this id is a part of: "p1" of "p1#2"."""
    row, _, part = pid.rpartition("#")
    return row if part.isdecimal() else pid


def called_by(gold: Collection[str], pid: str) -> str:
    """What gold calls a passage: its id, or that of the whole which it is a part of, since long texts are cut.

    Args:
        gold: Ids whose letters are one with their accents (NFC); those of a Mac's files have them apart.
        pid: The passage's, in any form.
    """
    pid = composed(pid)
    return row_of(pid) if pid not in gold and row_of(pid) in gold else pid


def cited_as(passage: Any) -> str:
    """What an answer that is read from a passage of a trace, or of its record, cites: its place, title or id."""
    return passage.citation or passage.title or passage.pid


@runtime_checkable
class Retriever(Protocol):
    """Anything that finds passages. Calls from several threads at once are safe."""

    @property
    def path(self) -> Path | None:
        """The index folder; None for one that is not a folder here."""
        ...

    @property
    def corpus_hash(self) -> str:
        """Changes when the passages change."""
        ...

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The at most `k` best passages, best first, each with its score."""
        ...

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for several queries, in their order; faster than one call a query."""
        ...


def check_k(k: int) -> int:
    """The number of passages to search for, a plain one: NumPy's are none for JSON.

    Raises:
        InputError: It is none.
    """
    try:
        whole = operator.index(k)
    except TypeError:
        raise InputError(f"k is {k!r:.40}; give a whole number") from None
    if whole < 1:
        raise InputError(f"k is {k}; search for at least 1 passage")
    return whole


def found_by(retriever: Retriever) -> str:
    """All that a retriever finds by: its class, its corpus and, of an index, how it is searched and its encoder."""
    manifest = getattr(retriever, "manifest", None)
    search = None if manifest is None else cast(Any, retriever).ranking
    encoder = getattr(retriever if manifest is None else manifest, "checkpoint_sha256", None)
    return " ".join(filter(None, [type(retriever).__name__, retriever.corpus_hash, search, encoder]))
