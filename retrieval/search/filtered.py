"""A part of an index, or of an index server, as a retriever of its own."""

import hashlib
from collections.abc import Sequence
from typing import Any

from raisf.retrieval.passage import Passage, found_by


class Filtered:
    """A retriever that finds only the passages that satisfy a filter.

    Attributes:
        path: None, so that nobody opens the whole index in its place.
        corpus_hash: Of all that the index finds by and the filter: whoever compares hashes sees only a Filtered.
        index: The whole of it.
        condition: The filter.
    """

    def __init__(self, index: Any, condition: str):
        self.path = None
        self.corpus_hash = hashlib.sha256(f"{found_by(index)} {condition}".encode()).hexdigest()
        self.index = index
        self.condition = condition

    @property
    def learnt_from(self) -> frozenset[str]:
        """As of the index."""
        return getattr(self.index, "learnt_from", frozenset())

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The at most `k` best passages, best first, each with its score."""
        return self.index(query, k, self.condition)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for several queries, in their order."""
        return self.index.search_many(queries, k, self.condition)

    def forget_searches(self) -> None:
        """As of the index."""
        if forget := getattr(self.index, "forget_searches", None):
            forget()

    @property
    def passages(self) -> list[Passage]:
        """All passages that satisfy the filter; only of an index at hand.

        Raises:
            AttributeError: It is a server's.
        """
        if not hasattr(type(self.index), "passages"):
            raise AttributeError(f"{self.index!r:.60} does not give all of its passages")
        return self.index.passages_where(self.condition)

    def passages_where(self, condition: str) -> list[Passage]:
        """Those among them that satisfy a further filter."""
        return self.index.passages_where(f"({self.condition}) and ({condition})")

    def __deepcopy__(self, memo: dict[int, Any]) -> "Filtered":
        """Itself: copies of a program search the same index."""
        return self
