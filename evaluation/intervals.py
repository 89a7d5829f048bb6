"""How sure a mean is: 95% intervals over questions, which hold at the edges too. Every value carries its n.

Shares of questions have Wilson's interval, other means the bootstrap's. A bootstrap of equal values would have no
width, however few they are: there Wilson's takes its place.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# With fewer groups than this on one side of a rate, resampling sees too little of it: its own interval counts, too.
_RARE = 5
# Resamples of each bootstrap, from seed 0: they place the ends to about a tenth of the interval's width.
_SAMPLES = 2_000
# Resampled indices are drawn in blocks of at most this many (32 MB of int64), whatever the size of the test set.
_BLOCK = 4_000_000
# The same of groups: several arrays of that size are to stay in a cache.
_GROUP_BLOCK = 20_000
_Z = 1.959964  # the normal distribution's 97.5% quantile
# Below this many questions a percentile interval is too narrow: of n values it covers what n - 1 would.
FEW = 30


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
        return f"{100 * self.value:z.1f} [{100 * self.low:z.1f}, {100 * self.high:z.1f}] n={self.n}"

    def negated(self) -> "Score":
        """Of a difference: the one the other way round."""
        return Score(-self.value, -self.high, -self.low, self.n)

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON, which knows no NaN: None stands for it."""
        value, low, high = (None if math.isnan(number) else number for number in (self.value, self.low, self.high))
        return {"value": value, "low": low, "high": high, "n": self.n}


def caution(n: int) -> str:
    """What to say beside bootstrap intervals over n questions; "" where they are enough."""
    return f"n={n} is below {FEW}: bootstrap intervals are rough" if 0 < n < FEW else ""


def proportion(successes: float, n: int) -> Score:
    """A share of n independent questions with Wilson's 95% interval, which has a width at 0% and at 100%.

    Args:
        successes: How many are right. A fraction, as the sum of values in [0, 1], gives an interval that is rather too
            wide, since such values vary less than zeros and ones do.
        n: Questions.

    Source: Wilson 1927; Brown, Cai and DasGupta 2001 for its coverage.
    """
    if n == 0:
        return Score(math.nan, math.nan, math.nan, 0)
    share = min(1.0, max(0.0, successes / n))
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
    return Score(share, max(0.0, min(share, middle - half)), min(1.0, max(share, middle + half)), n)


def bootstrap(values: Sequence[float]) -> Score:
    """The mean of per-question values with its 95% interval: Wilson's for zeros and ones, else the bootstrap's.

    Args:
        values: One number in [0, 1] a question, (n,).

    Source: Wilson 1927; the percentile interval of Efron and Tibshirani 1993, chapter 13.
    """
    found = np.asarray(values, dtype=np.float64)
    equal = len(found) > 0 and found.min() == found.max()
    bounded = len(found) > 0 and 0 <= found.min() and found.max() <= 1
    if bounded and (equal or np.isin(found, (0.0, 1.0)).all()):
        return proportion(float(found.sum()), len(found))
    return _percentile_interval(found)


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> Score:
    """The mean of `ours - theirs` over the same questions, with its 95% interval; 0 outside it: they differ.

    Args:
        ours: One number a question, (n,).
        theirs: The other system's numbers for the same questions in the same order, (n,).

    Where all differences are equal, two more questions are assumed, of which each system wins half of one: the width is
    then about 4 / (n + 2) at most, and never nothing.

    Raises:
        ValueError: The two differ in length.

    Source: Efron and Tibshirani 1993, chapter 13; paired, as in Berg-Kirkpatrick et al. 2012. Agresti and Min 2005 for
    equal differences.
    """
    if len(ours) != len(theirs):
        raise ValueError(f"a paired difference needs the same questions: found {len(ours)} and {len(theirs)} values")
    gaps = np.subtract(ours, theirs, dtype=np.float64)
    if len(gaps) == 0 or gaps.min() != gaps.max():
        return _percentile_interval(gaps)
    value, n = float(gaps[0]), len(gaps) + 2
    middle = float(gaps.sum()) / n
    half = _Z * math.sqrt((((gaps**2).sum() + 1) / n - middle**2) / n)
    return Score(value, max(-1.0, min(value, middle - half)), min(1.0, max(value, middle + half)), len(gaps))


def bootstrap_groups(
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    groups: Sequence[Hashable],
    *,
    n: int,
    among: Sequence[bool] | NDArray[np.bool_] | None = None,
) -> Score:
    """A statistic in [0, 1] of rows that belong together in groups, such as a question's passages, and its interval.

    Whole groups are resampled: rows of one question are not independent, and to count them as if they were would make
    the interval too narrow. Where every resample gives the same value, as at 0% and at 100%, the interval is Wilson's
    for as many questions as there are groups: at the edge the rows of one question count as one. Where fewer than five
    groups' worth differ from the edge, it is as wide at least: of so few, resamples often have none.

    Args:
        statistic: From the multiplicities of the rows in each of some resamples, (m, n_rows), to its values, (m,); NaN
            where it is undefined: such resamples are left out.
        groups: Each row's group, (n_rows,).
        n: What the Score shall say it rests on: the rows that the statistic has in its denominator.
        among: The rows in the denominator, (n_rows,), whose groups are counted at the edge; all if not given.

    Returns:
        The Score; NaN with n = 0 where the statistic is undefined on all rows.

    Source: Field and Welsh 2007, the cluster bootstrap.
    """
    value = float(statistic(np.ones((1, len(groups))))[0]) if groups else math.nan
    if math.isnan(value):
        return Score(math.nan, math.nan, math.nan, 0)
    numbers: dict[Hashable, int] = {}
    group_of = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    random = np.random.default_rng(0)
    values, block = np.empty(_SAMPLES), max(1, _GROUP_BLOCK // len(groups))
    for start in range(0, _SAMPLES, block):
        shape = min(block, _SAMPLES - start), len(numbers)
        picked = random.integers(0, len(numbers), shape) + np.arange(shape[0])[:, None] * len(numbers)
        counts = np.bincount(picked.ravel(), minlength=math.prod(shape)).reshape(shape)
        values[start : start + shape[0]] = statistic(counts.astype(np.float64).take(group_of, axis=1))
    low, high = map(float, np.nanquantile(values, (0.025, 0.975)))
    inside = set(groups) if among is None else {group for group, counts in zip(groups, among, strict=True) if counts}
    edge = proportion(value * len(inside), len(inside))
    if high - low <= 1e-9:  # what adding the same numbers in another order makes
        low, high = edge.low, edge.high
    elif min(value, 1 - value) * len(inside) < _RARE:
        low, high = min(low, edge.low), max(high, edge.high)
    return Score(value, low, high, n)


def sums_by_place(values: NDArray[np.float64], place: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sums of values (m, n) over the rows of each place, which are numbered from 0 on, (n,): (m, places)."""
    shape = len(values), int(place.max(initial=-1)) + 1
    cells = place + np.arange(shape[0])[:, None] * shape[1]
    sums = np.bincount(cells.ravel(), values.ravel(), minlength=math.prod(shape))
    return np.asarray(sums, np.float64).reshape(shape)


def _percentile_interval(values: NDArray[np.float64]) -> Score:
    n = len(values)
    if n == 0:
        return Score(math.nan, math.nan, math.nan, 0)
    random = np.random.default_rng(0)
    means = np.empty(_SAMPLES)
    block = max(1, _BLOCK // n)
    for start in range(0, _SAMPLES, block):
        rows = min(block, _SAMPLES - start)
        means[start : start + rows] = values[random.integers(0, n, (rows, n))].mean(axis=1)  # (rows, n) -> (rows,)
    low, high = np.quantile(means, (0.025, 0.975))
    return Score(float(values.mean()), float(low), float(high), n)
