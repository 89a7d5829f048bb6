"""Questions worth reading: those that only one of the two best programs answers right, with both trees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raisf.reports.headline import ranked

if TYPE_CHECKING:
    from raisf.evaluation.comparison import Comparison

MOST = 5
"""Examples of either sort."""


@dataclass(frozen=True)
class Example:
    """A question that one program has right and another wrong.

    Attributes:
        anchor: Where the page has it.
        question: Its text.
        answers: Gold.
        right: The program that has it right.
        sides: By program, its record; the better program first.
    """

    anchor: str
    question: str
    answers: list[str]
    right: str
    sides: dict[str, dict[str, Any]]


def wins_and_losses(comparison: "Comparison", records: Mapping[str, Mapping[str, dict[str, Any]]]) -> list[Example]:
    """Wins of the best program over the next best, then losses, in the order of the questions' ids."""
    if len(comparison.reports) < 2:
        return []
    best, other = ranked(comparison)[:2]
    found = []
    for right, wrong in ((best, other), (other, best)):
        names = [
            name for name in sorted(records[right]) if records[right][name]["em"] == 1 > records[wrong][name]["em"]
        ]
        for name in names[:MOST]:
            record, sides = records[right][name], {who: records[who][name] for who in (best, other)}
            found.append(Example(f"tree-{len(found) + 1}", record["question"], record["answers"], right, sides))
    return found
