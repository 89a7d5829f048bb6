"""How sure a mean is: bootstrap intervals over questions. The number of questions travels with every value."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Resampled indices are drawn in blocks of at most this many (32 MB of int64), whatever the size of the test set.
_BLOCK = 4_000_000


@dataclass(frozen=True, slots=True)
class Score:
    """A mean over questions with its interval.

    Attributes:
        value: The mean; NaN for n = 0.
        low: Lower end of the 95% interval.
        high: Upper end of the 95% interval.
        n: The number of questions.
    """

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        """As percent: `46.5 [43.1, 49.8] n=500`."""
        if self.n == 0:
            return "- n=0"
        return f"{100 * self.value:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}] n={self.n}"

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON, which knows no NaN: None stands for it."""
        value, low, high = (None if math.isnan(number) else number for number in (self.value, self.low, self.high))
        return {"value": value, "low": low, "high": high, "n": self.n}


def bootstrap(values: Sequence[float], *, samples: int = 2_000, seed: int = 0) -> Score:
    """The mean of per-question values with its 95% bootstrap percentile interval.

    Args:
        values: One number a question, (n,).
        samples: Resamples; 2,000 place the ends to about a tenth of the interval's width.
        seed: Equal seeds give equal intervals.

    Source: Efron and Tibshirani 1993, chapter 13.
    """
    return _percentile_interval(np.asarray(values, dtype=np.float64), samples, seed)


def paired_difference(ours: Sequence[float], theirs: Sequence[float], *, samples: int = 2_000, seed: int = 0) -> Score:
    """The mean of `ours - theirs` over the same questions, with its 95% interval; 0 outside it: they differ.

    Args:
        ours: One number a question, (n,).
        theirs: The other system's numbers for the same questions in the same order, (n,).
        samples: Resamples of the questions.
        seed: Equal seeds give equal intervals.

    Raises:
        ValueError: The two differ in length.

    Source: Efron and Tibshirani 1993, chapter 13; paired, as in Berg-Kirkpatrick et al. 2012.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"a paired difference needs the same questions: found {len(ours)} and {len(theirs)} values")
    return _percentile_interval(np.subtract(ours, theirs, dtype=np.float64), samples, seed)


def bootstrap_groups(
    statistic: Callable[[NDArray[np.float64]], float],
    groups: Sequence[Hashable],
    *,
    n: int,
    samples: int = 2_000,
    seed: int = 0,
) -> Score:
    """A statistic of rows that belong together in groups, such as five passages of one question, with its 95% interval.

    Whole groups are resampled: rows of one question are not independent, and to count them as if they were would make
    the interval too narrow.

    Args:
        statistic: From the multiplicity of each row in a resample, (n_rows,), to its value; NaN where it is undefined.
        groups: Each row's group, (n_rows,).
        n: What the Score shall say it rests on: the rows that the statistic has in its denominator.
        samples: Resamples; those in which the statistic is undefined are left out.
        seed: Equal seeds give equal intervals.

    Returns:
        The Score; NaN with n = 0 where the statistic is undefined on all rows.

    Source: Field and Welsh 2007, the cluster bootstrap.
    """
    value = statistic(np.ones(len(groups))) if groups else math.nan
    if math.isnan(value):
        return Score(math.nan, math.nan, math.nan, 0)
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    random = np.random.default_rng(seed)
    drawn = (random.integers(0, len(numbers), len(numbers)) for _ in range(samples))
    values = [statistic(np.bincount(picked, minlength=len(numbers))[group_of].astype(np.float64)) for picked in drawn]
    low, high = np.nanquantile(values, (0.025, 0.975))
    return Score(value, float(low), float(high), n)


def _percentile_interval(values: NDArray[np.float64], samples: int, seed: int) -> Score:
    n = len(values)
    if n == 0:
        return Score(math.nan, math.nan, math.nan, 0)
    random = np.random.default_rng(seed)
    means = np.empty(samples)
    block = max(1, _BLOCK // n)
    for start in range(0, samples, block):
        rows = min(block, samples - start)
        means[start : start + rows] = values[random.integers(0, n, (rows, n))].mean(axis=1)  # (rows, n) -> (rows,)
    low, high = np.quantile(means, (0.025, 0.975))
    return Score(float(values.mean()), float(low), float(high), n)
