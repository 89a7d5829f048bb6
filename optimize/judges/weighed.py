"""Drawing from rows, evenly over the verdicts: from those that have a weight for who weighs them, and who cannot."""

import random
from collections.abc import Sequence

import dspy


def heaviest(rows: Sequence[dspy.Example], n: int, rng: random.Random) -> list[dspy.Example]:
    """Up to n rows, as evenly over the verdicts as can be had, those of the greatest weight.

    Each verdict gets the same share of the whole weight, and the mean becomes 1. With the weights as they are the judge
    would lean to the verdict whose advantages sum to more, and one that always says irrelevant never answers: an
    advantage assumes that later verdicts are right, and then they no longer are.

    Args:
        rows: With `verdict` and `weight`.
        n: At least 2.
        rng: Chooses among rows of equal weight.
    """
    of: dict[str, list[dspy.Example]] = {}
    for row in sorted(rng.sample(list(rows), len(rows)), key=lambda row: -row.weight):
        of.setdefault(row.verdict, []).append(row)
    drawn: list[tuple[dspy.Example, float]] = []
    for taken, same in enumerate(sorted(of.values(), key=len)):
        picked = same[: (n - len(drawn)) // (len(of) - taken)]
        mass = len(of) * sum(row.weight for row in picked)
        drawn += [(row, row.weight / mass) for row in picked]
    rng.shuffle(drawn)
    return [row.copy(weight=share * len(drawn)) for row, share in drawn]


def accepted(rows: Sequence[dspy.Example], rng: random.Random) -> list[dspy.Example]:
    """Rejection sampling, for learners that cannot weigh rows: the chance is the weight over its verdict's greatest."""
    most: dict[str, float] = {}
    for row in rows:
        most[row.verdict] = max(most.get(row.verdict, 0.0), row.weight)
    return [row for row in rows if rng.random() < row.weight / most[row.verdict]]


def draw_evenly(rows: Sequence[dspy.Example], verdict: str, n: int, rng: random.Random) -> list[dspy.Example]:
    """Up to n rows, as evenly over the verdicts as they can be had; weights in the loss even out the rest."""
    of: dict[str, list[dspy.Example]] = {}
    for row in rng.sample(list(rows), len(rows)):
        of.setdefault(str(row.get(verdict, "")), []).append(row)
    drawn: list[dspy.Example] = []
    for taken, same in enumerate(sorted(of.values(), key=len)):
        drawn += same[: (n - len(drawn)) // (len(of) - taken)]
    rng.shuffle(drawn)
    return drawn
