"""If these failed, `max_seconds` would hold for endpoints only: a text in the process went on, beside all others."""

import asyncio
import threading
import time

import dspy
import pytest
from dspy.lm15 import Config, Message, Request
from dspy.lm15 import TimeoutError as LateError

from raisf.lm.connect import connect
from raisf.lm.local.clients import AsyncEngineClient, EngineClient
from raisf.lm.local.decoding import Decoding
from raisf.lm.local.writing import Answer
from raisf.lm.transport import deadline, until
from raisf.programs.baselines.direct import Direct

LONG = Request("m", (Message.user("Who founded Ulm?"),), config=Config(max_tokens=400))


@pytest.fixture
def endless(llama, monkeypatch):
    """An LM that writes a token in a fiftieth of a second and comes to no end; `steps` counts them."""
    steps, step, ended = [], Decoding.step, Answer.ended

    def slow(self):
        time.sleep(0.02)
        steps.append(1)
        return step(self)

    monkeypatch.setattr(Decoding, "step", slow)
    monkeypatch.setattr(Answer, "ended", lambda self: ended(self) and self.job.over)
    lm = connect(f"local/{llama}", max_tokens=400)
    lm.cache = False
    lm.base_engine.model  # noqa: B018 - read before the clock runs
    lm.steps = steps
    return lm


def in_time(call, seconds=0.3):
    began = time.monotonic()
    with pytest.raises(LateError, match="no whole answer in"), until(began + seconds):
        call()
    assert time.monotonic() - began < seconds + 1


def stopped(steps):
    time.sleep(0.3)
    before = len(steps)
    time.sleep(0.3)
    return before > 1 and len(steps) == before


def consume(client):
    return list(client.stream(LONG))


async def aconsume(client):
    return [event async for event in AsyncEngineClient(client).stream(LONG)]


CALLS = {
    "whole": lambda client: client.complete(LONG),
    "streamed": consume,
    "awaited": lambda client: asyncio.run(AsyncEngineClient(client).complete(LONG)),
    "streamed and awaited": lambda client: asyncio.run(aconsume(client)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_call_ends_with_its_time_and_its_text_with_it(endless, call):
    in_time(lambda: call(EngineClient(endless.base_engine)))
    assert stopped(endless.steps)


def test_what_is_asked_within_a_limit_keeps_it_whatever_its_own_is():
    with until(5.0):
        for own, held in ((None, 5.0), (9.0, 5.0), (3.0, 3.0)):
            with until(own):
                assert deadline() == held
        assert deadline() == 5.0
    assert deadline() is None


@pytest.mark.parametrize("streamed", [False, True])
def test_a_question_ends_with_max_seconds_and_leaves_nothing_behind(endless, streamed):
    program = Direct(max_seconds=0.5)
    program.set_lm(endless)

    async def shown():
        return [piece async for piece in dspy.streamify(program)(question="Who?")][-1]

    threads, began = threading.active_count(), time.monotonic()
    said = asyncio.run(shown()) if streamed else program(question="Who?")
    assert said.trace.root.route == "budget" and "max_seconds=0.5" in said.trace.root.reason
    assert time.monotonic() - began < 1.5
    assert stopped(endless.steps) and threading.active_count() <= threads + 2
