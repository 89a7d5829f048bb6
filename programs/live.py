"""A question that is being answered in a thread of its own, and its events as they come."""

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import dspy

from raisf.evaluation.examples import answer_of
from raisf.lm.transport import until
from raisf.programs.calls import Run
from raisf.programs.concurrency import within
from raisf.programs.events import CostEvent, DoneEvent, Event
from raisf.programs.trace import Cost, Trace
from raisf.utils.errors import RaisfError
from raisf.utils.text import answer_text
from raisf.utils.usage import Calls, heard_by, shared_usage

LOOK = 0.1
"""Seconds after which a stream looks for changes that nobody has announced, such as a verdict just written down."""


class Cancelled(RaisfError):
    """Whoever asked has gone away, or has stopped the question."""


class Live:
    """A question under way.

    Args:
        run: Its calls; what changes in its tree is told.
        answer: Answers the question; runs in a thread, in a copy of the context that this is made in.
    """

    def __init__(self, run: Run, answer: Callable[[], dspy.Prediction]) -> None:
        self.run = run
        self.ended = False
        self._began = False
        self._lock = threading.Lock()
        self._at_end: list[Callable[[], None]] = []
        self._answer = answer
        self._context = contextvars.copy_context()
        self._prediction: dspy.Prediction | None = None
        self._error: BaseException | None = None
        self._cost = Cost()

    def start(self, changed: Callable[[], None]) -> None:
        """Begin; `changed` is called from any thread when there may be new events."""
        self.run.progress.changed = changed
        threading.Thread(target=self._context.run, args=(self._work,), daemon=True, name="raisf-question").start()
        self._began = True  # not before: the system may give no more threads

    def stop(self) -> None:
        """Let no further call start, and end those to an endpoint that are under way."""
        if not self.ended:
            self.run.stop(Cancelled("the question was stopped"))

    def when_ended(self, then: Callable[[], None]) -> None:
        """Call something once its last call is over; at once where that has been, or where it never began."""
        with self._lock:
            waits = self._began and not self.ended
            if waits:
                self._at_end.append(then)
        if not waits:
            then()

    def events(self) -> Iterator[Event]:
        """What is new since the last call; the last of all is the `DoneEvent`.

        Raises:
            RaisfError: The question could not be answered.
        """
        ended = self.ended  # before the last look, which then sees everything
        yield from self.run.progress.changes()
        cost = self.run.cost() if ended else self.run.cost_so_far()
        if cost.model_copy(update={"seconds": self._cost.seconds}) != self._cost or ended:
            self._cost = cost
            yield CostEvent(cost=cost)
        if not ended:
            return
        if self._error is not None:
            raise self._error
        trace = None if self._prediction is None else self._prediction.get("trace")
        answer = "" if self._prediction is None else answer_text(self._prediction.get("answer"))
        trace = trace if isinstance(trace, Trace) else None
        yield DoneEvent(answer=answer, trace=trace, confidence=trace.root.confidence if trace else None)

    def _work(self) -> None:
        try:
            # DSPy's trace is for compiling; in a service it would keep ten thousand calls.
            with dspy.context(trace=None):
                self._prediction = self._answer()
        except BaseException as error:
            self._error = error
        with self._lock:
            self.ended = True
        for then in self._at_end:
            then()
        self.run.progress.tell()


class _OwnRun(Run):
    """A run of a module that makes its calls itself: they are counted as DSPy tells of them, and end with the run."""

    def __init__(self, max_seconds: float | None) -> None:
        super().__init__(None, None, max_seconds)
        self._own = Calls()

    def prediction_of(self, module: dspy.Module, question: str) -> dspy.Prediction:
        """What the module says. It is waited for no longer than there is time, nor are its calls.

        Raises:
            BudgetSpent: The time is over.
        """
        with until(self._deadline, self._under_way), heard_by(self._own):
            try:
                return within(self._seconds_left(), lambda: module(question=question))
            except Exception as error:
                if self._seconds_left() != 0:
                    raise
                raise self._spent() from error

    def cost_so_far(self) -> Cost:
        """What the run has cost, the module's calls included."""
        cost = super().cost_so_far()
        cost.lm_calls = max(cost.lm_calls, self._calls + self._own.lm_calls)
        return cost


def live_module(
    module: dspy.Module,
    question: str,
    max_seconds: float | None = None,
    reword: Callable[[str, Run], str] | None = None,
) -> Live:
    """A module that keeps no trace, such as a user's own: a tree of one node, and its answer in the end.

    Args:
        module: The module.
        question: The question.
        max_seconds: Seconds it may take, after which the answer is "unknown". Its calls to endpoints and to LMs in the
            process end then; what else it does is left to end by itself.
        reword: As `Program.live` takes it.
    """
    run = _OwnRun(max_seconds)

    def answer() -> dspy.Prediction:
        with shared_usage() as run.usage:
            asked = reword(question, run) if reword else question
            with run.node(asked) as node:
                prediction = run.prediction_of(module, asked)
                node.conclude("direct", "by a module of your own", answer_of(prediction, module))
                return prediction
            return dspy.Prediction(answer=node.answer)  # the time was over

    return Live(run, answer)


def stream(live: Live) -> Iterator[Event]:
    """The events of a question as they come. Closing the iterator, or leaving it, stops the question."""
    changed = threading.Event()
    live.start(changed.set)
    try:
        while True:
            changed.wait(LOOK)
            changed.clear()
            for event in live.events():
                yield event
                if isinstance(event, DoneEvent):
                    return
    finally:
        live.stop()


async def astream(live: Live) -> AsyncIterator[Event]:
    """The same for coroutines; cancelling whoever reads it stops the question."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def announce() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(changed.set)

    live.start(announce)
    try:
        while True:
            try:
                async with asyncio.timeout(LOOK):
                    await changed.wait()
            except TimeoutError:
                pass
            changed.clear()
            for event in live.events():
                yield event
                if isinstance(event, DoneEvent):
                    return
    finally:
        live.stop()
