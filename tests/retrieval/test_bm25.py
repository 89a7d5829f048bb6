"""Whoever has no model still finds passages by their words."""

from pathlib import Path

from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.passage import Passage


def test_it_finds_by_shared_words_in_text_and_title(passages: list[Passage], tmp_path: Path):
    index = BM25.build(passages, tmp_path / "i")
    first, *_ = index("Who discovered penicillin in London?", 3)
    assert first.title == "Penicillin" and first.score is not None and first.score > 0
    assert index("Hamlet", 1)[0].title == "Hamlet"


def test_passages_without_a_shared_word_are_not_returned(passages: list[Passage], tmp_path: Path):
    index = BM25.build(passages, tmp_path / "i")
    assert index.search_many(["zebra", "", "the of and", "?" * 100_000], 5) == [[], [], [], []]
    assert [passage.title for passage in index("chess zebra", 100)] == ["Chess"]
    assert index.search_many([], 5) == []


def test_a_corpus_of_stop_words_can_be_indexed(tmp_path: Path):
    index = BM25.build([Passage("a", "the of"), Passage("b", "!")], tmp_path / "i")
    assert index("the", 2) == []
