"""The best of several candidates, taken only if it is better on questions that it was not chosen on."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raisf.evaluation.comparison import randomisation
from raisf.evaluation.judges import cuts
from raisf.optimize.judges.judgements import Judged

# Thresholds are chosen on four fifths of the questions and held to what holds now on the fifth that they have not seen.
FOLDS = 5
# ... and stay as they are unless chance alone would hardly ever have made them so much better.
ALPHA = 0.05


def fit_cut(rows: Sequence[Judged], now: float, *, balanced: bool) -> tuple[float, list[float]]:
    """The threshold of the most right verdicts, and for each row the one that was fitted without its question's fold.

    Args:
        rows: With probabilities.
        now: The threshold that holds.
        balanced: Count the mean of the shares right in both classes, not the share right.
    """
    gold, probability = np.array([row.gold for row in rows]), np.array([row.probability or 0.0 for row in rows])
    tried = np.array([now, *cuts(probability, 0, 1)])
    right = (probability[None] >= tried[:, None]) == gold  # (candidates, rows)
    weight = np.where(gold, 0.5 / gold.mean(), 0.5 / (1 - gold.mean())) if balanced else np.ones(len(gold))
    chosen, picks = choose(right * weight, [row.question for row in rows])
    return float(tried[chosen]), [float(tried[pick]) for pick in picks]


def choose(values: NDArray[Any], groups: Sequence[Hashable]) -> tuple[int, NDArray[np.int64]]:
    """The best candidate, if it keeps its promise beyond chance on items that it was not chosen on; else the first.

    Args:
        values: What each candidate gains with each item, (candidates, items); the first is what holds now.
        groups: What each item belongs to, such as its question; a fold and the test take whole groups, (items,).

    Returns:
        The candidate, and for each item the one that was chosen without the item's fold.
    """
    numbers: dict[Hashable, int] = {}
    places = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    folds = np.random.default_rng(0).permutation(len(numbers))[places] % FOLDS
    picks = np.zeros(values.shape[1], np.int64)
    for fold in range(FOLDS):
        held = folds == fold
        if not held.all():
            picks[held] = _best(values[:, ~held])
    gains = np.bincount(places, values[picks, np.arange(len(picks))] - values[0])  # of each group
    if gains.mean() <= 0 or randomisation(gains.tolist(), [0.0] * len(gains)) > ALPHA:
        return 0, np.zeros_like(picks)
    return _best(values), picks


def _best(values: NDArray[Any]) -> int:
    means = values.mean(1)
    top = np.flatnonzero(means >= means.max() - 1e-12)
    return 0 if top[0] == 0 else int(top[len(top) // 2])  # in the middle of a plateau there is room on both sides
