"""An id that comes twice is found however the ids look, and 21 million numbered ones need little memory."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from raisf.retrieval.corpus.ids import SeenIds

IDS = st.one_of(
    st.integers(0, 1200).map(str),
    st.builds("{}#{}".format, st.sampled_from(["a.md", "b", "c7"]), st.integers(0, 700)),
    st.sampled_from(["", "07", "7", "007", "0", "00", "a0", "a00", "٣", "x" * 20, "9" * 30, "9" * 29]),
    st.text(max_size=3),
)


@given(st.lists(IDS, max_size=60))
def test_exactly_what_came_before_is_found(pids: list[str]):
    seen, known = SeenIds(), set()
    for number, pid in enumerate(pids):
        assert (seen.add(pid, f"place {number}") is not None) == (pid in known)
        known.add(pid)
        assert len(seen) == len(known)


def test_the_earlier_place_is_told():
    seen = SeenIds()
    for number in range(600, 1600):
        seen.add(str(number), f"line {number}")
    seen.add("guide", "line 9")
    assert seen.add("guide", "line 10") == "line 9"
    assert seen.add("1100", "x") == "line 1024 or a little after it"


def test_ids_that_count_up_take_no_memory_to_speak_of():
    seen = SeenIds()
    tracemalloc.start()
    try:
        for number in range(20_000):
            seen.add(str(number), "a place")
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
