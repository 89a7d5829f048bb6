"""Paired comparisons: right p-values, the same questions, and corrections that never make a pair look surer."""

import itertools
import math
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.evaluation.comparison import compare_records, holm, mcnemar, randomisation
from raisf.utils.errors import InputError

CHANCES = st.floats(0, 1)


def _records(values, f1=None):
    return {
        str(number): {
            "id": str(number),
            "em": float(value),
            "f1": float(value if f1 is None else f1[number]),
            "accuracy": float(value),
            "kind": None,
            "route": "direct",
            "recall": None,
            "precision": None,
            "cost": {"lm_calls": 1},
            "unreadable": 0,
            "error": None,
        }
        for number, value in enumerate(values)
    }


def test_mcnemar_is_the_toss_of_a_fair_coin_over_the_questions_that_differ():
    # Ten heads of ten, either side: 2 / 2**10.
    assert mcnemar(10, 0) == mcnemar(0, 10) == pytest.approx(2 / 2**10)
    assert mcnemar(0, 0) == mcnemar(7, 7) == 1.0
    assert mcnemar(3, 1) == pytest.approx(2 * (1 + 4) / 2**4)


def test_randomisation_counts_all_ways_to_swap_where_they_are_few():
    # Of the 2**5 signs only all plus and all minus are as extreme.
    assert randomisation([1.0] * 5, [0.0] * 5) == pytest.approx(2 / 2**5)
    assert randomisation([0.3, 0.6], [0.3, 0.6]) == randomisation([0.5], [0.0]) == 1.0
    # What is equal in both says nothing, however much of it there is.
    assert randomisation([1.0] * 5 + [0.5] * 400, [0.0] * 5 + [0.5] * 400) == pytest.approx(2 / 2**5)


def test_randomisation_agrees_with_mcnemar_on_right_and_wrong():
    rng = random.Random(3)
    ours, theirs = ([float(rng.random() < share) for _ in range(300)] for share in (0.6, 0.5))
    won = sum(a > b for a, b in zip(ours, theirs, strict=True))
    lost = sum(a < b for a, b in zip(ours, theirs, strict=True))
    assert randomisation(ours, theirs) == pytest.approx(mcnemar(won, lost), abs=0.01)
    assert randomisation(ours, theirs) == randomisation(ours, theirs), "seeded"


def test_no_difference_is_found_significant_about_as_often_as_promised():
    rng = random.Random(0)
    found = 0
    for _ in range(200):
        flips = sum(rng.random() < 0.5 for _ in range(60))
        found += mcnemar(flips, 60 - flips) < 0.05
    assert found / 200 < 0.08


def test_holm_multiplies_by_the_tests_that_are_left():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


@given(st.lists(CHANCES, max_size=12))
def test_holm_never_makes_surer_and_keeps_the_order(values):
    corrected = holm(values)
    assert all(0 <= before <= after <= 1 for before, after in zip(values, corrected, strict=True))
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert all(corrected[a] <= corrected[b] for a, b in itertools.pairwise(order))


def test_every_pair_is_compared_on_its_questions_whatever_their_order():
    better, worse = [1] * 30 + [0] * 10, [1] * 10 + [0] * 20 + [1] * 2 + [0] * 8
    records = {"worse": _records(worse), "better": dict(reversed(_records(better).items()))}
    (pair,) = compare_records(records).pairs
    assert (pair.first, pair.second, pair.won, pair.lost) == ("better", "worse", 20, 2)
    assert pair.em.value == pytest.approx(18 / 40) and pair.em.low > 0
    assert pair.p_em == pair.p_em_holm < 0.001 and pair.p_f1 == pair.p_f1_holm < 0.01
    three = compare_records({**records, "same": _records(better)})
    assert [(pair.first, pair.second) for pair in three.pairs] == [
        ("better", "worse"),
        ("same", "worse"),
        ("same", "better"),
    ]
    assert three.pairs[0].p_em_holm == pytest.approx(3 * three.pairs[0].p_em)
    assert three.pairs[0].p_f1_holm == pytest.approx(3 * three.pairs[0].p_f1)
    assert three.reports["same"].em.n == 40 and not math.isnan(three.pairs[2].em.value)


def test_exact_match_and_f1_are_each_tested_by_their_own_values():
    worse = _records([0] * 6 + [1] * 2, [0.25] * 6 + [1.0] * 2)
    better = _records([1] * 2 + [0] * 4 + [1] * 2, [0.5] * 2 + [0.75] * 4 + [1.0] * 2)
    (pair,) = compare_records({"worse": worse, "better": better}).pairs
    assert (pair.first, pair.em.value, pair.f1.value) == ("better", 0.25, 0.3125)
    assert (pair.p_em, pair.p_f1) == (0.5, 2 / 2**6)


def test_pairs_with_one_program_alone_are_corrected_for_those_alone():
    records = {"a": _records([0] * 8), "b": _records([1] * 8), "c": _records([0, 1] * 4), "d": _records([0] * 8)}
    pairs = compare_records(records, "b").pairs
    assert [(pair.first, pair.second) for pair in pairs] == [("b", "a"), ("c", "b"), ("d", "b")]
    assert pairs[0].p_em_holm == pytest.approx(3 * pairs[0].p_em)
    assert compare_records(records, "").pairs == []


def test_different_questions_are_no_comparison():
    with pytest.raises(InputError, match="different questions"):
        compare_records({"a": _records([1, 0]), "b": _records([1])})


@pytest.mark.slow
def test_thousands_of_questions_are_resampled_without_gigabytes():
    ours = np.random.default_rng(0).random(2_000)
    tracemalloc.start()
    try:
        p = randomisation(ours, ours[::-1] + 0.01)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < p < 1 and most < 150e6
