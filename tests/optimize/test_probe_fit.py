"""If these failed, a probe's layer would be chosen by rows that weigh too much, or its weights follow noise."""

from typing import Any

import numpy as np
import pytest

from raisf.optimize.optimizers.probe_fit import LabelledStates, fit_probe


def rows(n: int, labels: int = 2, weights: Any = 1.0, seed: int = 0, flipped: int = 0) -> LabelledStates:
    """One layer, whose features tell the label of most rows; the last ones may say another."""
    rng = np.random.default_rng(seed)
    gold = rng.integers(labels, size=n)
    states = rng.normal(size=(n, 1, 4)) + (np.arange(4) % labels == gold[:, None])[:, None]
    gold[n - flipped :] = (gold[n - flipped :] + 1) % labels
    return LabelledStates(states, gold, np.broadcast_to(weights, n))


def test_rows_that_weigh_nothing_change_neither_the_probe_nor_what_is_chosen():
    weights = np.where(np.arange(60) < 40, 1.0, 0.0)
    probes, reports = zip(
        *(fit_probe("ab", [1], rows(60, weights=weights, flipped=n), rows(40, seed=1)) for n in (0, 20)), strict=True
    )
    assert np.allclose(probes[0].weight, probes[1].weight) and reports[0]["C"] == reports[1]["C"]
    part, whole = rows(60, seed=2, weights=weights), rows(60, seed=2)
    first = LabelledStates(whole.states[:40], whole.gold[:40], whole.weights[:40])
    train = rows(60)
    told, expected, other = (
        fit_probe("ab", [1], train, one)[1]["validation"]["log_loss"] for one in (part, first, whole)
    )
    assert told == pytest.approx(expected) != other


def test_a_feature_that_hardly_varied_decides_nothing_where_it_varies_a_little_more():
    train = rows(60)
    train.states[:, :, 3] *= 1e-9
    probe, _ = fit_probe("ab", [1], train, rows(40, seed=1))
    state = train.states[0, 0]
    told, moved = (probe.probabilities(state + np.array([0, 0, 0, more])) for more in (0, 1e-3))
    assert moved == pytest.approx(told, abs=1e-3)


def test_a_label_without_a_validation_row_counts_in_no_mean():
    validation = rows(60, labels=3, seed=1)
    there = validation.gold < 2
    kept = LabelledStates(validation.states[there], validation.gold[there], validation.weights[there])
    _, report = fit_probe("abc", [1], rows(90, labels=3), kept)
    assert report["validation"]["auroc"] > 0.5
