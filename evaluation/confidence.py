"""How sure an answer is, by the probabilities along the way that it came.

A node is a `raisf.programs.trace.Node`, or the namespace that `of_record` makes of one in a record; so old records
have a confidence, too.
"""

import json
import math
from types import SimpleNamespace
from typing import Any

from raisf.retrieval.passage import cited_as

UNKNOWN = "unknown"
# What a node may say, and the records of other versions leave out.
_LATER = dict.fromkeys(
    ("answer", "route", "grounded", "cited", "citation", "likelihood", "sufficient", "computed_confidence")
)


def of_record(record: dict[str, Any]) -> float | None:
    """The confidence of a record's answer, told or by its trace; None where it has none, or its program no trace."""
    if "confidence" in record:
        return record["confidence"]
    root = (record.get("trace") or {}).get("root")
    if root is None:
        return None
    return confidence(json.loads(json.dumps(root), object_hook=lambda fields: SimpleNamespace(**_LATER | fields)))


def confidence(node: Any) -> float | None:
    """What the program worked out in a way of its own, else the weakest judgement on the way.

    That is the probability that the question is known, that the passage in which the answer stands is relevant (or that
    all suffice, where that was judged and is less), or the least confidence among the sub-answers. Of passages that are
    cited alike, such as parts of one page, it is the most relevant one's; for yes and no, and where the cited passage
    was not judged, of all. 0 where nothing supports it: its words stand in no passage that was read, or it was composed
    with no sub-answer found and no relevant passage. None where there is no answer, or where the LM gives no
    probabilities.
    """
    if node.answer == UNKNOWN:
        return None
    if (computed := node.computed_confidence) is not None:
        return computed
    if node.grounded is False:
        return 0.0
    if node.route != "decomposed":
        return _judged(node)
    if not (answered := _answered(node)):
        return _unanswered(node)
    below = [confidence(one) for one in answered if one.route != "duplicate" or one.computed_confidence is not None]
    if not below or any(one is None for one in below):
        return None
    return min(one for one in below if one is not None)


def path_confidence(node: Any) -> float | None:
    """The product of the probabilities along the way, and of the LM's own probability of each answer on it.

    In the closed world, with judges that are strict, it ranks right answers above wrong ones better than the weakest
    judgement does; where a loose judge lets wrong passages through, the LM is as sure of what it reads there.

    Returns:
        0 where nothing supports the answer, as in `confidence`; None where there is no answer, and where neither the
        judges nor the LM gave a probability.
    """
    if node.answer == UNKNOWN:
        return None
    if node.grounded is False:
        return 0.0
    if node.route == "decomposed" and not _answered(node):
        found = [_unanswered(node)]
    elif node.route == "decomposed":  # a sub-question that is listed twice was asked once
        once = {(one.question, one.route, one.answer): one for one in node.sub_questions}
        found = [path_confidence(one) for one in once.values()]
    else:
        found = [_judged(node)]
    told = [one for one in [*found, node.likelihood] if one is not None]
    return math.prod(told) if told else None


def log_odds(probability: float, edge: float) -> float:
    """Of a probability, with 0 and 1 taken for `edge` and 1 - `edge`."""
    inside = min(max(probability, edge), 1 - edge)
    return math.log(inside / (1 - inside))


def _answered(node: Any) -> list[Any]:
    return [one for one in node.sub_questions if one.answer != UNKNOWN]


def _unanswered(node: Any) -> float | None:
    """The confidence of an answer composed without any sub-answer: that of the relevant passages beside, else 0."""
    relevant = any(one.judgement and one.judgement.verdict == "relevant" for one in node.passages)
    return _of_passages(node) if relevant else 0.0


def _judged(node: Any) -> float | None:
    if node.route == "direct":
        return node.know.probability if node.know else None
    return _of_passages(node) if node.route == "passages" else None


def _of_passages(node: Any) -> float | None:
    judged = [one for one in node.passages if one.judgement and one.judgement.verdict == "relevant"]
    cited = [one for one in judged if node.grounded and node.cited == cited_as(one)]
    told = [one.judgement.probability for one in cited or judged if one.judgement.probability is not None]
    enough = node.sufficient.probability if node.sufficient else None
    return min((one for one in (max(told, default=None), enough) if one is not None), default=None)
