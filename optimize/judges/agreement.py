"""How far two who label the same rows agree: a teacher and gold, a person and a judge."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from raisf.evaluation.intervals import Score, bootstrap, bootstrap_groups


@dataclass(frozen=True, slots=True)
class Agreement:
    """Pairs of labels.

    Attributes:
        pairs: What the first and the second said of each row, (n,).
        groups: Each row's group, (n,), such as the question whose passages were labelled.
    """

    pairs: Sequence[tuple[str, str]]
    groups: Sequence[Hashable]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], groups: Sequence[Hashable] | None = None) -> Self:
        """The agreement of pairs of labels; without `groups` each stands for itself."""
        told = list(pairs)
        return cls(told, range(len(told)) if groups is None else groups)

    @property
    def n(self) -> int:
        """How many rows both labelled."""
        return len(self.pairs)

    @property
    def share(self) -> Score:
        """The share of the rows on which both say the same; its interval takes each group as a whole."""
        rows: dict[Hashable, list[bool]] = {}
        for (one, other), group in zip(self.pairs, self.groups, strict=True):
            rows.setdefault(group, []).append(one == other)
        if len(rows) == self.n:  # each stands for itself
            return bootstrap([float(same) for (same,) in rows.values()])
        same, counts = (np.array([of(group) for group in rows.values()], dtype=np.float64) for of in (sum, len))
        return bootstrap_groups(lambda weights: weights @ same / (weights @ counts), list(rows), n=self.n)

    @property
    def kappa(self) -> float | None:
        """The agreement beyond chance: 0 at chance, 1 where both always agree.

        None where it is undefined: no rows, or both gave one and the same label only.

        Source: Cohen 1960.
        """
        n = self.n
        ours, theirs = (Counter(pair[side] for pair in self.pairs) for side in (0, 1))
        chance = sum(ours[label] * theirs[label] for label in ours) / n**2 if n else 1.0
        if chance == 1.0:
            return None
        same = sum(one == other for one, other in self.pairs) / n
        return (same - chance) / (1 - chance)

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values: the share that agrees and the ends of its 95% interval, kappa, and n."""
        share = self.share.as_dict()
        return {"agree": share["value"], "low": share["low"], "high": share["high"], "kappa": self.kappa, "n": self.n}
