"""What DSPy's usage tracker knows of calls, and what it is told of those that did not go through DSPy."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from typing import Any

import dspy
from dspy.lm15 import UnsupportedFeatureError
from dspy.utils.callback import ACTIVE_CALL_ID, BaseCallback
from dspy.utils.exceptions import LMUnsupportedFeatureError
from dspy.utils.usage_tracker import UsageTracker

TOKENS = ("prompt_tokens", "completion_tokens")
"""What a call's usage tells, by DSPy's names."""


class Calls(BaseCallback):
    """Counts calls of LMs, whoever makes them, those too that tell no tokens.

    Attributes:
        lm_calls: How many there were. One that was refused here for what it asks, such as probabilities that its
            endpoint does not give, was never sent, and is none; one that was sent for these has told its usage.
        resumed: Whether something was taken up that was made earlier, whose calls are not among them.
        failure: What a call failed with, however often it was tried, where a program went on without it; the last one.
    """

    def __init__(self) -> None:
        self.lm_calls, self.resumed, self._lock = 0, False, Lock()
        self.failure: Exception | None = None

    def count(self, calls: int) -> None:
        """So many more."""
        with self._lock:
            self.lm_calls += calls

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """A call begins."""
        self.count(1)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """It ends."""
        cause = exception.__cause__ if isinstance(exception, LMUnsupportedFeatureError) else None
        if isinstance(cause, UnsupportedFeatureError) and getattr(cause, "usage", None) is None:
            self.count(-1)


class _Shared(UsageTracker):
    """A tracker that is not copied, and knows which calls told their usage."""

    def __init__(self) -> None:
        super().__init__()
        self.telling = set[str | None]()

    def add_usage(self, lm: str, usage_entry: dict[str, Any]) -> None:
        super().add_usage(lm, usage_entry)
        self.telling.add(ACTIVE_CALL_ID.get())

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Shared":
        return self


@contextmanager
def shared_usage() -> Iterator[UsageTracker]:
    """`dspy.track_usage`, with one tracker for the threads of `dspy.Parallel`, which else count each for itself."""
    with dspy.track_usage() as usage:
        shared = _Shared()
        shared.usage_data = usage.usage_data
        with dspy.context(usage_tracker=shared):
            yield shared


def was_cached(call_id: str) -> bool:
    """Whether a call that ends here told no usage, as where DSPy's cache answers; False outside of `shared_usage`."""
    tracker = dspy.settings.usage_tracker
    return isinstance(tracker, _Shared) and call_id not in tracker.telling


def metered_calls(usage: UsageTracker) -> list[dict[str, Any]]:
    """The usage of each call so far; calls of any LM may be ending meanwhile."""
    by_lm: dict[str, list[dict[str, Any]]] = dict(usage.usage_data)  # in one step, which no other thread can disturb
    return [entry for entries in by_lm.values() for entry in entries]


def tokens_of(calls: Collection[Mapping[str, Any]]) -> dict[str, int]:
    """The tokens of some calls together, as far as these tell them."""
    return {name: sum(call.get(name) or 0 for call in calls) for name in TOKENS}


def telling(calls: Iterable[Mapping[str, Any]]) -> int:
    """How many of some calls tell both: of an endpoint that tells but the total, say, neither is known."""
    return sum(all(call.get(name) is not None for name in TOKENS) for call in calls)


def heard_by(*callbacks: BaseCallback) -> AbstractContextManager[None]:
    """As a context: DSPy tells these what is called in it, besides those that it tells anyway."""
    return dspy.context(callbacks=[*(dspy.settings.callbacks or []), *callbacks])


def count_tokens(lm: dspy.BaseLM, prompt_tokens: int, completion_tokens: int, calls: int) -> None:
    """Adds calls that did not go through DSPy to its usage, an entry each, and to what counts calls.

    The first entry has all of their tokens.
    """
    for one in _counting():
        one.count(calls)
    for number in range(calls if dspy.settings.usage_tracker else 0):
        told = (0, 0) if number else (prompt_tokens, completion_tokens)
        dspy.settings.usage_tracker.add_usage(lm.model, dict(zip(TOKENS, told, strict=True)))


def tell_resumed() -> None:
    """Tells what counts calls that something is taken up which was made earlier."""
    for one in _counting():
        one.resumed = True


def tell_failed(error: Exception) -> None:
    """Tells what counts calls that a program goes on without one that failed."""
    for one in _counting()[-1:]:
        one.failure = error


def _counting() -> list[Calls]:
    return [one for one in dspy.settings.callbacks or [] if isinstance(one, Calls)]
