"""If these failed, a question about one club would be answered from the rules of another, or rows ranked by words."""

import gc
import os
import subprocess
import sys
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


@pytest.mark.parametrize(
    ("pid", "source"), [("desk-{}", "desks.jsonl"), ("desks.jsonl#{}",) * 2, ("desks.CSV.gz#{}",) * 2]
)
def test_rows_beside_documents_are_each_for_itself(pid: str, source: str):
    """A list of contacts with ids switched all handbooks off; one without was a document that has nearly all words."""
    source = source.partition("#")[0]
    rows = [Passage(pid.format(n), f"Desk {n}, for the {n}th club of rowing.", source=source) for n in range(9)]
    words = DocumentWords.of([*CLUBS, *rows], np.ones(13, dtype=bool))
    assert words
    found = dict(words.ranked("Which boats does the Velm Rowing Club have at desk 7?", [*HITS, (4, 9.0)]))
    assert found[1] > found[3] and found[4] - 9.0 < found[1] - 12.0


def test_rows_with_ids_that_are_cut_up_are_documents_where_most_are():
    def corpus(cut: int, whole: int) -> list[Passage]:
        parts = [Passage(f"d{n}#{part}", f"Part {part}", source="c.jsonl") for n in range(cut) for part in range(3)]
        return [*parts, *(Passage(f"p{n}", "A row", source="c.jsonl") for n in range(whole))]

    for cut, whole, found in ((3, 0, True), (3, 3, True), (3, 4, False), (1, 0, False)):
        passages = corpus(cut, whole)
        assert bool(DocumentWords.of(passages, np.ones(len(passages), dtype=bool))) == found, (cut, whole)


def test_rows_whose_ids_look_like_parts_are_each_for_itself():
    """Issues with ids such as `org/repo#12` were ranked by what stands in others of their repository."""
    issues = [Passage(f"org/{n % 2}#{n}", f"Issue {n}", source="c.jsonl", metadata={"line": n}) for n in range(1, 9)]
    assert DocumentWords.of(issues, np.ones(8, dtype=bool)) is None
    parts = [
        Passage(f"d{n}#{part}", "Part", source="c.jsonl", metadata={"line": n}) for n in (9, 10) for part in (1, 2)
    ]
    assert DocumentWords.of(parts, ALL)


def test_a_files_name_counts_by_its_words():
    """`velm_rowing_club.pdf` was one word, which nobody asks for."""
    clubs = ("velm_rowing_club.md", "belrin_chess_circle.md")
    passages = [Passage(f"{name}#{n}", FEES, source=name) for name in clubs for n in range(2)]
    words = DocumentWords.of(passages, ALL)
    assert words and next(number for number, _ in words.ranked("the Belrin chess fee", HITS)) == 3


def test_scores_are_the_same_in_every_process():
    """Sets of words have another order in each: rounding told equal passages apart, in each otherwise."""
    asked = """
import random
from tests.retrieval.test_document_words import *
rng, words = random.Random(0), [f"word{n}" for n in range(40)]
texts = [" ".join(rng.sample(words, 20)) for _ in range(60)]
of = DocumentWords.of([Passage(f"d{n // 2}#0{n % 2}", text) for n, text in enumerate(texts)], np.ones(60, dtype=bool))
print([of.ranked(" ".join(rng.sample(words, 15)), [(n, 9.0) for n in range(50)]) for _ in range(20)])
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", asked], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(found) == 1


def test_what_was_removed_counts_no_more():
    without = ALL.copy()
    without[0] = False
    assert ranked("What is the annual fee of the Velm Club?")[0] == 1
    assert DocumentWords.of(CLUBS, without) is None  # three passages of two documents
    more = [*CLUBS, *(Passage(f"golf.md#{n}", "Tuesday.", source="golf.md") for n in range(2))]
    words = DocumentWords.of(more, np.array([False, *[True] * 5]))
    left = [hit for hit in HITS if hit[0]]
    assert words and words.ranked("Velm?", left) == left


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
    assert isinstance(index, ColBERT) and index.ranking.endswith(" words of documents")
    for name, fee in (("Velm Rowing Club", "40"), ("Belrin Chess Circle", "25"), ("Oss Garden Society", "30")):
        found = index(f"What is the annual fee of the {name}?", 5)
        fees = [passage.text for passage in found if "euros" in passage.text]
        assert f"{fee} euros" in fees[0], fees
        assert found[:3] == index(f"What is the annual fee of the {name}?", 3)
        assert [passage.score for passage in found] == sorted((p.score or 0 for p in found), reverse=True)
    rows = build_index(CLUBS[:1], tmp_path / "rows", progress=False)
    assert "words of documents" not in found_by(rows) and "words of documents" in found_by(index)


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
    assert len(left.passages) == 2 and "words of documents" not in left.ranking
