"""Work side by side: no deadlock however it nests, and DSPy's context (LM, adapter, usage, trace) in each thread."""

import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, TypeVar

import dspy

T = TypeVar("T")


class BudgetSpent(Exception):
    """The question may not make another call: the node that wanted it ends as "unknown"."""


class Stopped(Exception):
    """The run failed elsewhere or was cancelled: the work that is left ends here."""


class _Limit:
    """How many LM calls may be under way in this process, and the threads to make them from."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.semaphore = threading.BoundedSemaphore(calls)
        # Twice the calls: about half of the threads wait for the tasks that they started.
        self.pool = ThreadPoolExecutor(2 * calls, thread_name_prefix="raisf")


# 32: a node's five judgements for a handful of nodes at once; servers and the local engine batch about as many.
_limit = _Limit(32)

# The one place for what this context's work asks, where it has a place within the limit itself.
_within: contextvars.ContextVar[threading.BoundedSemaphore | None] = contextvars.ContextVar("within", default=None)


def set_concurrency(calls: int) -> int:
    """Set how many LM calls may be under way at once in this process.

    Args:
        calls: At least 1. With 1 everything runs in the caller's thread, in order: for debugging, and to compare with.

    Returns:
        The number that held before.
    """
    global _limit
    if calls < 1:
        raise ValueError(f"concurrency is {calls}: give 1 or more")
    before, _limit = _limit, _Limit(calls)
    before.pool.shutdown(wait=False)
    return before.calls


def semaphore() -> threading.BoundedSemaphore:
    """The process-wide limit: hold it around an LM call and around nothing else, or nested work could deadlock.

    What a predictor asks on its way to an answer has that call's place, one call at a time.
    """
    return _within.get() or _limit.semaphore


@contextlib.contextmanager
def holding(place: threading.BoundedSemaphore) -> Iterator[None]:
    """The work for which a place was acquired, which is released at its end."""
    before = _within.set(threading.BoundedSemaphore())
    try:
        yield
    finally:
        _within.reset(before)
        place.release()


class Task(Generic[T]):
    """A task that has been handed to the pool; whoever needs its result before a thread was free runs it itself.

    So a wait is always for work that some thread is doing right now, and never for a place in the queue: tasks may
    start tasks and wait for them, to any depth and with any number of threads.

    Args:
        task: Takes nothing; runs once, in a copy of the context of the moment in which this object is made.
    """

    def __init__(self, task: Callable[[], T]) -> None:
        self._task = task
        self._context = contextvars.copy_context()
        self._claim = threading.Lock()
        self._future: Future[T] = Future()
        self.steps: list[Any] = []
        """What the task added to DSPy's trace (`dspy.settings.trace`)."""
        # A stream of tokens tells calls apart by their predictor alone, and only the thread that DSPy began it in can
        # write to it: while there is one, whoever wants the result does the work.
        if _limit.calls > 1 and dspy.settings.send_stream is None:
            # A pool that was shut down takes nothing; `get` runs the task then.
            with contextlib.suppress(RuntimeError):
                _limit.pool.submit(self._run)

    def get(self) -> T:
        """The task's result, or its exception."""
        self._run()
        return self._future.result()

    def drop(self) -> bool:
        """Make sure that the task does not start any more. False: it had started."""
        if self._claim.acquire(blocking=False):
            self._future.cancel()
        return self._future.cancelled()

    def _run(self) -> None:
        if not self._claim.acquire(blocking=False):
            return
        settle(self._future, lambda: self._context.run(self._with_own_trace))

    def _with_own_trace(self) -> T:
        if dspy.settings.trace is None:
            return self._task()
        with dspy.context(trace=self.steps):
            return self._task()


class _Worker:
    """A thread that does one piece of work after another, and waits among the idle ones between two.

    Not of a `ThreadPoolExecutor`: the process's end would wait for what is never done.
    """

    def __init__(self, idle: "list[_Worker]") -> None:
        self._idle = idle
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, daemon=True, name="raisf-within")
        self.thread.start()

    def hand(self, work: Callable[[], None]) -> None:
        """Have some work done, which raises nothing."""
        self._inbox.put(work)

    def _work(self) -> None:
        while True:
            self._inbox.get()()
            self._idle.append(self)


_calling: list[_Worker] = []
_others: list[_Worker] = []
"""Those that wait. They are kept, and those that call LMs apart, of which there are no more than places: DSPy's cache
opens some thirty files for each thread that asks it, and they stay open beyond the thread's end."""


def _idle_worker(idle: list[_Worker]) -> _Worker:
    with contextlib.suppress(IndexError):
        while True:
            if (worker := idle.pop()).thread.is_alive():  # a forked child has none of them
                return worker
    return _Worker(idle)


def within(seconds: float | None, work: Callable[[], T], calls: bool = False) -> T:
    """The result of some work, which is waited for no longer than so many seconds.

    Args:
        seconds: How long to wait; None: for as long as it takes.
        work: Takes nothing; runs in a copy of this context. After its time it is left to end by itself.
        calls: Whether it is a call of an LM, which has its place.

    Raises:
        TimeoutError: The time is up.
    """
    if seconds is None or dspy.settings.send_stream is not None:
        return work()
    done: Future[T] = Future()
    context = contextvars.copy_context()

    try:
        _idle_worker(_calling if calls else _others).hand(lambda: settle(done, lambda: context.run(work)))
    except RuntimeError:  # the system gives no more threads
        return work()
    if not wait([done], timeout=seconds).done:
        raise TimeoutError(f"not done in {seconds:.3g} s")
    return done.result()


def gather(tasks: Sequence[Task[T]]) -> list[T]:
    """The results of all tasks, in their order.

    DSPy's trace grows in that order too, whichever task was first: a program compiled twice gets the same
    demonstrations.

    Raises:
        Exception: The first task's that failed, once all have ended.
    """
    results: list[T] = []
    errors: list[Exception] = []
    for task in tasks:
        try:
            results.append(task.get())
        except Exception as error:
            errors.append(error)
        extend_trace(task.steps)
    if errors:
        raise errors[0]
    return results


def extend_trace(steps: Sequence[Any]) -> None:
    """Add steps to DSPy's trace, within the size that DSPy keeps it to."""
    trace = dspy.settings.trace
    if trace is not None:
        trace.extend(steps)
        del trace[: max(0, len(trace) - dspy.settings.max_trace_size)]


def settle(future: "Future[T]", work: Callable[[], T]) -> None:
    """Gives a future what some work gives, or raises."""
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
