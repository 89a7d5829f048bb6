"""Whoever searches beside others finds what they would find alone, and is not harmed by what others ask."""

import threading
import time
import weakref
from pathlib import Path

import pytest

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving.batcher import Batcher
from raisf.utils.errors import InputError


@pytest.fixture(scope="module")
def index(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Index:
    with_pages = [Passage(p.pid, p.text, p.title, metadata={"page": 1}) for p in passages[:6]]
    return build_index([*with_pages, *passages[6:]], tmp_path_factory.mktemp("batched") / "i", "bm25")


def test_queries_that_arrive_together_are_searched_together(index: Index, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[int, int]] = []
    search_many = Index.search_many

    def slow(self: Index, queries: list[str], k: int, where: str | None = None):
        asked.append((len(queries), k))
        time.sleep(0.1)
        return search_many(self, queries, k, where)

    monkeypatch.setattr(Index, "search_many", slow)
    batcher = Batcher(index)
    jobs = [(f"Hamlet sea chess {n}", 1 + n % 2, "page = 1" if n % 4 < 2 else None) for n in range(16)]
    answers = [batcher.submit([query], k, where) for query, k, where in jobs]
    found = [answer.result()[1][0] for answer in answers]
    batcher.close(20)
    monkeypatch.undo()
    assert found == [index(query, k, where) for query, k, where in jobs]
    assert len(asked) < 16 and sum(size for size, _ in asked) == 16 == batcher.queries
    # How many passages an approximate search looks at depends on k: a neighbour's may not change what is found.
    assert sum(size for size, k in asked if k == 1) == 8


def test_an_index_that_another_has_replaced_is_freed_though_nobody_asks(passages: list[Passage], tmp_path: Path):
    """A server that had rest after a change held both in memory, until its next search but one."""
    batcher = Batcher(build_index(passages, tmp_path / "old", "bm25", progress=False))
    gone = weakref.ref(batcher.index)
    assert batcher.submit(["chess"], 1, None).result()[1]
    batcher.index = build_index(passages[:3], tmp_path / "new", "bm25", progress=False)
    end = time.monotonic() + 10
    while gone() is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert gone() is None and batcher.submit(["chess"], 1, None).result() == (batcher.index, [[]])
    batcher.close(20)


def test_what_is_found_comes_with_the_index_that_was_searched_though_another_took_its_place(
    index: Index, passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A client would else take it for the new one's."""
    new = build_index(passages[:3], tmp_path / "new", "bm25", progress=False)
    batcher, search_many = Batcher(index), Index.search_many

    def replaced(self: Index, *args):
        batcher.index = new
        return search_many(self, *args)

    monkeypatch.setattr(Index, "search_many", replaced)
    (first, found), (second, _) = [batcher.submit(["Hamlet"], 1, None).result() for _ in range(2)]
    batcher.close(20)
    assert first is index and found[0][0].title == "Hamlet" and second is new


def test_of_queries_searched_together_only_the_bad_one_fails(index: Index, monkeypatch: pytest.MonkeyPatch):
    begun, together, search_many = threading.Event(), threading.Event(), Index.search_many

    def breaks(self: Index, queries: list[str], *args):
        begun.set()
        together.wait(20)
        if "bad" in queries:
            raise TypeError("a tokenizer cannot read this")
        return search_many(self, queries, *args)

    monkeypatch.setattr(Index, "search_many", breaks)
    batcher = Batcher(index)
    first = batcher.submit(["Hamlet"], 1, None)
    begun.wait(20)
    rest = [batcher.submit([query], 1, None) for query in ("chess", "bad", "octopus")]
    together.set()
    with pytest.raises(TypeError, match="a tokenizer"):
        rest[1].result()
    titles = [answer.result()[1][0][0].title for answer in (first, rest[0], rest[2])]
    batcher.close(20)
    assert titles == ["Hamlet", "Chess", "Octopus"]


@pytest.mark.parametrize(("k", "where"), [(1, "nonsense"), (0, None)])
def test_after_an_error_it_searches_on(k: int, where: str | None, index: Index):
    batcher = Batcher(index)
    with pytest.raises(InputError):
        batcher.submit(["a"], k, where).result()
    searched, found = batcher.submit(["Hamlet"], 1, None).result()
    assert searched is index and found[0][0].title == "Hamlet"
    batcher.close(20)
