"""Odd passages, odd queries and many threads at once: nothing breaks, and nothing is found twice."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import add_to_index, build_index, check_index, open_folder
from raisf.retrieval.passage import Passage

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
