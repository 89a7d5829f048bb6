"""How likely an LM finds the answer that it wrote: from the log-probabilities of the tokens that came with it."""

import codecs
import itertools
import math
from bisect import bisect_left, bisect_right
from typing import Any

import dspy

from raisf.lm.reading import END
from raisf.lm.verdicts import SPACES

_WITHOUT_SPACES = str.maketrans("", "", SPACES)

_COMPLETED = "[[##completed##]]"
"""The end marker of DSPy's chat format, without spaces: its letters are no answer's."""

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
    found = _span(tokens, answer)
    counted = tokens if found is None else tokens[found.start : found.stop + 1]
    return math.exp(sum(map(_logprob, counted)))


def written(prediction: dspy.Prediction, answer: str) -> list[float]:
    """The log-probability of each token of an answer, as `likelihood` finds them, without its end.

    Returns:
        Those of all tokens where the texts do not hold the answer; none where the LM gave none.
    """
    tokens = _tokens(prediction)
    return [_logprob(token) for token in tokens[_span(tokens, answer) or slice(None)]]


def _span(tokens: list[dict[str, Any]], answer: str) -> slice | None:
    """Which tokens an answer was written in, the last time that it was written."""
    texts = _texts(tokens)
    for place in range(len(texts) - 1, -1, -1):  # the letters of a model's end mark are no answer's
        if texts[place].strip() and not END.fullmatch(texts[place].strip()):
            break
        texts[place] = ""
    ends = list(itertools.accumulate(len(text.translate(_WITHOUT_SPACES)) for text in texts))
    whole, wanted = "".join(texts).translate(_WITHOUT_SPACES), answer.translate(_WITHOUT_SPACES)
    start = (whole.rpartition(_COMPLETED)[0] or whole).rfind(wanted) if wanted else -1
    if start < 0:
        return None
    first, last = bisect_right(ends, start), bisect_left(ends, start + len(wanted))
    while first and not texts[first - 1]:
        first -= 1  # the first bytes of the answer's first character
    return slice(first, last + 1)


def _texts(tokens: list[dict[str, Any]]) -> list[str]:
    """What the text grew by with each token: a character of several tokens comes with its last one."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    given = ((one.get("bytes"), str(one["token"])) for one in tokens)
    return [decode(bytes(own)) if own else decode(b"", True) + token for own, token in given]


def _tokens(prediction: dspy.Prediction) -> list[dict[str, Any]]:
    """Its tokens; none where one has what is no log-probability, as a server may send anything."""
    tokens = (prediction.get("logprobs") or {}).get("content") or []
    given = [one["logprob"] for one in tokens]
    possible = (isinstance(one, int | float) and not isinstance(one, bool) and one <= _ROUNDED for one in given)
    return tokens if all(possible) else []


def _logprob(token: dict[str, Any]) -> float:
    return min(0.0, float(token["logprob"]))
