"""Work with a time limit: its threads are kept, since what each opens stays open beyond its end."""

import threading
import time
from typing import Any

import dspy
import pytest

from raisf.programs.baselines.rag import RAG
from raisf.programs.concurrency import within


def test_threads_are_kept_and_those_that_call_lms_apart() -> None:
    def here() -> int:
        return threading.get_ident()

    calling, others = [], []
    for _ in range(20):
        calling.append(within(9.0, here, calls=True))
        others.append(within(9.0, here))
        time.sleep(0.001)  # a thread is idle again a moment after its work is done
    assert len({*calling}) < 10 and len({*others}) < 10 and not {*calling} & {*others}
    assert threading.get_ident() not in calling


def test_what_is_late_is_left_to_end_and_keeps_nobody_waiting() -> None:
    let_go, ended = threading.Event(), threading.Event()

    def late() -> None:
        let_go.wait(9)
        ended.set()

    with pytest.raises(TimeoutError, match=r"not done in 0\.01 s"):
        within(0.01, late)
    assert within(9.0, lambda: 7) == 7 and not ended.is_set()
    let_go.set()
    assert ended.wait(9)


def test_an_exception_is_the_callers_and_the_thread_goes_on() -> None:
    def broken() -> None:
        raise ValueError("mine")

    for _ in range(3):
        with pytest.raises(ValueError, match="mine"):
            within(9.0, broken, calls=True)


def test_where_the_system_gives_no_thread_the_caller_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("raisf.programs.concurrency._others", [])
    monkeypatch.setattr(threading.Thread, "start", none)
    assert within(9.0, threading.get_ident) == threading.get_ident()


def test_a_search_that_the_time_ended_is_not_among_those_whose_passages_were_used(scripted: Any) -> None:
    def slow(query: str, k: int) -> list[str]:
        time.sleep(0.3)
        return ["late"]

    with dspy.context(lm=scripted()):
        trace = RAG(slow, max_seconds=0.05)(question="root").trace
    assert (trace.root.route, trace.root.passages) == ("budget", [])
    assert (trace.cost.retrievals, trace.cost.discarded_retrievals) == (0, 1)
