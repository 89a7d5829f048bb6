"""The options of a call that have a place in DSPy's typed requests; what has none would be lost, and is refused."""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dspy.lm15 import Request

from raisf.utils.errors import InputError

# An LM's options that go into its requests; what a local engine does not know of them, it refuses.
SAMPLING = ("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty")
# Those that are for the call itself, or have a place of their own in a request.
KNOWN = (*SAMPLING, *("max_tokens", "max_completion_tokens", "seed", "stop", "n", "logprobs", "top_logprobs"))
CONTROLS = ("cache", "rollout_id")


def check_known(model: str, options: Mapping[str, Any]) -> None:
    """Raise InputError for an option that has no place in a request."""
    if lost := [name for name, value in options.items() if value is not None and name not in (*KNOWN, *CONTROLS)]:
        raise InputError(
            f"a call of {model} has the option {lost[0]}, which has no place in its adapter's format: leave it out "
            f"(known are {', '.join(KNOWN)})"
        )


def seeds_of(options: Mapping[str, Any]) -> list[int | None]:
    """Each candidate's seed. They differ by it: of one request the cache would give the first one's reply to all.

    Who gives none gets the same candidates again, or others with another `rollout_id`.

    Raises:
        InputError: `n`, how many candidates are asked for, is less than one.
    """
    count, seed = options.get("n") or 1, options.get("seed")
    if count < 1:
        raise InputError(f"n is {count}: give 1 or more")
    if count == 1:
        return [seed]
    if seed is None:
        rollout = options.get("rollout_id")
        seed = 0 if rollout is None else seed_from(str(rollout))
    return [seed + candidate for candidate in range(count)]


def apart(options: Mapping[str, Any], prompt: Any, call: dict[str, Any]) -> list[dict[str, Any]]:
    """The options of each candidate of a call, where a seed tells these apart: DSPy sends one request `n` times.

    Args:
        options: The LM's.
        prompt: What it is asked; a typed request is one candidate's.
        call: The call's own options.

    Returns:
        Of a call without a seed, or for one candidate, nothing.
    """
    whole = {**options, **call}
    counts = type(whole.get("n")) is type(whole.get("seed")) is int  # what is no number DSPy refuses
    if isinstance(prompt, Request) or "request" in call or not counts or whole["n"] < 2:
        return []
    return [{**call, "n": 1, "seed": seed} for seed in seeds_of(whole)]


def together(replies: list[list[Any]]) -> list[Any]:
    """What one call gives that was made `apart`: texts, or mappings where one has more than a text."""
    outputs = [output for reply in replies for output in reply]
    if all(isinstance(output, str) for output in outputs):
        return outputs
    return [{"text": output} if isinstance(output, str) else output for output in outputs]


def with_seed(request: Request, candidate: int) -> Request:
    """A typed request for one of several candidates, counted from 0: where it has a seed, with one of its own."""
    seed = request.config.seed
    return request if seed is None else replace(request, config=replace(request.config, seed=seed + candidate))


def seed_from(text: str) -> int:
    """The seed that stands for a text: some servers take none beyond 32 bits with a sign."""
    return zlib.crc32(text.encode()) % 2**30


def limit_of(*options: Mapping[str, Any]) -> Any:
    """The most tokens of an answer, by either of its names; of several options' the first."""
    given = [one.get(name) for one in options for name in ("max_completion_tokens", "max_tokens")]
    return next((limit for limit in given if limit is not None), None)
