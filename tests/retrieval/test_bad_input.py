"""Odd passages, odd queries and many threads at once: nothing breaks, and nothing is found twice."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import add_to_index, build_index, check_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError

# PLAID is slow where colbert-ai's C++ extensions were never compiled.
ENGINES = ["colbert", "bm25", "dense", "hybrid", pytest.param("plaid", marks=pytest.mark.slow)]
ODD = {
    "emoji": "\U0001f600\U0001f600 \U0001f469\u200d\U0001f469\u200d\U0001f467",
    "hebrew": "השועל החום קפץ מעל הכלב העצלן",
    "arabic": "\u202eنهر الدانوب يصب في البحر الأسود\u202c",  # noqa: RUF001
    "nothing": "",
    "points": "... !!! ---",
    "control": "\x00\x07\ufeff\u200b",
    "one": "水",
    "blob": "x" * 20_000,
    "long": "many words " * 3_000,
}


_passage: Any = Passage  # as a program calls it that nobody has type-checked


@pytest.fixture(scope="module", params=ENGINES)
def index(request: pytest.FixtureRequest, passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("odd") / "i"
    odd = [Passage(pid, text) for pid, text in ODD.items()]
    if request.param == "plaid":
        build_index([*passages, *odd], folder, search="plaid", progress=False)
    else:
        build_index(passages, folder, request.param, progress=False)
        add_to_index(folder, odd, progress=False)
    assert check_index(folder) == []
    return open_folder(folder)


def test_odd_passages_are_kept_as_they_are_and_the_others_are_still_found(index: Index):
    kept = {p.pid: p.text for p in index.passages}
    assert {pid: kept[pid] for pid in ODD} == ODD
    assert index("Who wrote Hamlet?", 1)[0].title == "Hamlet"
    for query in ODD.values():
        found = [p.pid for p in index(query, 100)]
        assert len(found) == len(set(found)) <= len(kept)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("a text", r"is 'a text': give a raisf\.Passage \(raisf\.index takes strings"),
        ({"text": "a text"}, r"is \{'text': 'a text'\}: give a raisf\.Passage"),
        (_passage("p", None), "has the text None: give a string"),
        (_passage(3, "t"), "has the pid 3: give a string"),
        (_passage("p", "t", source=Path("a.txt")), "has the source .*a.txt.*: give a string"),
        (_passage("p", "t", metadata={"day": date(2026, 1, 2)}), "has the metadata 'day': .*: give a name, and a text"),
        (Passage("p", "t", metadata={"n": float("nan")}), "has the metadata 'n': nan"),
    ],
)
def test_what_no_index_could_hold_is_named_and_not_taken_for_a_damaged_index(
    wrong: Any, told: str, passages: list[Passage], tmp_path: Path
):
    with pytest.raises(InputError, match=f"passage 2 {told}"):
        build_index([passages[0], wrong], tmp_path / "new", "bm25", progress=False)
    build_index(passages, tmp_path / "i", "bm25", progress=False)
    with pytest.raises(InputError, match=f"passage 1 {told}"):
        add_to_index(tmp_path / "i", [wrong], progress=False)
    assert check_index(tmp_path / "i") == [] and len(open_folder(tmp_path / "i").passages) == len(passages)


def test_right_to_left_text_is_found(index: Index):
    assert index("השועל הכלב", 1)[0].pid == "hebrew"


def test_a_query_of_ten_thousand_words_is_answered(index: Index):
    assert len(index("Who wrote Hamlet? " * 2_500, 3)) >= 1
    assert index.search_many(["word " * 10_000, "Hamlet tragedy"], 1)[1][0].title == "Hamlet"


def test_sixteen_threads_find_what_one_finds(index: Index):
    queries = [
        f"{query} {n}" for n in range(4) for query in ("Who wrote Hamlet?", "river sea", "العربية", "\U0001f600")
    ]
    conditions = [None if n % 3 else "title != 'Chess'" for n in range(len(queries))]
    wanted = [[p.pid for p in index(query, 3, where)] for query, where in zip(queries, conditions, strict=True)]
    with ThreadPoolExecutor(16) as pool:
        found = list(
            pool.map(lambda job: [p.pid for p in index(job[0], 3, job[1])], zip(queries, conditions, strict=True))
        )
    assert found == wanted
