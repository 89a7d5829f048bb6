"""A retriever whose passages a test states itself."""

from collections.abc import Callable, Sequence

from raisf.retrieval.passage import Passage


class Shelf:
    """Finds the first k passages of those that `find` gives for a query."""

    path, corpus_hash = None, "shelf"

    def __init__(self, find: Callable[[str], Sequence[Passage]]) -> None:
        self._find = find

    def __call__(self, query: str, k: int) -> list[Passage]:
        return list(self._find(query)[:k])

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        return [self(query, k) for query in queries]

    def __deepcopy__(self, memo: dict) -> "Shelf":
        return self
