"""How far two who label the same rows agree: a teacher and gold, a person and a judge."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from raisf.evaluation.intervals import Score, bootstrap


@dataclass(slots=True)
class Agreement:
    """Pairs of labels, counted.

    Attributes:
        counts: By what the first and the second said, how often.
    """

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Self:
        """The agreement of pairs of labels."""
        return cls(Counter(pairs))

    @property
    def n(self) -> int:
        """How many rows both labelled."""
        return self.counts.total()

    @property
    def share(self) -> Score:
        """The share of the rows on which both say the same."""
        return bootstrap([float(one == other) for (one, other), n in sorted(self.counts.items()) for _ in range(n)])

    @property
    def kappa(self) -> float | None:
        """The agreement beyond chance: 0 at chance, 1 where both always agree.

        None where it is undefined: no rows, or both gave one and the same label only.

        Source: Cohen 1960.
        """
        n = self.n
        ours: Counter[str] = Counter()
        theirs: Counter[str] = Counter()
        for (one, other), count in self.counts.items():
            ours[one] += count
            theirs[other] += count
        chance = sum(ours[label] * theirs[label] for label in ours) / n**2 if n else 1.0
        if chance == 1.0:
            return None
        same = sum(count for (one, other), count in self.counts.items() if one == other) / n
        return (same - chance) / (1 - chance)

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values: the share that agrees, kappa, and n."""
        return {"agree": self.share.value, "kappa": self.kappa, "n": self.n}
