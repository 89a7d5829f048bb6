"""If these failed, a question about one club would be answered from the rules of another, or rows ranked by words."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.index import build_index, remove_from_index
from raisf.retrieval.passage import Passage, found_by
from raisf.retrieval.search.document_words import DEPTH, DocumentWords

FEES = "Members pay an annual fee, which the treasurer collects in January. The fee is {} euros."
FIRST = {"page": 1}
CLUBS = [
    Passage("rowing.md#0", "The Velm Rowing Club was founded by six friends.", "Rules", None, "rowing.md", FIRST),
    Passage("rowing.md#1", FEES.format(40), "Rules", source="rowing.md"),
    Passage("chess.md#0", "The Belrin Chess Circle meets on Tuesdays.", "Rules", None, "chess.md", FIRST),
    Passage("chess.md#1", FEES.format(25), "Rules", source="chess.md"),
]
ALL = np.ones(len(CLUBS), dtype=bool)
HITS = [(1, 12.0), (3, 12.0), (0, 9.0), (2, 9.0)]


def ranked(question: str, alive: np.ndarray = ALL) -> list[int]:
    words = DocumentWords.of(CLUBS, alive)
    assert words
    return [number for number, _ in words.ranked(question, HITS)]


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("What is the annual fee of the Velm Rowing Club?", 1),
        ("What is the annual fee of the Belrin Chess Circle?", 3),
        ("the annual fee in CHESS", 3),  # its file's name says so, too
    ],
)
def test_passages_alike_are_told_apart_by_what_their_documents_say_elsewhere(question: str, first: int):
    assert ranked(question)[0] == first


@pytest.mark.parametrize("question", ["", "?", "the", "xyz"])
def test_a_question_whose_words_no_document_has_alone_changes_no_order(question: str):
    assert ranked(question) == [number for number, _ in HITS]


def test_a_document_that_has_all_of_the_words_gains_no_more_than_the_weight():
    words = DocumentWords.of(CLUBS, ALL)
    assert words
    gained = {number: score - dict(HITS)[number] for number, score in words.ranked("Velm rowing fee", HITS)}
    assert gained[0] == gained[1] == pytest.approx(4.0) and 0 < gained[2] == gained[3] < 2.0


def test_rows_are_no_documents_and_keep_their_order():
    rows = [Passage(f"p{number}", passage.text) for number, passage in enumerate(CLUBS)]
    assert DocumentWords.of(rows, ALL) is None
    assert DocumentWords.of([*rows, *CLUBS[:1]], np.ones(5, dtype=bool)) is None
    assert DocumentWords.of(CLUBS[:2], ALL[:2]) is None  # one document, whose words are those of all its passages


def test_what_was_removed_counts_no_more():
    without = ALL.copy()
    without[0] = False
    assert ranked("What is the annual fee of the Velm Club?")[0] == 1
    assert DocumentWords.of(CLUBS, without) is None  # three passages of two documents
    more = [*CLUBS, *(Passage(f"chess.md#{n}", "Tuesday.", source="chess.md") for n in range(2, 5))]
    words = DocumentWords.of(more, np.array([False, *[True] * 6]))
    assert words and words.ranked("Velm?", HITS) == HITS


def test_the_first_ones_are_the_same_however_many_are_asked_for():
    texts = [f"Note {number} about boats, oars and rivers." for number in range(DEPTH + 30)]
    passages = [Passage(f"d{n // 4}.md#{n % 4}", text, source=f"d{n // 4}.md") for n, text in enumerate(texts)]
    words = DocumentWords.of(passages, np.ones(len(passages), dtype=bool))
    hits = [(number, 20.0 - number / 100) for number in range(len(passages))]
    assert words
    many = words.ranked("note 17 about oars", hits)
    assert many[:DEPTH] == words.ranked("note 17 about oars", hits[:DEPTH]) and many[DEPTH:] == hits[DEPTH:]
    assert [score for _, score in many] == sorted((score for _, score in many), reverse=True)


def test_an_index_of_documents_ranks_so_and_says_it(tmp_path: Path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, fee in (("Velm Rowing Club", 40), ("Belrin Chess Circle", 25), ("Oss Garden Society", 30)):
        about = f"# Rules\n\n{name}, founded in 1990.\n\n" + "We meet on Tuesdays in the town hall. " * 30
        (folder / f"{fee}.md").write_text(f"{about}\n\n## Fees\n\n{FEES.format(fee)}\n", encoding="utf-8")
    index = build_index(folder, tmp_path / "i", progress=False)
    assert isinstance(index, ColBERT) and index.ranking.endswith(" document words")
    for name, fee in (("Velm Rowing Club", "40"), ("Belrin Chess Circle", "25"), ("Oss Garden Society", "30")):
        found = index(f"What is the annual fee of the {name}?", 5)
        fees = [passage.text for passage in found if "euros" in passage.text]
        assert f"{fee} euros" in fees[0], fees
        assert found[:3] == index(f"What is the annual fee of the {name}?", 3)
        assert [passage.score for passage in found] == sorted((p.score or 0 for p in found), reverse=True)
    rows = build_index(CLUBS[:1], tmp_path / "rows", progress=False)
    assert "document words" not in found_by(rows) and "document words" in found_by(index)


def test_removing_documents_until_they_are_rows_ends_it_and_an_index_is_not_kept_alive(tmp_path: Path):
    index = build_index(CLUBS, tmp_path / "i", progress=False)
    assert index("fee of the Velm Rowing Club", 1)[0].source == "rowing.md"
    gone = weakref.ref(index)
    gc.disable()
    try:
        del index
        assert gone() is None, "it holds itself: its memory would outlive its last user"
    finally:
        gc.enable()
    remove_from_index(tmp_path / "i", "page = 1")
    left = ColBERT.load(tmp_path / "i")
    assert len(left.passages) == 2 and "document words" not in left.ranking
