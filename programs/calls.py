"""The one place where LM calls and searches happen: budget, counting, adapter, unreadable output."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, cast, get_args

import dspy
from dspy.utils.exceptions import AdapterParseError
from dspy.utils.usage_tracker import UsageTracker

from raisf.lm.chat import Unscored
from raisf.lm.connect import formats_for
from raisf.lm.continuing import rest_of
from raisf.lm.failures import explain
from raisf.lm.likelihood import likelihood
from raisf.lm.transport import Stoppable, until
from raisf.programs.callbacks import observed_node, observed_search
from raisf.programs.citations import cite
from raisf.programs.concurrency import BudgetSpent, Stopped, Task, extend_trace, holding, semaphore, settle, within
from raisf.programs.confidence import Confidence
from raisf.programs.outputs import sensible
from raisf.programs.progress import Growth
from raisf.programs.questions import UNKNOWN
from raisf.programs.trace import Cost, Judgement, Node, Route, Step
from raisf.retrieval.passage import Passage, Retriever
from raisf.utils.errors import InputError, LMError
from raisf.utils.text import clean
from raisf.utils.usage import metered_calls, tell_failed, telling, tokens_of

T = TypeVar("T")


class Run:
    """One question's calls and searches: each is counted, within the budget, and made once.

    Calls with the same predictor and the same inputs are made once in a run, and so are searches with the same query;
    later ones share the first's outcome, also while it is under way. So the same sub-question in two branches costs
    nothing. Only calls are shared, never nodes: each node is what Algorithm 1 gives at its depth and below its
    ancestors, in whatever order the branches run.

    Args:
        retriever: What `search` asks; None for a program that does without.
        max_calls: LM calls that may be made; None for no limit. Never exceeded.
        max_seconds: Wall-clock that calls and searches may take, their waiting, retries and silent servers included;
            None for no limit. What is under way then is waited for no longer; an endpoint's call is cancelled.
    """

    def __init__(
        self, retriever: Retriever | None = None, max_calls: int | None = None, max_seconds: float | None = None
    ) -> None:
        self._retriever = retriever
        self.max_calls = max_calls
        self.max_seconds = max_seconds
        self.error: BaseException | None = None
        """What stopped the run."""
        self.failure: Exception | None = None
        """The first call that failed while others were answered."""
        self.failed = 0
        """Calls that failed while others were answered."""
        self.read = 0
        """Outputs of the LM that could be read; a second try in another format is the same output's."""
        self.unreadable = 0
        """Outputs that could not."""
        self.confidence = Confidence()
        self.progress = Growth()
        """The tree as it grows, for `Program.stream`."""
        self.usage = UsageTracker()
        """What counts the tokens."""
        self._under_way = Stoppable()
        self._answered = False
        self._calls = 0
        self._searches: dict[tuple[str, int], Task[list[Passage]]] = {}
        self._used: set[int] = set()
        self.begin()
        self._aside = {} if max_seconds is None else {"send_stream": None}  # no other thread can write to DSPy's stream
        self._lock = threading.Lock()
        self._asked: dict[tuple[int, str], Future[tuple[dspy.Prediction | None, list[Any]]]] = {}

    def begin(self) -> None:
        """Its seconds begin now, and not when it was made."""
        self._started = time.monotonic()
        self._deadline = None if self.max_seconds is None else self._started + self.max_seconds

    def node(self, question: str) -> AbstractContextManager[Node]:
        """A question's record, and the work on it (`work`)."""
        return self.work(Node(question=question))

    @contextmanager
    def work(self, node: Node) -> Iterator[Node]:
        """The work on a question. A budget spent in the block ends the node, not the program; an error stops the run.

        Args:
            node: Its record, which may stand among the sub-questions above it already.
        """
        started = time.perf_counter()
        self.progress.begin(node)
        try:
            with observed_node(node):
                yield node
            if node.depth == 0:
                self.confidence.conclude(node)
        except BudgetSpent as spent:
            node.end("budget", str(spent))
        except BaseException as error:
            self.stop(error)
            raise
        finally:
            node.seconds = time.perf_counter() - started
            self.progress.end(node)

    def stop(self, error: BaseException) -> None:
        """Let no further call start, and end those under way. The first error is the one that is raised."""
        with self._lock:
            if self.error is None and not isinstance(error, Stopped):
                self.error = error
        self._under_way.stop()

    def ask(self, predictor: dspy.Predict, **inputs: Any) -> dspy.Prediction | None:
        """One LM call, within the budget.

        Returns:
            The predictor's outputs, or None where the LM's output could not be read, or where the call failed in a way
            that passes (`failed` counts these) while others of this run were answered.

        Raises:
            BudgetSpent: No call is left, or no time.
            LMError: The LM could not answer.
        """
        prediction, steps = self._once(predictor, inputs)
        extend_trace(steps)
        return prediction

    def draft(self, predictor: dspy.Predict, **inputs: Any) -> dspy.Prediction | None:
        """The same call, which DSPy's trace does not hold: what is only looked at is no step to learn from.

        `ask` with the same inputs takes the draft up at no further call, and puts it into the trace.
        """
        return self._once(predictor, inputs)[0]

    def _once(self, predictor: dspy.Predict, inputs: dict[str, Any]) -> tuple[dspy.Prediction | None, list[Any]]:
        """The outcome of a call that is made once, and the steps for DSPy's trace."""
        key = (id(predictor), repr(inputs))
        with self._lock:
            first = key not in self._asked
            asked = self._asked.setdefault(key, Future())
        if first:
            settle(asked, lambda: self._call(predictor, inputs))
        outcome = asked.result()
        self.progress.tell()
        return outcome

    def judge(self, predictor: dspy.Predict, threshold: float = 0.5, /, **inputs: Any) -> Judgement:
        """Ask a judge whose `verdict` is one of two labels, the affirmative one first.

        Args:
            predictor: The judge.
            threshold: The verdict is affirmative from this probability on, where the LM gives probabilities; else it is
                what the LM says. At 0.5 both are the same.
            **inputs: The predictor's.
        """
        prediction = self.ask(predictor, **inputs)
        if prediction is None:
            return Judgement.unread()
        signature = cast(type[dspy.Signature], predictor.signature)
        affirmative, negative = get_args(signature.output_fields["verdict"].annotation)
        probability = (prediction.get("probabilities") or {}).get(affirmative)
        if probability is None:
            return Judgement(verdict=prediction.verdict)
        return Judgement(verdict=affirmative if probability >= threshold else negative, probability=probability)

    def settle(self, node: Node, route: Route, reason: str, predictor: dspy.Predict, **inputs: Any) -> Node:
        """Ask for the node's answer and end the node with it."""
        lm = predictor.lm or dspy.settings.lm
        asks = {} if "config" in inputs else self.confidence.asks(lm)  # else its judge has asked for it already
        prediction = self.ask(predictor, question=node.question, **asks, **inputs)
        if prediction is None:
            return node.unread(route, f"{reason}, but the LM's answer could not be read")
        if reasoning := clean(prediction.get("reasoning")):
            node.steps.append(Step(generation=reasoning))
        node.conclude(route, reason, prediction.answer)
        if asks and node.answer != UNKNOWN:
            node.likelihood = likelihood(prediction, node.answer)
        if "passages" in inputs:
            cite(node, prediction.get("evidence"), inputs["passages"])
        return node

    def search(self, query: str, k: int) -> Task[list[Passage]]:
        """Start a search. Take its passages with `found`, or `drop` it where they are not needed."""
        retriever = self._retriever
        if retriever is None:
            raise InputError("the program needs a retriever: give --index, or set program.retriever")
        self._check()
        with self._lock:
            if (query, k) not in self._searches:
                with dspy.context(**self._aside):
                    self._searches[query, k] = Task(lambda: observed_search(retriever, query, k))
            return self._searches[query, k]

    def found(self, search: Task[list[Passage]]) -> list[Passage]:
        """The passages of a search, best first."""
        try:
            with dspy.context(**self._aside):
                passages = within(self._seconds_left(), search.get)
        except TimeoutError:
            if self._seconds_left() != 0:
                raise  # a retriever's own
            raise self._spent() from None
        with self._lock:
            self._used.add(id(search))
        extend_trace(search.steps)  # a retriever may ask predictors
        return passages

    def cost(self) -> Cost:
        """What the run has cost, now that it is over."""
        cost = self.cost_so_far()
        cost.unmetered_calls = max(0, cost.lm_calls - telling(metered_calls(self.usage)))
        cost.discarded_retrievals = sum(not search.drop() for search in self._searches.values()) - len(self._used)
        return cost

    def cost_so_far(self) -> Cost:
        """What the run has cost, searches that may still be used or dropped left out."""
        metered = metered_calls(self.usage)
        return Cost(
            lm_calls=max(self._calls, len(metered)),  # a module of the user's own calls past the run
            **tokens_of(metered),
            retrievals=len(self._used),
            seconds=time.monotonic() - self._started,
        )

    def _call(self, predictor: dspy.Predict, inputs: dict[str, Any]) -> tuple[dspy.Prediction | None, list[Any]]:
        """The outputs, and the steps for DSPy's trace: whoever shares the outcome adds them to its own trace."""
        lm = predictor.lm or dspy.settings.lm
        formats = formats_for(lm)
        aside = {"send_stream": None} if "config" in inputs else {}  # streams carry no log-probabilities
        while formats:
            adapter, *formats = formats
            steps: list[Any] = []

            def call(adapter: dspy.Adapter = adapter, steps: list[Any] = steps) -> dspy.Prediction:
                with dspy.context(adapter=adapter, trace=steps, **aside):
                    return predictor(**inputs)

            try:
                prediction = self.in_time(call, calls=2 if isinstance(adapter, dspy.TwoStepAdapter) else 1)
            except AdapterParseError as error:
                self._answered = True
                if rest := rest_of(adapter, error):
                    formats = [rest, *formats]
                continue
            except Unscored as unscored:
                formats = [unscored.adapter, *formats]
                with self._lock:
                    self._calls -= not unscored.asked
                continue
            except (BudgetSpent, Stopped):
                raise
            except Exception as error:
                self._fail(error, lm)
                return None, []
            self._answered = True
            if sensible(predictor, prediction, inputs):
                self.count_read(True)
                return prediction, steps
        self.count_read(False)
        return None, []

    def count_read(self, readable: bool) -> None:
        """Count an output of the LM."""
        with self._lock:
            self.read += readable
            self.unreadable += not readable

    def misread(self) -> None:
        """Count the output that `ask` gave last as unreadable after all: its fields hold nothing of use."""
        with self._lock:
            self.read -= 1
            self.unreadable += 1

    def _fail(self, error: Exception, lm: dspy.BaseLM) -> None:
        """Go on without a call that failed, or stop the run.

        An endpoint that has answered this question before and fails once is no reason to lose the question; one that
        never answered, or refuses, will do so again. Whoever evaluates is told, and takes it for an error.
        """
        explained = explain(error, lm)
        if isinstance(explained, LMError) and explained.transient and self._answered:
            with self._lock:
                self.failed += 1
                self.failure = self.failure or explained
            tell_failed(explained)
            return
        self.stop(explained)
        if explained is error:
            raise error
        raise explained from error

    def in_time(self, call: Callable[[], T], calls: int = 1) -> T:
        """Make a call of the budget, and wait for it as long as there is time.

        Raises:
            BudgetSpent: There are not so many calls left, or the time is over.
        """
        place = self._place(calls)

        def placed() -> T:
            # Also an abandoned call keeps its place until it ends: so there are never more than places.
            with holding(place), until(self._deadline, self._under_way):
                return call()

        try:
            return within(self._seconds_left(), placed, calls=True)
        except Exception as error:
            if self._seconds_left() != 0 or isinstance(error, BudgetSpent | Stopped | AdapterParseError):
                raise
            raise self._spent() from error  # what ends with the time has ended because of it

    def _spent(self) -> BudgetSpent:
        return BudgetSpent(f"max_seconds={self.max_seconds:g} is spent")

    def _place(self, calls: int) -> threading.BoundedSemaphore:
        """Wait for a place among the process's calls, to be released, and take so many calls from the budget."""
        places, left = semaphore(), self._seconds_left()
        if not places.acquire(timeout=left):
            raise self._spent()
        try:
            with self._lock:
                self._check(calls)
                self._calls += calls
            self.progress.tell()
        except BaseException:
            places.release()
            raise
        return places

    def _check(self, calls: int = 1) -> None:
        """Raise if nothing may start any more."""
        if self.error is not None:
            raise Stopped
        if self.max_seconds is not None and self._seconds_left() == 0:
            raise self._spent()
        if self.max_calls is not None and self._calls + calls > self.max_calls:
            raise BudgetSpent(f"max_calls={self.max_calls} is spent")

    def _seconds_left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
