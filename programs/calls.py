"""The one place where LM calls and searches happen: budget, counting, adapter, unreadable output."""

import copy
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, cast, get_args

import dspy
from dspy.utils.exceptions import AdapterParseError
from dspy.utils.usage_tracker import UsageTracker

from raisf.lm.connect import adapter_for, explain
from raisf.programs.concurrency import Task, extend_trace, semaphore
from raisf.programs.questions import clean
from raisf.programs.trace import Cost, Judgement, Node, Route, Step
from raisf.retrieval.passage import Passage, Retriever
from raisf.utils.errors import InputError


class BudgetSpent(Exception):
    """The question may not make another call: the node that wanted it ends as "unknown"."""


class Stopped(Exception):
    """The run failed elsewhere or was cancelled: the work that is left ends here."""


class Run:
    """One question's calls and searches: each is counted, within the budget, and made once.

    Calls with the same predictor and the same inputs are made once in a run, and so are searches with the same query;
    later ones share the first's outcome, also while it is under way. So the same sub-question in two branches costs
    nothing. Only calls are shared, never nodes: each node is what Algorithm 1 gives at its depth and below its
    ancestors, in whatever order the branches run.

    Args:
        retriever: What `search` asks; None for a program that does without.
        max_calls: LM calls that may be made; None for no limit. Never exceeded.
        max_seconds: Wall-clock after which no call starts; None for no limit. A call under way may end.
    """

    def __init__(self, retriever: Retriever | None, max_calls: int | None, max_seconds: float | None) -> None:
        self._retriever = retriever
        self.max_calls = max_calls
        self.max_seconds = max_seconds
        self.error: BaseException | None = None
        """What stopped the run."""
        self.unreadable = 0
        self._calls = 0
        self._searches: dict[tuple[str, int], Task[list[Passage]]] = {}
        self._used: set[int] = set()
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self._asked: dict[tuple[int, str], Future[tuple[dspy.Prediction | None, list[Any]]]] = {}

    @contextmanager
    def node(self, question: str, depth: int = 0) -> Iterator[Node]:
        """A question's record. A budget spent in the block ends the node, not the program; an error stops the run."""
        node = Node(question=question, depth=depth)
        started = time.perf_counter()
        try:
            yield node
        except BudgetSpent as spent:
            node.end("budget", str(spent))
        except BaseException as error:
            self.stop(error)
            raise
        finally:
            node.seconds = time.perf_counter() - started

    def stop(self, error: BaseException) -> None:
        """Let no further call start. The first error is the one that the program raises."""
        with self._lock:
            if self.error is None and not isinstance(error, Stopped):
                self.error = error

    def ask(self, predictor: dspy.Predict, **inputs: Any) -> dspy.Prediction | None:
        """One LM call, within the budget.

        Returns:
            The predictor's outputs, or None where the LM's output could not be read.

        Raises:
            BudgetSpent: No call is left, or no time.
            LMError: The LM could not answer.
        """
        key = (id(predictor), repr(inputs))
        with self._lock:
            first = key not in self._asked
            asked = self._asked.setdefault(key, Future())
        if first:
            try:
                asked.set_result(self._call(predictor, inputs))
            except BaseException as error:
                asked.set_exception(error)
        prediction, steps = asked.result()
        extend_trace(steps)
        return prediction

    @contextmanager
    def direct_calls(self, calls: int) -> Iterator[None]:
        """The place and the budget of calls that go to an LM without a predictor; their tokens: `count_tokens`.

        Raises:
            BudgetSpent: There are not as many calls left, or no time.
        """
        with self._place(calls):
            yield

    def unread(self) -> None:
        """Count an output of such a call that could not be read."""
        with self._lock:
            self.unreadable += 1

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
            return Judgement(verdict=None, readable=False)
        signature = cast(type[dspy.Signature], predictor.signature)
        affirmative, negative = get_args(signature.output_fields["verdict"].annotation)
        probability = (prediction.get("probabilities") or {}).get(affirmative)
        if probability is None:
            return Judgement(verdict=prediction.verdict)
        return Judgement(verdict=affirmative if probability >= threshold else negative, probability=probability)

    def settle(self, node: Node, route: Route, reason: str, predictor: dspy.Predict, **inputs: Any) -> Node:
        """Ask for the node's answer and end the node with it."""
        prediction = self.ask(predictor, question=node.question, **inputs)
        if prediction is None:
            return node.end(route, f"{reason}, but the LM's answer could not be read")
        node.evidence = clean(prediction.get("evidence")) or None
        if reasoning := clean(prediction.get("reasoning")):
            node.steps.append(Step(generation=reasoning))
        return node.conclude(route, reason, prediction.answer)

    def search(self, query: str, k: int) -> Task[list[Passage]]:
        """Start a search. Take its passages with `found`, or `drop` it where they are not needed."""
        retriever = self._retriever
        if retriever is None:
            raise InputError("the program needs a retriever: give --index, or set program.retriever")
        self._check()
        with self._lock:
            if (query, k) not in self._searches:
                self._searches[query, k] = Task(lambda: retriever(query, k))
            return self._searches[query, k]

    def found(self, search: Task[list[Passage]]) -> list[Passage]:
        """The passages of a search, best first."""
        with self._lock:
            self._used.add(id(search))
        return search.get()

    def cost(self, usage: UsageTracker) -> Cost:
        """What the run has cost, now that it is over."""
        totals = usage.get_total_tokens().values()
        searches = sum(not search.drop() for search in self._searches.values())
        return Cost(
            lm_calls=self._calls,
            prompt_tokens=sum(total.get("prompt_tokens") or 0 for total in totals),
            completion_tokens=sum(total.get("completion_tokens") or 0 for total in totals),
            retrievals=searches,
            discarded_retrievals=searches - len(self._used),
            seconds=time.perf_counter() - self._started,
        )

    def _call(self, predictor: dspy.Predict, inputs: dict[str, Any]) -> tuple[dspy.Prediction | None, list[Any]]:
        """The outputs, and the steps for DSPy's trace: whoever shares the outcome adds them to its own trace."""
        lm = predictor.lm or dspy.settings.lm
        for adapter in _formats(lm):
            steps: list[Any] = []
            try:
                with self._place(), dspy.context(adapter=adapter, trace=steps):
                    return predictor(**inputs), steps
            except AdapterParseError:
                continue
            except (BudgetSpent, Stopped):
                raise
            except Exception as error:
                explained = explain(error, lm)
                self.stop(explained)
                if explained is error:
                    raise
                raise explained from error
        self.unread()
        return None, []

    @contextmanager
    def _place(self, calls: int = 1) -> Iterator[None]:
        """Wait for a place among the process's calls, then take so many calls from the budget."""
        places, left = semaphore(), self._seconds_left()
        if not places.acquire(timeout=left):
            raise BudgetSpent(f"max_seconds={self.max_seconds:g} is spent")
        try:
            with self._lock:
                self._check(calls)
                self._calls += calls
            yield
        finally:
            places.release()

    def _check(self, calls: int = 1) -> None:
        """Raise if nothing may start any more."""
        if self.error is not None:
            raise Stopped
        if self.max_seconds is not None and self._seconds_left() == 0:
            raise BudgetSpent(f"max_seconds={self.max_seconds:g} is spent")
        if self.max_calls is not None and self._calls + calls > self.max_calls:
            raise BudgetSpent(f"max_calls={self.max_calls} is spent")

    def _seconds_left(self) -> float | None:
        if self.max_seconds is None:
            return None
        return max(0.0, self.max_seconds - (time.perf_counter() - self._started))


def count_tokens(lm: dspy.BaseLM, prompt_tokens: int, completion_tokens: int) -> None:
    """Adds a call that did not go through DSPy to its usage."""
    if dspy.settings.usage_tracker:
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        dspy.settings.usage_tracker.add_usage(lm.model, usage)


def require_lm(program: dspy.Module) -> None:
    """Raise InputError unless every predictor of the program has an LM, its own or DSPy's."""
    for name, predictor in program.named_predictors():
        lm = predictor.lm or dspy.settings.lm
        if not isinstance(lm, dspy.BaseLM):
            found = "there is none" if lm is None else f"found {lm!r}"
            raise InputError(
                f"the predictor {name!r} needs a language model, {found}: give one with --lm, "
                "or dspy.configure(lm=raisf.connect(...))"
            )


def _formats(lm: dspy.BaseLM) -> list[dspy.Adapter]:
    """The adapters to try until one can read the output.

    DSPy's chat format falls back to JSON by a second LM call inside the first; here that is a call of its own, so
    that it is counted and the budget holds.
    """
    adapter = adapter_for(lm)
    if isinstance(adapter, dspy.JSONAdapter) or not getattr(adapter, "use_json_adapter_fallback", False):
        return [adapter]
    chat = copy.copy(adapter)
    chat.use_json_adapter_fallback = False  # type: ignore[attr-defined]
    return [chat, dspy.JSONAdapter()]
