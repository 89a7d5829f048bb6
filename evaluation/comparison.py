"""Programs beside each other on the same questions: what differs, and whether chance alone could have done it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import binomtest, permutation_test

from raisf.evaluation import RecordsById
from raisf.evaluation.intervals import Score, paired_difference
from raisf.evaluation.report import Report, summaries
from raisf.utils.errors import InputError

# Where the number of ways to swap the systems' answers is below this, all are tried; else so many are drawn.
RESAMPLES = 9_999
_AT_A_TIME = 1_000_000
"""Numbers that are resampled together: all at once would take gigabytes for some thousand questions."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two programs on the same questions.

    Attributes:
        first, second: Their names.
        em: Mean of first minus second in exact match, with its paired interval.
        f1: The same of token F1.
        won: Questions that only the first has right.
        lost: Questions that only the second has right.
        p_em: McNemar's exact test on `won` and `lost`, two-sided.
        p_f1: Approximate randomisation on token F1, two-sided.
        p_em_holm: `p_em` after Holm's correction for all pairs of the comparison.
        p_f1_holm: `p_f1` likewise.
    """

    first: str
    second: str
    em: Score
    f1: Score
    won: int
    lost: int
    p_em: float
    p_f1: float
    p_em_holm: float
    p_f1_holm: float

    def turned(self) -> "Pair":
        """The same pair, the second before the first."""
        return replace(
            self,
            first=self.second,
            second=self.first,
            em=self.em.negated(),
            f1=self.f1.negated(),
            won=self.lost,
            lost=self.won,
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {**asdict(self), "em": self.em.as_dict(), "f1": self.f1.as_dict()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Programs on one test set, by name in the order given: a report each, and every pair."""

    reports: dict[str, Report]
    pairs: list[Pair]


def compare_records(records: Mapping[str, RecordsById], against: str | None = None) -> Comparison:
    """Compares programs by the records of their evaluations.

    Args:
        records: By the program's name, its records by question id.
        against: Only the pairs with this one are tested, and corrected for; None: all.

    Raises:
        InputError: Two of them answered different questions.
    """
    reports = summaries(records)
    # What is named later is mostly what is hoped to be better: then gains are positive.
    tested = [pair for pair in combinations(records, 2) if against is None or against in pair]
    pairs = [_pair(b, records[b], a, records[a]) for a, b in tested]
    corrected = zip(pairs, holm([pair.p_em for pair in pairs]), holm([pair.p_f1 for pair in pairs]), strict=True)
    return Comparison(reports, [replace(pair, p_em_holm=em, p_f1_holm=f1) for pair, em, f1 in corrected])


def each_once(records: Mapping[str, RecordsById]) -> dict[str, RecordsById]:
    """The records of each program, by its label, or by all that it has: `zero-shot = prompts`.

    Args:
        records: By label, the records by question id; labels of one program share one mapping.
    """
    labels: dict[int, list[str]] = {}
    for label, of in records.items():
        labels.setdefault(id(of), []).append(label)
    return {" = ".join(names): records[names[0]] for names in labels.values()}


def mcnemar(won: int, lost: int) -> float:
    """The two-sided p-value of a split at least this uneven of the questions that only one of two systems has right.

    Source: McNemar 1947; the exact binomial form, which holds for few questions too.
    """
    return float(binomtest(won, won + lost).pvalue) if won + lost else 1.0


def randomisation(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The two-sided p-value of a mean difference this large if each question's two values were swapped at random.

    Args:
        ours: One number a question, (n,).
        theirs: The other system's numbers for the same questions in the same order, (n,).

    Source: Noreen 1989; Yeh 2000 for its use in comparing systems.
    """
    gaps = np.subtract(ours, theirs, dtype=np.float64)
    gaps = gaps[gaps != 0]  # an equal pair stays equal however the coin falls
    if len(gaps) < 2:
        return 1.0  # one difference is as large either way round
    found = permutation_test(
        (gaps,),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, _AT_A_TIME // len(gaps)),
        rng=0,
    )
    return float(found.pvalue)


def holm(values: Sequence[float]) -> list[float]:
    """p-values of several tests, corrected so that the chance of any false alarm stays what it was for one.

    Source: Holm 1979.
    """
    order = sorted(range(len(values)), key=lambda i: values[i])
    corrected, highest = [0.0] * len(values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        corrected[i] = highest
    return corrected


def _pair(a: str, ours: RecordsById, b: str, theirs: RecordsById) -> Pair:
    if ours.keys() != theirs.keys():
        raise InputError(f"{a} and {b} answered different questions: a comparison needs the same")
    names = sorted(ours)  # resampling by position: the order must not depend on who finished first
    em, f1 = (
        ([ours[name][measure] for name in names], [theirs[name][measure] for name in names]) for measure in ("em", "f1")
    )
    won = sum(x > y for x, y in zip(*em, strict=True))
    lost = sum(x < y for x, y in zip(*em, strict=True))
    p_em, p_f1 = mcnemar(won, lost), randomisation(*f1)
    return Pair(a, b, paired_difference(*em), paired_difference(*f1), won, lost, p_em, p_f1, p_em, p_f1)
