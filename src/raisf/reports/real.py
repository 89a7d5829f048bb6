"""The tables of the comparison on real text: one of all data sets, and each set's own."""

from collections.abc import Mapping
from typing import Any

from raisf.evaluation.comparison import compare_records
from raisf.evaluation.report import summarise
from raisf.reports.report import answer_sections, judge_sections, pair_sections, route_section
from raisf.reports.sections import Cell, Section

RecordsById = dict[str, dict[str, Any]]


def overview(answers: Mapping[str, Mapping[str, RecordsById]], about: str) -> Section:
    """Exact match and F1 of every row on every data set.

    Args:
        answers: By data set and label, the records by question id.
        about: What the rows are.
    """
    labels = list(dict.fromkeys(label for of in answers.values() for label in of))
    counts = {name: len(next(iter(of.values()))) for name, of in answers.items() if of}
    columns = ["program", *(f"{name} {measure}" for name in counts for measure in ("EM", "F1"))]
    rows: list[list[Cell]] = []
    for label in labels:
        cells: list[Cell] = [label]
        for name in counts:
            of = answers[name].get(label)
            report = summarise(of.values()) if of else None
            cells += [report.em, report.f1] if report else [None, None]
        rows.append(cells)
    asked = ", ".join(f"{n} questions of {name}" for name, n in counts.items())
    text = f"{asked}; percent, with 95% intervals. {about}"
    return Section("Real text", columns, rows, text, main=None)


def set_sections(
    name: str, answers: Mapping[str, RecordsById], judged: Mapping[str, dict[str, Any]], against: str | None
) -> list[Section]:
    """The tables of a data set: scores, cost, kinds, routes, paired tests, judges.

    Args:
        name: The set's.
        answers: By label, the records by question id.
        judged: By label and judge, the judge's report alone against gold.
        against: The row that the others are tested against; None: no tests.
    """
    if not answers:
        return []
    comparison = compare_records(answers, against or "")
    found = [
        *answer_sections(comparison),
        route_section(comparison),
        *pair_sections(comparison.pairs),
        *judge_sections(judged),
    ]
    sections = [section for section in found if section.rows]
    for section in sections:
        section.title = f"{name}: {section.title[0].lower()}{section.title[1:]}"
    return sections
