"""A comparison's result in one sentence or two, as the page and a reader in a hurry want it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raisf.evaluation.intervals import Score
from raisf.reports.sections import Section, shown

if TYPE_CHECKING:
    from raisf.evaluation.comparison import Comparison, Pair

# Below it a difference counts as more than chance.
ALPHA = 0.05


def headline(comparison: "Comparison") -> str:
    """Which program answers most questions right, and whether its lead over the next may be chance."""
    best, *others = ranked(comparison)
    report = comparison.reports[best]
    found = f"{best} answers {_percent(report.em)} of {report.em.n} questions right (exact match)."
    if not others:
        return found
    pair = lead(comparison, best, others[0])
    p = "p < 0.001" if pair.p_em_holm < 1e-3 else f"p = {pair.p_em_holm:.3g}"
    points, p = shown(pair.em), f"{p} after Holm's correction"
    if pair.em.value == 0:
        return f"{found} {others[0]} answers as many."
    if pair.p_em_holm < ALPHA:
        return f"{found} That is {points} points more than {others[0]}, the next best ({p})."
    return f"{found} Its lead of {points} points over {others[0]}, the next best, may be chance ({p})."


def best_of(sections: Sequence[Section]) -> str:
    """Of the first section whose rows have a main score, which row has the highest, or how many share it."""
    for section in sections:
        if section.main is None:
            continue
        cells = [(str(row[0]), row[section.main]) for row in section.rows]
        scored = [(name, cell) for name, cell in cells if isinstance(cell, Score) and cell.n]
        if scored:
            name, score = max(scored, key=lambda one: one[1].value)
            many = f" of {len(scored)} rows" if len(scored) > 1 else ""
            column = section.columns[section.main]
            ties = sum(one.value == score.value for _, one in scored)
            if ties > 1:
                return f"{section.title}: {ties}{many} share the highest {column}, {_percent(score)}."
            return f"{section.title}: {name} has the highest {column}{many}, {_percent(score)}."
    return ""


def ranked(comparison: "Comparison") -> list[str]:
    """The programs by exact match, the best first; of equals the one named first."""
    return sorted(comparison.reports, key=lambda name: -comparison.reports[name].em.value)


def lead(comparison: "Comparison", best: str, other: str) -> "Pair":
    """The pair of two programs, turned so that `best` is its first."""
    for pair in comparison.pairs:
        if (pair.first, pair.second) == (best, other):
            return pair
        if (pair.first, pair.second) == (other, best):
            return pair.turned()
    raise KeyError((best, other))


def _percent(score: Score) -> str:
    return f"{100 * score.value:.1f}% [{100 * score.low:.1f}, {100 * score.high:.1f}]"
