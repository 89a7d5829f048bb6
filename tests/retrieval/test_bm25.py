"""Whoever has no model still finds passages by their words."""

import dataclasses
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pytest

from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.index import add_to_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import DOTLESS, MANIFEST, WHOLE_WORDS, describe_files
from raisf.retrieval.store.words import words_of
from raisf.utils.files import write_json


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


def test_among_equals_the_earlier_is_found_however_many_are_asked_for(tmp_path: Path):
    """Of 30 equals the 30th came first, then the 29th, the 27th and the 28th, as the processor's sort left them."""
    index = BM25.build(
        [Passage(f"{n:03d}", "An owl." if n % 5 else "An owl, an owl.") for n in range(60)], tmp_path / "i"
    )
    found = [passage.pid for passage in index("owl", 60)]
    assert found == [f"{n:03d}" for n in sorted(range(60), key=lambda n: (n % 5 > 0, n))]
    assert all([passage.pid for passage in index("owl", k)] == found[:k] for k in range(1, 60))
    assert [passage.pid for passage in index("owl", 3, "id > '010' and id != '015'")] == ["020", "025", "030"]
    eight_bits: Any = np.uint8(3)  # of which -3 is 253
    assert [passage.pid for passage in index("owl", eight_bits)] == found[:3]


TEXTS = [
    "A lack of vitamin D.",
    "A lack of vitamin C.",
    "\u6771\u4eac\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002",
    "Cafe\u0301 noir",
    "An \ufb01sh",
]


@pytest.mark.parametrize(
    ("query", "found"),
    [("D", 0), ("\u9996\u90fd", 2), ("caf\u00e9", 3), ("cafe\u0301", 3), ("fish", 4), ("\uff26\uff49sh", 4)],
)
def test_words_of_one_character_of_no_spaces_and_of_composed_letters_are_found(query: str, found: int, tmp_path: Path):
    index = BM25.build([Passage(str(number), text) for number, text in enumerate(TEXTS)], tmp_path / "i")
    assert [passage.pid for passage in index(query, 5)] == [str(found)]
    assert index("it's", 5) == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("\u0926\u093f\u0932", ["hindi"]),  # a heart; without its vowel sign it is nearly lentils
        ("\u0926\u093e\u0932", ["lentils"]),
        ("\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", ["hebrew"]),
        ("\u0b95\u0bbf", ["tamil"]),
        ("\u0e1b\u0e23\u0e30\u0e40\u0e17\u0e28", ["thai"]),  # a part of what stands there without spaces
        ("Donau\u00addampf\u00adschiff", ["ship"]),
        ("Donaudampfschiff", ["ship"]),
        ("\U0001e900\U0001e944", ["adlam"]),
    ],
)
def test_words_are_not_cut_at_their_vowel_signs(query: str, found: list[str], tmp_path: Path):
    texts = {
        "hindi": "\u0926\u093f\u0932 \u0936\u0930\u0940\u0930 \u0915\u093e",
        "lentils": "\u0926\u093e\u0932 \u0926\u093e\u0932",
        "hebrew": "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd",
        "tamil": "\u0b95\u0bbf \u0bae\u0bca\u0bb4\u0bbf",
        "thai": "\u0e44\u0e17\u0e22\u0e40\u0e1b\u0e47\u0e19\u0e1b\u0e23\u0e30\u0e40\u0e17\u0e28",
        "ship": "The Donau\u00addampf\u00adschiff left.",
        "adlam": "\U0001e900\U0001e944\U0001e901 \U0001e900\U0001e944",
    }
    index = BM25.build([Passage(pid, text) for pid, text in texts.items()], tmp_path / "i")
    assert [passage.pid for passage in index(query, 1)] == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        *(("istanbul", "a"), ("ISTANBUL", "a"), ("\u0130stanbul", "a"), ("I\u0307stanbul", "a")),
        *(("\u0131sparta", "b"), ("Isparta", "b"), ("i\u011fd\u0131r", "b")),
    ],
)
def test_turkish_letters_are_found_however_they_are_capitalised(query: str, found: str, tmp_path: Path):
    texts = {"a": "\u0130stanbul'da ya\u015f\u0131yor.", "b": "ISPARTA, I\u011fd\u0131r", "c": "Ankara"}
    index = BM25.build([Passage(pid, text) for pid, text in texts.items()], tmp_path / "i")
    assert [passage.pid for passage in index(query, 1)] == [found]


def test_only_counts_of_turkish_letters_are_marked(tmp_path: Path):
    """Others rank as they did, and answers that were measured with them stay their own."""
    marks = [
        (tmp_path / name / str(BM25.build([Passage("a", text)], tmp_path / name).manifest.words) / DOTLESS).exists()
        for name, text in (("en", "An owl."), ("tr", "\u0131l\u0131k"))
    ]
    assert marks == [False, True]
    assert words_of(["\u0130L"], dotless=False) != words_of(["\u0130L"]) == words_of(["il"], dotless=False)


def test_counts_of_before_are_searched_by_their_own_words_until_the_index_changes(tmp_path: Path):
    index = BM25.build([Passage(str(number), text) for number, text in enumerate(TEXTS)], tmp_path / "i")
    manifest, texts = index.manifest, [passage.prompt_text for passage in index.passages]
    old, counts = bm25s.BM25(), tmp_path / "i" / str(manifest.words)
    old.index(bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False), show_progress=False)
    (counts / WHOLE_WORDS).unlink()
    old.save(counts, show_progress=False)
    files = {name: file for name, file in manifest.files.items() if not name.startswith("words")}
    files |= describe_files(tmp_path / "i", [counts])
    before = dataclasses.replace(manifest, files=files)
    write_json(tmp_path / "i" / MANIFEST, dataclasses.asdict(before))
    index = BM25.load(tmp_path / "i")
    assert [passage.pid for passage in index("cafe\u0301", 5)] == ["3"] and index("D", 5) == []
    assert before.ranking != manifest.ranking  # what was answered with the one is not taken for the other's
    add_to_index(tmp_path / "i", [Passage("5", "Vitamin K.")])
    index = BM25.load(tmp_path / "i")
    assert [passage.pid for passage in index("D", 5)] == ["0"] and index.manifest.ranking == manifest.ranking


def test_a_corpus_of_stop_words_can_be_indexed(tmp_path: Path):
    index = BM25.build([Passage("a", "the of"), Passage("b", "!")], tmp_path / "i")
    assert index("the", 2) == []


def test_whoever_waits_for_words_to_be_counted_is_shown_that_they_are(tmp_path: Path, capsys: Any):
    for place, progress in ((tmp_path / "shown", True), (tmp_path / "quiet", False)):
        BM25.build([Passage("a", "An owl.")], place, progress=progress)
        assert ("counting words" in capsys.readouterr().err) == progress
        add_to_index(place, [Passage("b", "A heron.")], progress=progress)
        assert ("counting words" in capsys.readouterr().err) == progress
