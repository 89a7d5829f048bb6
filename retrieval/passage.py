"""What is searched for, and what every retriever offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text of about 100 words, the unit of retrieval and of citation.

    Attributes:
        pid: Its id, unique in a corpus.
        text: What it says, whitespace collapsed.
        title: What it is about; empty where the document has none.
        score: How well it fits the query that found it, higher is better, comparable within one search only;
            None outside of a search.
        source: Where it was read, as `file, line N`; None where it was made in memory.
    """

    pid: str
    text: str
    title: str = ""
    score: float | None = None
    source: str | None = None

    @property
    def prompt_text(self) -> str:
        """The passage as one line, for a language model or an encoder: `title | text`, or the text alone."""
        return f"{self.title} | {self.text}" if self.title else self.text


@runtime_checkable
class Retriever(Protocol):
    """Anything that finds passages. Calls from several threads at once are safe.

    Attributes:
        path: The index folder; None for one that lives in memory.
        corpus_hash: Changes when the passages change.
    """

    path: Path | None
    corpus_hash: str

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The at most `k` best passages, best first, each with its score."""
        ...

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for several queries, in their order; faster than one call a query."""
        ...
