"""If these failed, a confidence would look better or worse than what it is worth."""

from collections.abc import Sequence

import numpy as np
import pytest

from raisf.evaluation.risk import risk_coverage


def by_hand(right: list[float], confidence: list[float]) -> float:
    """The mean risk of the surest 1, 2, ..., n, over the orders that the ties allow."""
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        order = np.lexsort((rng.random(len(right)), -np.asarray(confidence)))
        wrong = 1 - np.asarray(right)[order]
        found.append((np.cumsum(wrong) / np.arange(1, len(right) + 1)).mean())
    return float(np.mean(found))


def area(right: Sequence[float], confidence: Sequence[float]) -> float:
    return risk_coverage(right, confidence, range(len(right))).aurc.value


def test_the_area_is_that_of_the_curve_with_and_without_ties() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.random(400)
    right = (rng.random(400) < confidence).astype(float)
    for scores in (confidence, confidence.round(1), np.zeros(400)):
        assert area(right, scores) == pytest.approx(by_hand(right.tolist(), scores.tolist()), abs=0.01)
    assert area(right, [0.0] * 400) == pytest.approx(1 - right.mean())


def test_the_best_confidence_has_the_least_area_and_the_worst_the_most() -> None:
    right = [1.0] * 50 + [0.0] * 50
    areas = [area(right, scores) for scores in (right, [0.0] * 100, [1 - one for one in right])]
    assert areas == sorted(areas) and areas[0] < 0.2 and areas[2] > 0.8
    perfect = risk_coverage(right, right, range(100))
    assert perfect.right == pytest.approx({1.0: 0.5, 0.8: 0.625, 0.6: 5 / 6, 0.4: 1.0, 0.2: 1.0})
    assert perfect.coverage == pytest.approx({0.1: 0.5, 0.2: 0.5, 0.3: 0.5})  # a threshold cannot cut within a tie
    assert perfect.aurc.low <= perfect.aurc.value <= perfect.aurc.high


def test_what_no_threshold_reaches_is_no_coverage() -> None:
    found = risk_coverage([0.0, 1.0, 1.0], [3, 2, 1], range(3))
    assert found.coverage == {0.1: 0.0, 0.2: 0.0, 0.3: 0.0}
    assert found.as_dict()["right"]["1"] == pytest.approx(2 / 3)


def test_a_risk_that_is_just_reached_is_reached() -> None:
    found = risk_coverage([1.0] * 9 + [0.0], range(10, 0, -1), range(10))
    assert found.coverage[0.1] == 1.0
