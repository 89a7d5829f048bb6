"""If these failed, a difference between two systems could be claimed or denied wrongly."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.evaluation import intervals
from raisf.evaluation.intervals import Score, bootstrap, bootstrap_groups, paired_difference
from raisf.evaluation.judges import verdict_scores

shares = st.lists(st.floats(0, 1), min_size=1, max_size=30)


def test_interval_of_a_share_agrees_with_the_normal_approximation() -> None:
    score = bootstrap([1.0] * 200 + [0.0] * 200)
    half = 1.96 * math.sqrt(0.25 / 400)
    assert score.value == 0.5 and score.n == 400
    assert score.low == pytest.approx(0.5 - half, abs=0.01)
    assert score.high == pytest.approx(0.5 + half, abs=0.01)


def test_the_interval_holds_the_truth_about_nineteen_times_in_twenty() -> None:
    random = np.random.default_rng(3)
    intervals_ = [bootstrap(random.binomial(1, 0.3, 150).astype(float)) for _ in range(300)]
    covered = sum(score.low <= 0.3 <= score.high for score in intervals_)
    assert 0.90 <= covered / 300 <= 0.98


@given(shares)
def test_interval_surrounds_the_mean_and_is_reproducible(values: list[float]) -> None:
    score = bootstrap(values)
    assert 0 <= score.low <= score.value <= score.high <= 1
    assert score.value == pytest.approx(sum(values) / len(values))
    assert score == bootstrap(values)
    assert score.n == len(values)


def test_blocks_do_not_change_what_is_resampled(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bootstrap([0.0, 0.5, 1.0])
    monkeypatch.setattr(intervals, "_BLOCK", 7)
    assert bootstrap([0.0, 0.5, 1.0]) == whole


def test_paired_difference_sees_what_two_separate_intervals_hide() -> None:
    hard = [0.0] * 50 + [1.0] * 50
    better = [1.0] * 8 + hard[8:]
    assert bootstrap(hard).high > bootstrap(better).low
    difference = paired_difference(better, hard)
    assert difference.low > 0 and difference.value == pytest.approx(0.08) and difference.n == 100


def test_paired_difference_refuses_different_questions() -> None:
    with pytest.raises(ValueError, match="2 and 1"):
        paired_difference([1.0, 0.0], [1.0])


def test_no_questions_is_not_a_zero() -> None:
    empty = bootstrap([])
    assert math.isnan(empty.value) and empty.n == 0
    assert str(empty) == "- n=0"
    assert json.loads(json.dumps(empty.as_dict(), allow_nan=False))["value"] is None


def test_a_score_prints_as_percent_with_n() -> None:
    assert str(Score(0.465, 0.431, 0.498, 500)) == "46.5 [43.1, 49.8] n=500"


def test_a_statistic_over_groups_of_one_has_the_interval_of_its_mean() -> None:
    values = np.random.default_rng(1).random(200)
    plain = bootstrap(values.tolist())
    score = bootstrap_groups(lambda weights: weights @ values / weights.sum(1), range(200), n=200)
    assert score.value == pytest.approx(plain.value) and score.n == 200
    assert (score.low, score.high) == pytest.approx((plain.low, plain.high), abs=0.005)
    assert score == bootstrap_groups(lambda weights: weights @ values / weights.sum(1), range(200), n=200)


def test_groups_are_drawn_whole() -> None:
    seen = []

    def note(weights: np.ndarray) -> np.ndarray:
        seen.extend(map(tuple, weights))
        return np.zeros(len(weights))

    bootstrap_groups(note, ["a", "b", "a"], n=3)
    assert {weights[0] == weights[2] for weights in seen} == {True}
    assert {(1.0, 1.0, 1.0), (2.0, 0.0, 2.0), (0.0, 2.0, 0.0)} == set(seen)


def test_an_undefined_statistic_is_no_zero_and_undefined_resamples_are_left_out() -> None:
    assert bootstrap_groups(lambda weights: np.full(len(weights), math.nan), ["a"], n=1).n == 0
    assert bootstrap_groups(lambda weights: np.ones(len(weights)), [], n=0).n == 0
    score = bootstrap_groups(lambda weights: np.where(weights[:, 0] > 0, 1.0, math.nan), ["a", "b"], n=2)
    assert (score.value, score.high, score.n) == (1.0, 1.0, 2) and score.low < 0.5


def test_one_wrong_row_makes_an_interval_no_narrower_than_none_wrong():
    """Of 500 rows of 100 questions one wrong gave [99.4, 100.0], and none [96.3, 100.0]; 12% missed the truth."""
    groups = [row // 5 for row in range(500)]
    none, one = (verdict_scores([True] * 500, [True] * (500 - n) + [False] * n, groups)["accuracy"] for n in (0, 1))
    assert one.low < none.low < 0.97 and one.high > 0.999
    twelve = verdict_scores([True] * 500, [True] * 440 + [False] * 60, groups)["accuracy"]
    assert 0.80 < twelve.low < 0.84, "far from the edge it is the resamples'"
