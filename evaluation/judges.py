"""How good a judge is by itself: right verdicts, ranking, calibration, each with an interval over questions."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raisf.evaluation.confidence import log_odds
from raisf.evaluation.intervals import Score, bootstrap_groups, proportion, sums_by_place
from raisf.evaluation.risk import RiskCoverage

Array = NDArray[np.float64]

BINS = 10
LEAST = 10
"""Judgements that a bin of a reliability curve holds at least: the share of fewer says little."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Judgements of neighbouring probabilities.

    Attributes:
        low: The lowest probability among them.
        high: The highest.
        n: How many judgements.
        probability: Their mean probability.
        share: The share of them that is positive by gold; the same as `probability` for a calibrated judge.
    """

    low: float
    high: float
    n: int
    probability: float
    share: float


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """What was measured of one judge. The positive class is the judge's first label: know, or relevant.

    Attributes:
        scores: By measure: accuracy (n: all judgements), precision (n: positive verdicts), recall (n: positive by
            gold), f1; and where the judge gives a score or a probability, auroc and ece (n: judgements that have one);
            of self-knowledge also aurc (`raisf.evaluation.risk`). One that cannot be had is not there, or has n = 0.
        bins: The reliability of its probabilities, for a plot; empty where there are none.
        risk: Of self-knowledge with probabilities, what answering from memory would get right, the surest first.
    """

    scores: dict[str, Score] = field(default_factory=dict)
    bins: list[Bin] = field(default_factory=list)
    risk: RiskCoverage | None = None

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-able values."""
        scores = {name: score.as_dict() for name, score in self.scores.items()}
        risk = {} if self.risk is None else {"risk": self.risk.as_dict()}
        return {"scores": scores, "bins": [asdict(one) for one in self.bins], **risk}


def verdict_scores(gold: Sequence[bool], verdicts: Sequence[bool], groups: Sequence[Hashable]) -> dict[str, Score]:
    """Accuracy, precision, recall and F1 of verdicts.

    Args:
        gold: Whether each row is positive by gold, (n,).
        verdicts: Whether the judge said so, (n,).
        groups: What each row is resampled with, such as its question, (n,).

    Returns:
        The first three with Wilson's interval where no two rows are of one question, else with the bootstrap's over
        questions.

    Source: Manning, Raghavan and Schuetze 2008, section 8.3.
    """
    positive, said = np.asarray(gold, bool), np.asarray(verdicts, bool)
    right, hits = (positive == said).astype(float), (positive & said).astype(float)
    everything, both = np.ones(len(positive)), positive.astype(float) + said
    parts = {
        "accuracy": (right, everything, len(positive)),
        "precision": (hits, said.astype(float), int(said.sum())),
        "recall": (hits, positive.astype(float), int(positive.sum())),
        "f1": (2 * hits, both, len(positive)),
    }
    return {name: _share(name, above, below, groups, n) for name, (above, below, n) in parts.items()}


def _share(name: str, above: Array, below: Array, groups: Sequence[Hashable], n: int) -> Score:
    if name != "f1" and len(set(groups)) == len(groups):
        return proportion(float(above.sum()), n)
    return bootstrap_groups(partial(_ratio, above, below), groups, n=n, among=below > 0)


def auroc(gold: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None) -> float:
    """The probability that a positive row has a higher score than a negative one; half of the ties count.

    Args:
        gold: Whether each row is positive, (n,).
        scores: Any numbers that should be higher for positive rows, (n,); only their order counts.
        weights: How often each row is there, (n,); once if not given.

    Returns:
        In [0, 1], 0.5 is chance; NaN where one of the classes is missing.

    Source: Hanley and McNeil 1982; the rank statistic of Mann and Whitney.
    """
    positive, values = np.asarray(gold, bool), np.asarray(scores, np.float64)
    each = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    _, place = np.unique(values, return_inverse=True)
    return float(_auroc(positive, place, each[None])[0])


def auroc_score(gold: Sequence[bool], scores: Sequence[float], groups: Sequence[Hashable]) -> Score:
    """`auroc` with its interval."""
    positive = np.asarray(gold, bool)
    _, place = np.unique(np.asarray(scores, np.float64), return_inverse=True)
    classes = [
        {group for group, one in zip(groups, gold, strict=True) if bool(one) is label} for label in (True, False)
    ]
    fewer = min(classes, key=len)  # so many questions it rests on, where it is 0 or 1
    among = [group in fewer for group in groups]
    return bootstrap_groups(partial(_auroc, positive, place), groups, n=len(positive), among=among)


def reliability(gold: Sequence[bool], probabilities: Sequence[float]) -> list[Bin]:
    """How often the rows of each probability are positive: the points of a reliability diagram.

    Each bin holds as many rows as any other, `LEAST` or more where there are so many, so that each point is as sure;
    rows of equal probability share one, which makes bins larger and fewer. A judge that is mostly sure would leave
    most of equally wide bins to a handful of rows.

    Args:
        gold: Whether each row is positive, (n,).
        probabilities: Of the positive label, in [0, 1], (n,).

    Source: DeGroot and Fienberg 1983; Nguyen and O'Connor 2015, section 3 (bins of equal count).
    """
    order = np.argsort(np.asarray(probabilities, np.float64), kind="stable")
    of, positive = np.asarray(probabilities, np.float64)[order], np.asarray(gold, bool)[order]
    wanted = max(1, min(BINS, len(of) // LEAST))
    begins = [round(number * len(of) / wanted) for number in range(wanted)] if len(of) else []
    begins = sorted({int(np.searchsorted(of, of[begin], side="left")) for begin in begins})
    kept = begins[:1]
    for begin in begins[1:]:  # what stands before equal ones, or behind them, may be too few
        if begin - kept[-1] >= LEAST and len(of) - begin >= LEAST:
            kept.append(begin)
    return [
        Bin(float(of[a]), float(of[b - 1]), b - a, float(of[a:b].mean()), float(positive[a:b].mean()))
        for a, b in pairwise([*kept, len(of)])
    ]


def ece_score(gold: Sequence[bool], probabilities: Sequence[float], groups: Sequence[Hashable]) -> Score:
    """Expected calibration error: over ten equally wide bins, the mean distance of probability and share of positives.

    It is taken of the positive label's probability, not of the likelier label's: that is what a threshold cuts.

    Args:
        gold: Whether each row is positive, (n,).
        probabilities: Of the positive label, in [0, 1], (n,).
        groups: What each row is resampled with, (n,).

    Source: Naeini et al. 2015; Guo et al. 2017, section 2. Resampling adds noise to every bin, so that the interval
    lies somewhat high for a judge that is nearly calibrated.
    """
    of, positive = np.asarray(probabilities, np.float64), np.asarray(gold, np.float64)
    place = _places(of)

    def ece(weights: Array) -> Array:
        return np.abs(sums_by_place(weights * (of - positive), place)).sum(1) / weights.sum(1)

    return bootstrap_groups(ece, groups, n=len(positive))


def cuts(scores: ArrayLike, low: float, high: float, most: int = 200) -> Array:
    """The thresholds worth trying: one between each two neighbouring scores, and one beyond either end.

    Args:
        scores: The rows' scores, finite, (n,).
        low: A score that none lies below, such as 0 for probabilities.
        high: One that none lies above.
        most: How many at most; more are thinned to quantiles of the scores.

    Returns:
        Ascending, strictly between `low` and `high`.
    """
    inside = np.unique(np.asarray(scores, np.float64))
    inside = inside[(inside > low) & (inside < high)]
    points = np.array([low, *inside, high])
    middles = (points[1:] + points[:-1]) / 2
    if len(middles) > most:
        middles = middles[np.linspace(0, len(middles) - 1, most).round().astype(int)]
    return middles


def best_cut(gold: Sequence[bool], scores: Sequence[float]) -> float:
    """The threshold on scores of the best balanced accuracy, the mean of the shares right in either class.

    Balanced, because the rows that it is fitted on may hold the classes in other shares than those it is used on.

    Raises:
        ValueError: One of the classes is missing.
    """
    positive, values = np.asarray(gold, bool), np.asarray(scores, np.float64)
    if positive.all() or not positive.any():
        raise ValueError("a threshold needs rows of both classes")
    tried = cuts(values, values.min() - 1, values.max() + 1)
    said = values[None] >= tried[:, None]  # (cuts, n)
    balanced = said[:, positive].mean(1) + (~said[:, ~positive]).mean(1)
    return float(tried[int(balanced.argmax())])


def recentred(probability: float, threshold: float) -> float:
    """The probability on the scale on which the threshold is one half.

    The log-odds of the threshold are taken off: a judge that leans to one label adds the same to the log-odds of every
    row, and the threshold makes up for that.

    Source: Saerens, Latinne and Decaestecker 2002 (priors as shifts of the log-odds); Zhao et al. 2021.
    """
    return float(1 / (1 + math.exp(log_odds(threshold, 1e-9) - log_odds(probability, 1e-9))))


def _ratio(above: Array, below: Array, weights: Array) -> Array:
    return _over(weights @ above, weights @ below)


def _auroc(positive: NDArray[np.bool_], place: NDArray[np.int64], weights: Array) -> Array:
    yes, no = sums_by_place(weights * positive, place), sums_by_place(weights * ~positive, place)
    below = np.cumsum(no, axis=1) - no
    return _over((yes * (below + no / 2)).sum(1), yes.sum(1) * no.sum(1))


def _over(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.full(len(below), math.nan), where=below != 0)


def _places(probabilities: Array) -> NDArray[np.int64]:
    return np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
