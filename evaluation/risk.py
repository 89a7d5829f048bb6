"""What is gained by answering only where one is sure: risk over coverage.

Rows are answered from the surest on. Coverage is the share that is answered, risk the share of these that is wrong.
Rows of equal confidence cannot be told apart, so each counts as wrong as all of them are on average.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raisf.evaluation.intervals import Score, bootstrap_groups, sums_by_place
from raisf.utils.display import DataTable

Array = NDArray[np.float64]

COVERAGES = (1.0, 0.8, 0.6, 0.4, 0.2)
"""At which a report says how many of the answers are right."""
RISKS = (0.1, 0.2, 0.3)
"""At which a report says how much can be answered."""


@dataclass(frozen=True, slots=True)
class RiskCoverage:
    """What a confidence is worth.

    Attributes:
        aurc: The area under the risk-coverage curve; lower is better. All in random order have the share that is wrong.
        right: By coverage, the share right of those answered.
        coverage: By risk, the largest share that a threshold on the confidence can answer without more risk.
    """

    aurc: Score
    right: dict[float, float]
    coverage: dict[float, float]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able values, coverages and risks as text such as "0.8"."""
        found: Mapping[str, Any] = asdict(self)
        tables = {name: {f"{at:g}": value for at, value in found[name].items()} for name in ("right", "coverage")}
        return {"aurc": self.aurc.as_dict(), **tables}

    def table(self) -> DataTable:
        """A row a coverage, and a row a risk."""
        table = DataTable("answered", "right", title="risk and coverage", title_justify="left")
        for coverage, right in self.right.items():
            table.add_row(f"{coverage:.0%}", f"{100 * right:.1f}")
        table.add_section()
        for risk, coverage in self.coverage.items():
            table.add_row(f"{100 * coverage:.1f}%", f"{100 * (1 - risk):.0f} or more")
        table.add_section()
        table.add_row("AURC, lower is better", str(self.aurc))
        return table


def risk_coverage(right: Sequence[float], confidence: Sequence[float], groups: Sequence[Hashable]) -> RiskCoverage:
    """Measure a confidence.

    Args:
        right: Of each row, in [0, 1], (n,).
        confidence: Of each row; any numbers, of which only the order counts, (n,).
        groups: What each row is resampled with, such as its question, (n,).

    Source: Geifman and El-Yaniv 2017; Geifman, Uziel and El-Yaniv 2019. The mean of the risks at all coverages; here
    coverage is continuous, with which rows of equal confidence need no order.
    """
    wrong, place = 1 - np.asarray(right, np.float64), _places(confidence)
    score = bootstrap_groups(partial(_aurc, wrong, place), groups, n=len(wrong))
    answered, errors = (ends[0] for ends in _curve(wrong, place, np.ones((1, len(wrong)))))
    risks = errors / answered
    total = answered[-1]
    reached = {risk: answered[risks <= risk + 1e-12] / total for risk in RISKS}
    return RiskCoverage(
        score,
        {at: float(1 - np.interp(at * total, [0, *answered], [0, *errors]) / (at * total)) for at in COVERAGES},
        {risk: float(shares.max(initial=0.0)) for risk, shares in reached.items()},
    )


def _places(confidence: ArrayLike) -> NDArray[np.int64]:
    """Of each row, the place of its confidence from the highest on."""
    return np.unique(-np.asarray(confidence, np.float64), return_inverse=True)[1]


def _curve(wrong: Array, place: NDArray[np.int64], weights: Array) -> tuple[Array, Array]:
    """Rows answered, and errors among them, at the end of each confidence that occurs, for weights (m, n)."""
    answered, errors = sums_by_place(weights, place), sums_by_place(weights * wrong, place)
    return answered.cumsum(1), errors.cumsum(1)


def _aurc(wrong: Array, place: NDArray[np.int64], weights: Array) -> Array:
    if not len(place):
        return np.full(len(weights), np.nan)
    answered, errors = _curve(wrong, place, weights)
    more, erring = (np.diff(ends, prepend=0.0) for ends in (answered, errors))
    before, erred = answered - more, errors - erring
    # Within a confidence the risk after x more rows is (erred + slope x) / (before + x): its integral over x.
    slope = np.divide(erring, more, out=np.zeros_like(more), where=more > 0)
    growth = np.divide(answered, before, out=np.ones_like(before), where=before > 0)
    return (erring + (erred - slope * before) * np.log(growth)).sum(1) / answered[:, -1]
