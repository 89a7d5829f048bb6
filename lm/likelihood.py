"""How likely an LM finds the answer that it wrote: from the log-probabilities of the tokens that came with it."""

import math
from typing import Any

import dspy

# Space as tokenizers write it, where a server shows tokens raw.
_SPACES = str.maketrans("", "", " \t\r\n\u0120\u010a\u2581")

_ROUNDED = 1e-3
"""How much more than 0 a server's rounding may make of a certain token's log-probability."""

ASKED: dict[str, Any] = {"logprobs": True}
"""What a call's `config` says to have the log-probabilities of what is written, as OpenAI's interface does."""


def gives_logprobs(lm: dspy.BaseLM) -> bool:
    """Whether an LM takes the wish for log-probabilities, as far as can be told without asking it."""
    return "logprobs" in (getattr(lm, "supported_params", None) or ())


def likelihood(prediction: dspy.Prediction, answer: str) -> float | None:
    """The probability that the LM writes an answer and ends it there: the product of its tokens' probabilities.

    Their geometric mean ranks what an LM knows worse: the later pieces of a long name are sure, and hide a guess.
    Which tokens are the answer's is told by their texts, so the format around it (markers, quotes) does not count;
    where the texts do not hold the answer as it was read, all tokens that were written count.

    Args:
        prediction: Of a call whose `config` was `ASKED`.
        answer: One of its fields. Where it is written more than once the last place counts.

    Returns:
        In [0, 1]; None where the LM gave no log-probabilities.
    """
    tokens = _tokens(prediction)
    if not tokens:
        return None
    texts = [str(one["token"]).translate(_SPACES) for one in tokens]
    wanted = answer.translate(_SPACES)
    start = "".join(texts).rfind(wanted) if wanted else -1
    if start >= 0:
        ends = [0]
        for text in texts:
            ends.append(ends[-1] + len(text))
        first = next(place for place in range(len(texts)) if ends[place + 1] > start)
        last = next(place for place in range(len(texts)) if ends[place + 1] >= start + len(wanted))
        tokens = tokens[first : last + 2]
    return math.exp(sum(map(_logprob, tokens)))


def written(prediction: dspy.Prediction) -> list[float]:
    """The log-probability of each token of a call whose `config` was `ASKED`; none where the LM gave none."""
    return [_logprob(token) for token in _tokens(prediction)]


def _tokens(prediction: dspy.Prediction) -> list[dict[str, Any]]:
    """Its tokens; none where one has what is no log-probability, as a server may send anything."""
    tokens = (prediction.get("logprobs") or {}).get("content") or []
    given = [one["logprob"] for one in tokens]
    possible = (isinstance(one, int | float) and not isinstance(one, bool) and one <= _ROUNDED for one in given)
    return tokens if all(possible) else []


def _logprob(token: dict[str, Any]) -> float:
    return min(0.0, float(token["logprob"]))
