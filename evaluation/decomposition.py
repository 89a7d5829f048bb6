"""How close a list of sub-questions is to the gold one."""

import re
from collections.abc import Sequence

from raisf.evaluation.metrics import normalise, token_f1
from raisf.utils.wording import REFERENCE

_POSSESSIVE = re.compile(r"['’]s\b")  # noqa: RUF001 - that is how many LMs write it
# Words by which two wordings of one question differ. What tells questions apart stays: when, where, by, from, to.
_EMPTY = frozenset("is are was were be been do does did has have had of in on at please that".split())
_SAME = {"whom": "who", "which": "what", "whose": "who"}


def same_decomposition(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """1.0 if both lists ask the same questions, up to wording and to the order where that is free.

    Wording: case, punctuation, articles, auxiliaries, the order of a question's words, "X's mayor" for "the mayor of
    X". Order: "#1" stands for the question that it names, so that two independent sub-questions may change places. A
    synonym makes two questions different: the measure is a lower bound.
    """
    return float(sorted(_keys(predicted)) == sorted(_keys(gold)))


def aligned_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """The mean token F1 of sub-questions set side by side, in [0, 1]; one without a partner counts 0.

    Pairs are made one after the other, the most similar first, each sub-question in one pair.
    """
    if not predicted and not gold:
        return 1.0
    pairs = sorted(
        (-token_f1(ours, [theirs]), i, j) for i, ours in enumerate(predicted) for j, theirs in enumerate(gold)
    )
    total, ours_left, theirs_left = 0.0, set(range(len(predicted))), set(range(len(gold)))
    for negated, i, j in pairs:
        if i in ours_left and j in theirs_left:
            ours_left.remove(i)
            theirs_left.remove(j)
            total -= negated
    return total / max(len(predicted), len(gold))


def _keys(questions: Sequence[str]) -> list[str]:
    """A text for each question that is the same for every wording; references hold what they refer to."""
    made: list[str] = []
    for question in questions:
        named = [int(number) for number in REFERENCE.findall(question)]
        # A number that names no earlier question is text, as it is where the program fills references in.
        inside = [f"({made[number - 1]})" for number in named if 0 < number <= len(made)]
        outside = [f"#{number}" for number in named if not 0 < number <= len(made)]
        words = normalise(_POSSESSIVE.sub("", REFERENCE.sub(" ", question))).split()
        content = [_SAME.get(word, word) for word in words if word not in _EMPTY]
        made.append(" ".join(sorted([*content, *inside, *outside])))
    return made
