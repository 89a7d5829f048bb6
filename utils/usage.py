"""What DSPy's usage tracker knows of calls, and what it is told of those that did not go through DSPy."""

from collections.abc import Iterable, Mapping
from typing import Any

import dspy
from dspy.utils.usage_tracker import UsageTracker

TOKENS = ("prompt_tokens", "completion_tokens")
"""What a call's usage tells, by DSPy's names."""


def metered_calls(usage: UsageTracker) -> list[dict[str, Any]]:
    """The usage of each call so far; calls of any LM may be ending meanwhile."""
    by_lm: dict[str, list[dict[str, Any]]] = dict(usage.usage_data)  # in one step, which no other thread can disturb
    return [entry for entries in by_lm.values() for entry in entries]


def tokens_of(calls: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The tokens of some calls together, as far as these tell them."""
    known = list(calls)
    return {name: sum(call.get(name) or 0 for call in known) for name in TOKENS}


def telling(calls: Iterable[Mapping[str, Any]]) -> int:
    """How many of some calls tell both: of an endpoint that tells but the total, say, neither is known."""
    return sum(all(call.get(name) is not None for name in TOKENS) for call in calls)


def count_tokens(lm: dspy.BaseLM, prompt_tokens: int, completion_tokens: int, calls: int) -> None:
    """Adds calls that did not go through DSPy to its usage, an entry each; the first has all of their tokens."""
    for number in range(calls if dspy.settings.usage_tracker else 0):
        told = (0, 0) if number else (prompt_tokens, completion_tokens)
        dspy.settings.usage_tracker.add_usage(lm.model, dict(zip(TOKENS, told, strict=True)))
