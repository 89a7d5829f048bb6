"""What is asked again and again while thresholds are tried costs one call."""

from collections.abc import Sequence

import raisf
from raisf.optimize.remembering import remembering
from raisf.retrieval.passage import Passage


def test_searches_of_many_questions_are_made_together_and_once() -> None:
    asked: list[list[str]] = []

    class Shelf:
        path, corpus_hash = None, "shelf"

        def __call__(self, query: str, k: int) -> list[Passage]:
            return self.search_many([query], k)[0]

        def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
            asked.append(list(queries))
            return [[Passage(query, f"about {query}")] for query in queries]

    shelf = remembering(raisf.RAISF(Shelf(), k=2)).retriever
    first, second, again = shelf.search_many(["a", "b", "a"], 2)
    assert first == again == shelf("a", 2) and second == shelf("b", 2) != first
    assert shelf.search_many(["b", "c"], 2)[0] == second and asked == [["a", "b"], ["c"]]
