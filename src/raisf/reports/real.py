"""The tables of the comparison on real text: one of all data sets, and each set's own."""

from collections.abc import Mapping
from typing import Any

from raisf.evaluation import RecordsById
from raisf.evaluation.comparison import compare_records
from raisf.evaluation.report import summarise
from raisf.reports.report import answer_sections, judge_sections, pair_sections, route_section
from raisf.reports.sections import Cell, Section

EM = "exact match"


def overview(answers: Mapping[str, Mapping[str, RecordsById]], about: str, measures: Mapping[str, str]) -> Section:
    """Exact match and F1 of every row on every data set.

    Args:
        answers: By data set and label, the records by question id.
        about: What the rows are.
        measures: By data set, what is counted instead of both, where it is not exact match.
    """
    shown = {name: (measure,) for name, measure in measures.items() if measure != EM}
    labels = list(dict.fromkeys(label for of in answers.values() for label in of))
    counts = {name: len(next(iter(of.values()))) for name, of in answers.items() if of}
    columns = ["program", *(f"{name} {measure}" for name in counts for measure in shown.get(name, ("EM", "F1")))]
    rows: list[list[Cell]] = []
    for label in labels:
        cells: list[Cell] = [label]
        for name in counts:
            of = answers[name].get(label)
            report = summarise(of.values()) if of else None
            scores = [report.em, report.f1] if report else [None, None]
            cells += scores[: len(shown.get(name, scores))]
        rows.append(cells)
    asked = ", ".join(f"{n} questions of {name}" for name, n in counts.items())
    text = f"{asked}; percent, with 95% intervals. {about}"
    return Section("Real text", columns, rows, text, main=None)


def set_sections(
    name: str,
    answers: Mapping[str, RecordsById],
    judged: Mapping[str, dict[str, Any]],
    against: str | None,
    measure: str,
) -> list[Section]:
    """The tables of a data set: scores, cost, kinds, routes, paired tests, judges.

    Args:
        name: The set's.
        answers: By label, the records by question id.
        judged: By label and judge, the judge's report alone against gold.
        against: The row that the others are tested against; None: no tests.
        measure: What the records count as exact match.
    """
    if not answers:
        return []
    comparison = compare_records(answers, against or "")
    found = [*answer_sections(comparison), route_section(comparison), *pair_sections(comparison.pairs)]
    if measure != EM:
        _call(found, measure)
    sections = [section for section in [*found, *judge_sections(judged)] if section.rows]
    for section in sections:
        section.title = f"{name}: {section.title[0].lower()}{section.title[1:]}"
    return sections


def _call(sections: list[Section], measure: str) -> None:
    """Gives exact match the name of the measure, whose own column says the same."""
    first = sections[0]
    same = list(first.columns).index(measure)
    first.columns = [*first.columns[:same], *first.columns[same + 1 :]]
    first.rows = [[*row[:same], *row[same + 1 :]] for row in first.rows]
    first.text = first.text.replace(f"{EM} and {measure}", EM)
    for section in sections:
        section.call(EM, measure)
