"""Drawing from rows, evenly over the verdicts: from those that have a weight for who weighs them, and who cannot."""

import random
from collections.abc import Sequence

import dspy

from raisf.optimize.judges.judge_data import VERDICTS
from raisf.utils.errors import InputError
from raisf.utils.sampling import up_to

_REMEDIES = {
    "sufficiency": ("give gold_pids or gold_titles of passages that are in the index", ", or raise k"),
    "know": ("give more questions, some that the LM knows and some not", ", or leave the judge out (--no-know)"),
    "relevance": (
        "give gold_pids or gold_titles of passages that are in the index, give more questions, or let a teacher label "
        "passages (--teacher)",
        ", or raise k",
    ),
}


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
    drawn: list[tuple[dspy.Example, float]] = []
    of = _evenly(sorted(rng.sample(list(rows), len(rows)), key=lambda row: -row.weight), "verdict", n)
    for picked in of:
        mass = len(of) * sum(row.weight for row in picked)
        drawn += [(row, row.weight / mass) for row in picked]
    rng.shuffle(drawn)
    return [row.copy(weight=share * len(drawn)) for row, share in drawn]


def even_weights(labels: Sequence[str], own: Sequence[float], name: str) -> list[float]:
    """The weights of rows in a loss: each label weighs the same, and its rows by their own weights; 1 in the mean.

    Raises:
        InputError: The rows of a label weigh nothing; `name` is the predictor's.
    """
    mass = dict.fromkeys(labels, 0.0)
    for label, weight in zip(labels, own, strict=True):
        mass[label] += weight
    for label, whole in mass.items():
        if not whole:
            raise InputError(f"{name}: the rows of {label!r} together weigh nothing: give some a weight above 0")
    return [len(labels) / len(mass) / mass[label] * weight for label, weight in zip(labels, own, strict=True)]


def accepted(rows: Sequence[dspy.Example], rng: random.Random) -> list[dspy.Example]:
    """Rejection sampling, for learners that cannot weigh rows: the chance is the weight over its verdict's greatest."""
    most: dict[str, float] = {}
    for row in rows:
        most[row.verdict] = max(most.get(row.verdict, 0.0), row.weight)
    return [row for row in rows if rng.random() < row.weight / most[row.verdict]]


def draw_evenly(rows: Sequence[dspy.Example], verdict: str, n: int, rng: random.Random) -> list[dspy.Example]:
    """Up to n rows, as evenly over the verdicts as they can be had; weights in the loss even out the rest."""
    drawn = [row for same in _evenly(rng.sample(list(rows), len(rows)), verdict, n) for row in same]
    rng.shuffle(drawn)
    return drawn


def _evenly(rows: Sequence[dspy.Example], verdict: str, n: int) -> list[list[dspy.Example]]:
    """The first rows of each verdict, n in all: what a rare one lacks is shared by the others."""
    of: dict[str, list[dspy.Example]] = {}
    for row in rows:
        of.setdefault(str(row.get(verdict, "")), []).append(row)
    picked: list[list[dspy.Example]] = []
    for taken, same in enumerate(sorted(of.values(), key=len)):
        picked.append(same[: n // (len(of) - taken)])
        n -= len(picked[-1])
    return picked


def balanced(rows: Sequence[dspy.Example], judge: str, n: int, rng: random.Random) -> list[dspy.Example]:
    """Draws up to n rows, half of each verdict, in mixed order.

    A judge shown more of one verdict leans to it (Zhao et al. 2021, "Calibrate Before Use": majority label bias). An
    odd n gives the last place to a verdict by chance; a verdict with too few rows shortens the other.

    Args:
        rows: With `verdict`.
        judge: A key of `VERDICTS`, for the message.
        n: How many, at least 2.
        rng: The source of every choice.

    Raises:
        InputError: Rows of one verdict only, or none.
    """
    of = {verdict: [row for row in rows if row.verdict == verdict] for verdict in VERDICTS[judge]}
    if not all(of.values()):
        counts = " and ".join(f"{len(found)} {verdict!r}" for verdict, found in of.items())
        remedy, besides = _REMEDIES[judge]
        raise InputError(f"the {judge} judge needs examples of both verdicts, found {counts}: {remedy}", besides)
    size = min(n // 2, *map(len, of.values()))
    drawn = {verdict: up_to(found, size + 1, rng) for verdict, found in of.items()}
    picked = [row for found in drawn.values() for row in found[:size]]
    spare = [row for found in drawn.values() for row in found[size:]]
    if spare and len(picked) == n - 1:
        picked.append(rng.choice(spare))
    rng.shuffle(picked)
    return picked
