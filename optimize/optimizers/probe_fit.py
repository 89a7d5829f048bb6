"""Fitting a probe: a logistic regression on each layer's states, of which validation rows choose one."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from raisf.evaluation.judges import auroc
from raisf.lm.local.probes import LEAST_SCALE, Probe

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""What C may be: the smaller, the stronger is the penalty (0.5 |W|² + C times the sum of the rows' losses)."""
# Deeper models are tried at every second layer: neighbours say much the same.
DEEP = 24
MAX_STEPS = 300


@dataclass(frozen=True, slots=True)
class Point:
    """How a layer and a penalty do on the validation rows.

    Attributes:
        layer: 1 is the first.
        C: Of the penalty.
        log_loss: In nats a row, with the rows' weights.
        auroc: In [0, 1]; of more than two labels the mean of each against the others.
    """

    layer: int
    C: float
    log_loss: float
    auroc: float


@dataclass(frozen=True, slots=True)
class LabelledStates:
    """Rows as a probe meets them.

    Attributes:
        states: (n, layers, width).
        gold: (n,) the places of the rows' labels.
        weights: (n,) in the loss; 1 is an average row's.
        groups: (n,) whose rows belong together, for intervals.
    """

    states: np.ndarray
    gold: np.ndarray
    weights: np.ndarray
    groups: Sequence[str] = ()


def tried_layers(count: int) -> list[int]:
    """The layers that are tried of a model that has so many; the last is one of them."""
    return list(range(count, 0, -1 if count <= DEEP else -2))[::-1]


def fit_probe(
    labels: Sequence[str], layers: Sequence[int], train: LabelledStates, validation: LabelledStates
) -> tuple[Probe, dict[str, Any]]:
    """The probe whose layer and penalty have the lowest log loss on the validation rows.

    Args:
        labels: Two or more; `gold` counts them.
        layers: The numbers of the layers whose states the rows have.
        train: At least one row of each label.
        validation: To choose by.

    Returns:
        The probe, and what is known of it: `C`, the chosen point's `log_loss` and `auroc` under `validation`,
        and `curve`, all points.
    """
    tried: list[tuple[Point, Probe]] = []
    for place, layer in enumerate(layers):
        features, mean, scale = _standardised(train.states[:, place])
        for penalty, weight, bias in _fitted(features, np.eye(len(labels))[train.gold], train.weights):
            probe = Probe(tuple(labels), layer, weight, bias, mean, scale)
            tried.append((_measured(probe, penalty, validation, place), probe))
    chosen, probe = min(tried, key=lambda one: one[0].log_loss)
    report = {"log_loss": chosen.log_loss, "auroc": chosen.auroc, "n": len(validation.gold)}
    return probe, {"C": chosen.C, "validation": report, "curve": [asdict(point) for point, _ in tried]}


def _standardised(states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of mean 0 and spread 1, with the mean and the spread, all float64."""
    states = states.astype(np.float64)
    mean, scale = states.mean(0), states.std(0)
    scale = np.where(scale > LEAST_SCALE, scale, 1.0)
    return (states - mean) / scale, mean, scale


def _fitted(
    features: np.ndarray, right: np.ndarray, weights: np.ndarray
) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Each C with the weights (labels, width) and the biases (labels,) that it gives.

    Where there are fewer rows than features, the best weights are sums of rows: they are looked for among these.
    """
    width, labels = features.shape[1], right.shape[1]
    basis = np.linalg.qr(features.T)[0] if len(features) < width else None  # (width, rows)
    inputs = features if basis is None else features @ basis

    def loss(flat: np.ndarray, c: float) -> tuple[float, np.ndarray]:
        made = flat.reshape(labels, -1)
        weight, bias = made[:, :-1], made[:, -1]
        logprobs = log_softmax(inputs @ weight.T + bias, axis=-1)
        value = 0.5 * (weight**2).sum() - c * (weights * (right * logprobs).sum(1)).sum()
        error = c * weights[:, None] * (np.exp(logprobs) - right)  # (rows, labels)
        return value, np.concatenate([weight + error.T @ inputs, error.sum(0)[:, None]], 1).ravel()

    found = np.zeros(labels * (inputs.shape[1] + 1))
    for c in PENALTIES:  # from the strongest on: each begins near where the one before it ended
        found = minimize(loss, found, (c,), jac=True, method="L-BFGS-B", options={"maxiter": MAX_STEPS}).x
        made = found.reshape(labels, -1)
        yield c, made[:, :-1] if basis is None else made[:, :-1] @ basis.T, made[:, -1]


def _measured(probe: Probe, penalty: float, rows: LabelledStates, place: int) -> Point:
    logprobs = log_softmax(probe.logits(rows.states[:, place]), axis=-1)
    losses = -logprobs[np.arange(len(rows.gold)), rows.gold]
    found = [auroc(rows.gold == label, logprobs[:, label]) for label in range(len(probe.labels))]
    told = [one for one in found if not math.isnan(one)]  # a rare label may have no row here
    mean = sum(told) / len(told)
    return Point(probe.layer, penalty, float(np.average(losses, weights=rows.weights)), mean)
