"""How a request reaches an endpoint: in one event loop of the process, each try within its time, and tried again.

The loop is what makes time limits hold. A thread that waits for a socket can only be given up; a coroutine is
cancelled, and its connection is closed, whether the endpoint is silent, sends a byte now and then, or asks for an
hour's patience.
"""

import asyncio
import contextlib
import itertools
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

from dspy.lm15 import LM15Error, ProviderError, RateLimitError, Response, ServerError, TransportError
from dspy.lm15 import TimeoutError as LateError

from raisf.lm.replies import check_answers, check_ended, says_something

T = TypeVar("T")

# Garbage is no sign of load, so the next try need not wait; a busy or failing server gets 1, 2, 4 ... seconds.
GARBAGE_SECONDS, BUSY_SECONDS = 0.1, 1.0

_deadline: ContextVar[float | None] = ContextVar("raisf_deadline", default=None)
_stoppables: ContextVar[tuple["Stoppable", ...]] = ContextVar("raisf_stoppables", default=())
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_loops_lock = threading.Lock()


class Stoppable:
    """Calls that can be ended together: a question's, when nobody waits for it any more."""

    def __init__(self) -> None:
        self._calls: set[Future[Any]] = set()
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, call: "Future[Any]") -> None:
        """Add a call that is under way; after `stop` it is cancelled at once."""
        with self._lock:
            self._calls.add(call)
            stopped = self._stopped
        call.add_done_callback(self._forget)
        if stopped:
            call.cancel()

    def stop(self) -> None:
        """Cancel the calls: to endpoints, which closes their connections, and to LMs in the process."""
        with self._lock:
            self._stopped, calls = True, list(self._calls)
        for call in calls:
            call.cancel()

    def _forget(self, call: "Future[Any]") -> None:
        with self._lock:
            self._calls.discard(call)


@contextlib.contextmanager
def until(moment: float | None, stoppable: Stoppable | None = None) -> Iterator[None]:
    """Let no call in this context, to an endpoint or an LM in the process, outlast a moment of `time.monotonic()`.

    A limit that holds around this context already, such as that of a module which contains the program, still holds.

    Args:
        moment: That moment; None: no limit.
        stoppable: Who can end them before.
    """
    moments = [one for one in (moment, deadline()) if one is not None]
    tokens = (
        _deadline.set(min(moments, default=None)),
        _stoppables.set((*_stoppables.get(), stoppable) if stoppable else _stoppables.get()),
    )
    try:
        yield
    finally:
        _deadline.reset(tokens[0])
        _stoppables.reset(tokens[1])


def deadline() -> float | None:
    """The moment that holds in this context."""
    return _deadline.get()


def seconds_left() -> float | None:
    """How long that is from now, 0 where it has passed; None without a limit."""
    moment = deadline()
    return None if moment is None else max(0.0, moment - time.monotonic())


def late(seconds: float | None) -> LateError:
    """What is raised when so many seconds were not enough."""
    return LateError(f"no whole answer in {seconds or 0:.3g} s")


def in_time(future: "Future[T]") -> T:
    """A future's result, within this context's time. Where the wait ends before, by Ctrl-C too, it is cancelled.

    Raises:
        LateError: It takes longer.
    """
    left = seconds_left()
    try:
        return future.result(left)
    except TimeoutError:
        if not future.done():
            raise late(left) from None
        raise
    finally:
        future.cancel()


def submit(work: Coroutine[Any, Any, T]) -> "Future[T]":
    """Hand a request to the loop; the `Stoppable`s of this context can cancel it."""
    future = asyncio.run_coroutine_threadsafe(work, loop())
    add_to_stoppable(future)
    return future


def add_to_stoppable(call: "Future[Any]") -> None:
    """Let the `Stoppable`s of this context cancel a call."""
    for stoppable in _stoppables.get():
        stoppable.add(call)


def loop() -> asyncio.AbstractEventLoop:
    """The process's event loop for endpoints, in a thread of its own; a forked child gets another."""
    with _loops_lock:
        found = _loops.get(os.getpid())
        if found is None:
            found = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=found.run_forever, daemon=True, name="endpoints").start()
        return found


async def persist(
    attempt: Callable[[], Awaitable[Response | None]], retries: int, timeout: float, moment: float | None
) -> Response | None:
    """The response of the first try that gives one.

    Args:
        attempt: One try. It may raise `Final` to say that no other may follow, and give None where it has handed its
            answer on already.
        retries: Tries after the first.
        timeout: Seconds of each try, from its start to the last byte. An endpoint that asks for more patience than
            this (Retry-After) is tried again after the usual wait, and not after hours.
        moment: When to give up in any case; None: never.

    Returns:
        What the try gave; an empty response if the last try gave nothing else. Whoever keeps responses asks
        `replies.lasting`.

    Raises:
        LM15Error: The last try's.
    """
    for number in itertools.count():
        error = response = None
        try:
            response = await _bounded(attempt, timeout, moment)
            if response is not None:
                check_ended(response.finish_reason, response.provider_data)
                check_answers(response)
            if response is None or says_something(response):
                return response
        except Final as final:
            raise final.error from final.error.__cause__
        except LM15Error as failure:
            error = failure
        except Exception as failure:  # a body in which the client finds nothing that it knows
            error = ProviderError(f"the reply cannot be understood ({type(failure).__name__}: {failure})")
            error.__cause__ = failure
        wait = _wait(error, number, timeout)
        too_late = moment is not None and time.monotonic() + wait >= moment
        if number >= retries or too_late or not (error is None or transient(error)):
            if error is not None:
                raise error
            return response
        await asyncio.sleep(wait)


class Final(Exception):
    """A failed try that must not be repeated, because a part of its answer has been shown.

    Args:
        error: What failed.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def transient(error: Exception) -> bool:
    """Whether the same request may succeed later: the endpoint is busy, fails, is silent, or sends garbage."""
    if isinstance(error, RateLimitError | ServerError | TransportError | LateError):
        return True
    return type(error) is ProviderError and (error.status or 200) < 300


async def _bounded(
    attempt: Callable[[], Awaitable[Response | None]], timeout: float, moment: float | None
) -> Response | None:
    left = timeout if moment is None else min(timeout, moment - time.monotonic())
    try:
        async with asyncio.timeout(max(0.0, left)):
            return await attempt()
    except TimeoutError as error:
        if getattr(error, "status", None):  # a gateway's word (408, 504), with what patience it asks for
            raise
        raise late(left) from None


def _wait(error: Exception | None, number: int, timeout: float) -> float:
    """Seconds before the next try: what the endpoint asks for if that is bearable, else longer each time."""
    asked = getattr(error, "retry_after", None)
    if asked is not None and 0 < asked <= timeout:
        return asked
    busy = isinstance(error, RateLimitError | ServerError | TransportError)
    # Never alike: what failed together does not come back together.
    return random.uniform(0.5, 1.0) * (BUSY_SECONDS if busy else GARBAGE_SECONDS) * 2**number
