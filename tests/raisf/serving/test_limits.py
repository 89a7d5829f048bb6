"""How often a client may ask."""

from types import SimpleNamespace

import pytest

from raisf.serving import limits
from raisf.serving.limits import Admission, Limits, TooManyQuestions


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def ask(admission: Admission, client: str = "a") -> int:
    """Seconds until it may be asked; 0 where it was let in."""
    try:
        with admission.place(client):
            return 0
    except TooManyQuestions as refused:
        return refused.retry_after


def test_an_allowance_fills_up_again_at_its_rate_and_no_further(clock: Clock) -> None:
    admission = Admission(Limits(rate=2))
    assert [ask(admission) for _ in range(3)] == [0, 0, 30]
    clock.now += 20
    assert ask(admission) in (10, 11)
    clock.now += 10
    assert [ask(admission) for _ in range(2)] == [0, 30]
    clock.now += 3600
    assert [ask(admission) for _ in range(3)] == [0, 0, 30]


def test_who_has_asked_lately_is_remembered_among_many_clients_and_others_are_not(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENTS_KEPT", 3)
    admission = Admission(Limits(rate=1))
    assert [ask(admission, client) for client in "ab"] == [0, 0]
    clock.now += 40
    assert [ask(admission, client) for client in "cd"] == [0, 0]
    assert ask(admission, "a") in (20, 21)
    clock.now += 30
    assert [ask(admission, client) for client in "ec"] == [0, 30]
    assert len(admission._clients) == 3  # a and b may ask as often as if they never had


def test_a_question_that_finds_no_place_costs_its_client_nothing(clock: Clock) -> None:
    admission = Admission(Limits(concurrency=1, rate=1))
    with admission.place("a"):
        assert ask(admission, "b") == 1
    assert ask(admission, "b") == 0
