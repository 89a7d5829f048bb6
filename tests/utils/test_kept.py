"""What is kept has a bound in bytes: a service that is asked long questions for days must not fill its machine."""

from pathlib import Path

from raisf.retrieval.engines import base
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.passage import Passage
from raisf.utils.kept import Kept


def test_the_least_recently_used_goes_and_what_is_too_large_never_comes():
    kept: Kept[str] = Kept(10)
    kept.put("a", "A", 4)
    kept.put("b", "B", 4)
    assert kept.get("a") == "A"
    kept.put("c", "C", 4)
    assert [kept.get(key) for key in "abc"] == ["A", None, "C"]
    kept.put("d", "D", 11)
    assert [kept.get(key) for key in "abcd"] == ["A", None, "C", None]


def test_an_index_does_not_keep_long_questions_without_end(tmp_path: Path):
    index = BM25.build([Passage(str(number), f"alpha {number}") for number in range(3)], tmp_path / "i")
    long = "x" * (base.KEPT // 4)
    for number in range(8):
        index(f"alpha {number} {long}", 3)
    searches = index._found._values
    assert 0 < len(searches) < 4 and searches.currsize <= base.KEPT
    assert index.search_many([f"alpha {long * 5}"], 3) == index.search_many([f"alpha {long * 5}"], 3)
