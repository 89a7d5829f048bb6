"""Searches of several threads are encoded together, each gets its own, and one that fails takes no other along."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from raisf.retrieval.search.together import MicroBatcher


class Encoder:
    """Doubles numbers, one call at a time behind a door; remembers what came together."""

    def __init__(self):
        self.calls, self.door = [], threading.Event()

    def __call__(self, items):
        self.calls.append(list(items))
        self.door.wait(10)
        if any(item < 0 for item in items):
            raise ValueError(f"found {min(items)}")
        return [2 * item for item in items]


def test_a_lone_caller_waits_for_nobody():
    encoder = Encoder()
    encoder.door.set()
    together = MicroBatcher(encoder)
    assert together([1, 2]) == [2, 4] and together([]) == []
    assert encoder.calls[0] == [1, 2]


def wait_for(together, count):
    while len(together._waiting) < count:
        threading.Event().wait(0.001)


def test_what_comes_meanwhile_goes_together_and_in_order():
    encoder = Encoder()
    together = MicroBatcher(encoder, most=8)
    with ThreadPoolExecutor(16) as pool:
        first = pool.submit(together, [100])
        while not encoder.calls:
            threading.Event().wait(0.001)
        others = [pool.submit(together, [at, at + 50]) for at in range(10)]
        wait_for(together, 10)
        encoder.door.set()
        assert first.result(20) == [200]
        assert [other.result(20) for other in others] == [[2 * at, 2 * at + 100] for at in range(10)]
    assert [len(call) for call in encoder.calls] == [1, 8, 8, 4]


def test_one_that_fails_takes_no_other_along():
    encoder = Encoder()
    together = MicroBatcher(encoder)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(together, [1])
        while not encoder.calls:
            threading.Event().wait(0.001)
        good, bad = pool.submit(together, [2]), pool.submit(together, [-1])
        wait_for(together, 2)
        encoder.door.set()
        assert (first.result(20), good.result(20)) == ([2], [4])
        with pytest.raises(ValueError, match="found -1"):
            bad.result(20)


def test_a_caller_that_is_interrupted_leaves_the_others_their_work():
    class Interrupted(BaseException):
        pass

    def work(items):
        seen.append(list(items))
        if len(seen) == 1:
            raise Interrupted
        return list(items)

    seen = []
    together = MicroBatcher(work)
    with pytest.raises(Interrupted):
        together([1])
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(together, [2]).result(20) == [2]


def test_ctrl_c_in_the_middle_loses_nobodys_work():
    """It strikes the thread that works for all, when it has found that one of them fails and does each alone."""
    together, struck = MicroBatcher(lambda items: work(items)), []

    def work(items):
        if len(items) > 1:
            raise ValueError("one is bad")
        if items == [2] and not struck:
            struck.append(items)
            raise KeyboardInterrupt
        return items

    futures = [Future() for _ in range(3)]
    together._waiting = [([at], future) for at, future in enumerate(futures, 1)]
    with pytest.raises(KeyboardInterrupt):
        together([4])
    assert [future.done() for future in futures] == [True, False, False]
    assert together([5]) == [5]
    assert [future.result(0) for future in futures] == [[1], [2], [3]]


@pytest.mark.parametrize("most", [1, 3])
def test_one_caller_of_many_items_has_no_more_worked_on_at_once(most: int) -> None:
    seen: list[int] = []

    def work(items: Sequence[int]) -> list[int]:
        seen.append(len(items))
        return [10 * item for item in items]

    assert MicroBatcher(work, most=most)(range(7)) == [0, 10, 20, 30, 40, 50, 60]
    assert max(seen) == most and sum(seen) == 7
