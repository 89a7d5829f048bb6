"""No score is told with a certainty that its few questions cannot give: every interval has a width."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from raisf.evaluation.comparison import compare_records
from raisf.evaluation.intervals import FEW, bootstrap, bootstrap_groups, caution, paired_difference, proportion
from raisf.evaluation.judges import auroc_score, ece_score, verdict_scores
from raisf.evaluation.report import summarise
from raisf.reports.report import answer_sections


@pytest.mark.parametrize("n", [1, 2, 3, 15, 100, 5_000])
def test_all_right_and_all_wrong_are_no_certainties(n: int) -> None:
    right, wrong = bootstrap([1.0] * n), bootstrap([0.0] * n)
    assert right.value == right.high == 1 and right.low < 1
    assert wrong.value == wrong.low == 0 and wrong.high > 0
    assert right.low == pytest.approx(1 - wrong.high)


def test_two_of_two_may_be_every_third_and_none_of_fifteen_every_fifth() -> None:
    assert bootstrap([1.0, 1.0]).low == pytest.approx(0.342, abs=0.001)
    assert bootstrap([0.0] * 15).high == pytest.approx(0.204, abs=0.001)


@pytest.mark.parametrize(("k", "n"), [(0, 2), (1, 2), (7, 15), (15, 15), (499, 500), (3, 5_000)])
def test_shares_have_the_librarys_wilson_interval(k: int, n: int) -> None:
    theirs = binomtest(k, n).proportion_ci(method="wilson")
    for ours in (proportion(k, n), bootstrap([1.0] * k + [0.0] * (n - k))):
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("n", [10, 40])
def test_the_truth_is_inside_nineteen_times_in_twenty_and_near_the_edge_nine_in_ten(share: float, n: int) -> None:
    rng = np.random.default_rng(1)
    scores = [proportion(int(k), n) for k in rng.binomial(n, share, 2_000)]
    assert sum(score.low <= share <= score.high for score in scores) / 2_000 > (0.92 if share in (0.5, 0.9) else 0.89)


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_equal_values_of_any_size_have_a_width(value: float) -> None:
    few, many = bootstrap([value] * 4), bootstrap([value] * 400)
    assert few.value == pytest.approx(value) and few.low <= value <= few.high
    assert few.high - few.low > 3 * (many.high - many.low) > 0


@pytest.mark.parametrize("gap", [-1.0, 0.0, 0.5, 1.0])
def test_equal_differences_have_a_width(gap: float) -> None:
    few = paired_difference([max(gap, 0.0)] * 3, [max(-gap, 0.0)] * 3)
    many = paired_difference([max(gap, 0.0)] * 300, [max(-gap, 0.0)] * 300)
    assert few.value == many.value == gap and few.n == 3
    assert few.high - few.low > many.high - many.low > 0
    assert -1 <= few.low <= gap <= few.high <= 1
    assert paired_difference([], []).n == 0


def test_of_equal_differences_two_more_questions_are_assumed() -> None:
    same = paired_difference([1.0] * 8, [1.0] * 8)
    assert (same.low, same.high) == pytest.approx((-1.96 / 10, 1.96 / 10), abs=1e-3)


def test_a_judge_that_is_always_right_is_not_known_to_be() -> None:
    gold = [True, True, False, False]
    scores = verdict_scores(gold, gold, range(4))
    for name in ("accuracy", "precision", "recall", "f1"):
        assert scores[name].value == scores[name].high == 1 and scores[name].low < 0.7, name
    assert scores["precision"].low == pytest.approx(0.342, abs=0.001)  # two positive verdicts
    ranked = auroc_score(gold, [0.9, 0.8, 0.2, 0.1], range(4))
    assert ranked.value == 1 and ranked.low < 0.5
    assert ece_score(gold, [1.0, 1.0, 0.0, 0.0], range(4)).high > 0.3
    for probability in (0.1, 0.2, 0.7):  # equal but for the last bit, which every resample rounds otherwise
        alike = ece_score([True] * 40, [probability] * 40, range(40))
        assert alike.low + 0.1 < alike.value < alike.high


def test_twenty_passages_of_two_questions_are_as_sure_as_two_questions() -> None:
    gold, groups = [True, False] * 10, ["a"] * 10 + ["b"] * 10
    together = verdict_scores(gold, gold, groups)["accuracy"]
    apart = verdict_scores(gold, gold, range(20))["accuracy"]
    assert (together.n, apart.n) == (20, 20)
    assert together.low == pytest.approx(proportion(2, 2).low) and apart.low == pytest.approx(proportion(20, 20).low)


def test_at_the_edge_only_the_questions_of_the_denominator_count() -> None:
    said = [True] * 3 + [False] * 9
    precision = verdict_scores(said, said, ["a"] * 3 + ["b"] * 3 + ["c"] * 6)["precision"]
    assert precision.low == pytest.approx(proportion(1, 1).low) and precision.n == 3


def test_between_the_edges_the_rows_of_a_question_are_still_resampled_together() -> None:
    right = np.array([1.0, 0.0] * 50)
    groups = [row // 10 for row in range(100)]

    def share(weights: Any) -> Any:
        return weights @ right / weights.sum(1)

    alike = bootstrap_groups(share, groups, n=100)  # every question is half right: one could not tell them apart
    assert alike.low == pytest.approx(proportion(5, 10).low)
    right[:50] = 1.0
    mixed = bootstrap_groups(share, groups, n=100)
    assert mixed.high - mixed.low > 1.5 * (bootstrap(right.tolist()).high - bootstrap(right.tolist()).low)


def record(number: int, em: float, f1: float) -> dict[str, Any]:
    cost = {"lm_calls": 1, "seconds": 1.0}
    scores = {"em": em, "f1": f1, "accuracy": em, "recall": None, "precision": None}
    more = {"kind": None, "route": "direct", "read": 1, "unreadable": 0, "error": None, "cost": cost}
    return {"id": str(number), **scores, **more}


def test_tables_of_few_questions_say_so() -> None:
    assert caution(2) and caution(FEW - 1) and not caution(FEW) and not caution(0)
    records = {name: {str(n): record(n, 1.0, 1.0) for n in range(2)} for name in ("a", "b")}
    section = answer_sections(compare_records(records))[0]
    assert "n=2 is below 30" in section.text and "Wilson" in section.text
    report = summarise(records["a"].values())
    assert str(report.em) == "100.0 [34.2, 100.0] n=2" and "n=2" in str(report.table().caption)
