"""If these failed, a judge could look better, better ordered or better calibrated than it is."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.evaluation.intervals import proportion
from raisf.evaluation.judges import (
    auroc,
    auroc_score,
    best_cut,
    cuts,
    ece_score,
    recentred,
    reliability,
    verdict_scores,
)

# Each example resamples some thousand times.
BOOTSTRAPPED = settings(max_examples=20, deadline=None)
# Sixteenths: exact in binary, few enough for ties.
grid = st.integers(0, 16).map(lambda n: n / 16)
rows = st.lists(st.tuples(st.booleans(), grid), min_size=1, max_size=40)


def apart(found: list[tuple[bool, float]]) -> tuple[list[bool], list[float], list[int]]:
    return [gold for gold, _ in found], [score for _, score in found], list(range(len(found)))


def test_verdicts_by_hand() -> None:
    gold = [True, True, True, False, False, False, False, False]
    said = [True, True, False, True, False, False, False, False]
    scores = verdict_scores(gold, said, range(8))
    assert {name: score.value for name, score in scores.items()} == pytest.approx(
        {"accuracy": 6 / 8, "precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3}
    )
    assert {name: score.n for name, score in scores.items()} == {"accuracy": 8, "precision": 3, "recall": 3, "f1": 8}


@BOOTSTRAPPED
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30))
def test_verdict_measures_stay_in_range_and_an_undefined_one_is_no_zero(pairs: list[tuple[bool, bool]]) -> None:
    gold, said = [g for g, _ in pairs], [s for _, s in pairs]
    scores = verdict_scores(gold, said, range(len(pairs)))
    assert math.isnan(scores["precision"].value) == (not any(said))
    assert math.isnan(scores["recall"].value) == (not any(gold))
    for score in scores.values():
        assert score.n == 0 or 0 <= score.low <= score.value <= score.high <= 1
    if not math.isnan(scores["precision"].value) and not math.isnan(scores["recall"].value):
        precision, recall = scores["precision"].value, scores["recall"].value
        harmonic = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        assert scores["f1"].value == pytest.approx(harmonic)


def test_auroc_by_hand() -> None:
    assert auroc([False, False, True, True], [0.1, 0.4, 0.35, 0.8]) == 0.75
    assert auroc([True, False], [0.9, 0.1]) == 1 and auroc([True, False], [0.1, 0.9]) == 0
    assert auroc([True, False, True], [0.5, 0.5, 0.5]) == 0.5
    assert math.isnan(auroc([True, True], [0.1, 0.9])) and math.isnan(auroc([], []))


@given(rows)
def test_auroc_is_the_share_of_pairs_in_the_right_order(found: list[tuple[bool, float]]) -> None:
    gold, scores, _ = apart(found)
    pairs = [(a, b) for g, a in found if g for h, b in found if not h]
    if not pairs:
        assert math.isnan(auroc(gold, scores))
        return
    right = sum((a > b) + (a == b) / 2 for a, b in pairs)
    assert auroc(gold, scores) == pytest.approx(right / len(pairs))
    assert auroc(gold, [math.exp(3 * score) for score in scores]) == auroc(gold, scores)
    assert auroc([not g for g in gold], scores) == pytest.approx(1 - auroc(gold, scores))


@given(st.lists(st.tuples(st.booleans(), grid, st.integers(0, 3)), min_size=1, max_size=15))
def test_a_row_of_weight_three_counts_as_three_rows(found: list[tuple[bool, float, int]]) -> None:
    copies = [(gold, score) for gold, score, weight in found for _ in range(weight)]
    ours = auroc([g for g, _, _ in found], [s for _, s, _ in found], [w for _, _, w in found])
    theirs = auroc([g for g, _ in copies], [s for _, s in copies])
    assert ours == pytest.approx(theirs, nan_ok=True)


def test_ece_by_hand() -> None:
    gold = [True, False, True, True, False]
    probabilities = [1.0, 0.95, 0.92, 0.30, 0.34]
    expected = (2 * abs(0.32 - 0.5) + 3 * abs(2.87 / 3 - 2 / 3)) / 5
    assert ece_score(gold, probabilities, range(5)).value == pytest.approx(expected)


def test_a_curve_s_points_rest_on_equally_many_judgements() -> None:
    """A judge that is mostly sure left eight of ten equally wide bins to a handful of rows, whose shares are noise."""
    random = np.random.default_rng(0)
    probabilities = list(random.beta(0.2, 0.2, 200))
    bins = reliability(list(random.random(200) < probabilities), probabilities)
    assert [one.n for one in bins] == [20] * 10
    assert all(one.low <= (one.probability or 0) <= one.high for one in bins)
    assert [one.low for one in bins] == sorted(one.low for one in bins)
    assert [one.n for one in reliability([True] * 35, list(np.linspace(0, 1, 35)))] == [12, 11, 12], "10 or more"
    assert [one.n for one in reliability([True, False], [0.1, 0.9])] == [2] and not reliability([], [])


def test_equal_probabilities_share_a_bin() -> None:
    bins = reliability([True] * 80 + [False] * 20, [1.0] * 80 + [0.5] * 20)
    assert [(one.low, one.high, one.n, one.share) for one in bins] == [(0.5, 0.5, 20, 0.0), (1.0, 1.0, 80, 1.0)]
    for few in ([0.1] + [0.5] * 19, [0.5] * 19 + [0.9]):  # a point of one judgement would say nothing
        assert [one.n for one in reliability([True] * 20, few)] == [20]


@BOOTSTRAPPED
@given(rows)
def test_a_curve_holds_every_judgement_once_and_ece_is_a_share(found: list[tuple[bool, float]]) -> None:
    gold, probabilities, groups = apart(found)
    bins = reliability(gold, probabilities)
    assert sum(one.n for one in bins) == len(found)
    assert sum(one.n * (one.share or 0) for one in bins) == pytest.approx(sum(gold))
    assert all(a.high < b.low for a, b in itertools.pairwise(bins))
    assert 0 <= ece_score(gold, probabilities, groups).value <= 1


def test_a_judge_that_says_how_often_it_is_right_is_calibrated() -> None:
    gold = [i % 5 < 4 for i in range(100)] + [i % 5 < 1 for i in range(100)]
    assert ece_score(gold, [0.8] * 100 + [0.2] * 100, range(200)).value == pytest.approx(0)
    assert ece_score(gold, [0.2] * 100 + [0.8] * 100, range(200)).value == pytest.approx(0.6)


def test_questions_of_many_passages_make_no_calibration_error_wider_than_a_share() -> None:
    groups = [group for group in range(30) for _ in range((1, 20)[group % 2])]
    error = ece_score([True] * len(groups), [0.5] * len(groups), groups)
    share = proportion(15, 30)
    assert error.value == 0.5 and (error.low, error.high) == pytest.approx((share.low, share.high))


def test_the_field_s_library_agrees() -> None:
    metrics: Any = pytest.importorskip("sklearn.metrics")
    calibration: Any = pytest.importorskip("sklearn.calibration")
    random = np.random.default_rng(1)
    for _ in range(20):
        gold, scores = (
            random.random(60) < 0.4,
            random.integers(0, 12, 60) / 13,
        )  # none on the edge of a bin, of which it goes with the lower
        weights = random.integers(0, 4, 60)
        assert auroc(gold, scores, weights) == pytest.approx(metrics.roc_auc_score(gold, scores, sample_weight=weights))
        said = list(scores >= 0.5)
        found = {name: score.value for name, score in verdict_scores(list(gold), said, range(60)).items()}
        for name in ("accuracy", "precision", "recall", "f1"):
            assert found[name] == pytest.approx(getattr(metrics, f"{name}_score")(gold, said)), name
        apart = random.random(200)  # with ties, the library's bins of equal count are not
        drawn = list(random.random(200) < apart)
        share, mean = calibration.calibration_curve(drawn, apart, n_bins=10, strategy="quantile")
        bins = reliability(drawn, list(apart))
        assert [one.share for one in bins] == pytest.approx(list(share))
        assert [one.probability for one in bins] == pytest.approx(list(mean))


def test_five_passages_of_a_question_do_not_count_as_five_questions() -> None:
    gold, scores = [True, False] * 100, [0.6, 0.4] * 50 + [0.4, 0.6] * 50
    each = auroc_score(gold, scores, range(200))
    together = auroc_score(gold, scores, [row // 20 for row in range(200)])
    assert each.value == together.value == 0.5
    assert together.high - together.low > 2 * (each.high - each.low)


@given(st.lists(grid, max_size=30), st.integers(1, 8))
def test_thresholds_part_all_scores_or_are_thinned(scores: list[float], most: int) -> None:
    inside = {score for score in scores if 0 < score < 1}
    every = cuts(scores, 0, 1, most=100)
    assert len(every) == len(inside) + 1
    assert len({tuple(score >= cut for score in sorted(inside)) for cut in every}) == len(every)
    few = cuts(scores, 0, 1, most=most)
    assert len(few) <= most and set(few) <= set(every)
    assert all(0 < cut < 1 for cut in few)


def test_the_baseline_s_threshold_finds_the_gap_and_weighs_the_classes_alike() -> None:
    assert -5 < best_cut([True, True, False, False], [-1.0, -2.0, -5.0, -9.0]) < -2
    # One of the two rare known ones is worth more than two of the many unknown.
    gold, scores = [True, True] + [False] * 20, [-1.0, -3.0, -2.0, -2.0] + [-9.0] * 18
    assert best_cut(gold, scores) < -3
    with pytest.raises(ValueError, match="both classes"):
        best_cut([True], [0.0])


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_recentred_at_the_threshold_is_one_half_and_keeps_the_order(one: float, other: float, threshold: float) -> None:
    assert recentred(threshold, threshold) == pytest.approx(0.5)
    assert recentred(one, 0.5) == pytest.approx(one)
    assert (recentred(one, threshold) > recentred(other, threshold)) == (one > other) or one == pytest.approx(other)
    assert 0 <= recentred(0.0, threshold) < 0.5 < recentred(1.0, threshold) <= 1
