"""The report of a comparison: its tables, and the files and the page that they go into."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.reports.sections import Cell, Section, score_of
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from raisf.evaluation.comparison import Comparison, Pair

ROUTES = ("direct", "passages", "decomposed")
# The means a question that the tables show, and their headings.
COSTS = {
    "lm_calls": "LM calls",
    "prompt_tokens": "tokens read",
    "completion_tokens": "tokens written",
    "retrievals": "retrievals",
    "seconds": "seconds",
}
RESULTS, PAGE = "results.json", "report.html"


@dataclass(frozen=True)
class ComparisonReport:
    """Programs on the same questions.

    Attributes:
        title: The page's.
        facts: What was compared on what, for the page.
        results: What results.json holds: scores, pairs, judges and what compiling took, as JSON values.
        sections: The tables and figures by name, in order.
        records: By label and question id, what each program answered.
    """

    title: str
    facts: dict[str, Any]
    results: dict[str, Any]
    sections: dict[str, Section]
    records: Mapping[str, Mapping[str, dict[str, Any]]]

    def write(self, out: Path) -> None:
        """Writes results.json, the tables as CSV, and report.html into a folder."""
        from raisf.reports.page import write_page
        from raisf.utils.files import write_json

        write_json(out / RESULTS, self.results)
        for section in self.sections.values():
            section.write(out)
        write_page(out / PAGE, self.title, self.facts, list(self.sections.values()))


def report_of(
    title: str,
    facts: dict[str, Any],
    records: Mapping[str, Mapping[str, dict[str, Any]]],
    judged: Mapping[str, dict[str, Any]],
    compiled: Mapping[str, dict[str, Any] | None],
) -> ComparisonReport:
    """The report of a comparison.

    Args:
        title: The page's.
        facts: What was compared on what, for the page.
        records: By label and question id, what each program answered.
        judged: By label and judge, the judge's report alone against gold.
        compiled: By label, a program's `compile_report`, if it was compiled.
    """
    from raisf.evaluation.comparison import compare_records
    from raisf.reports import plots

    comparison = compare_records(records)
    made = [
        *answer_sections(comparison),
        route_section(comparison),
        *judge_sections(judged),
        *pair_sections(comparison.pairs),
        _compiled(compiled),
    ]
    sections = {section.name: section for section in made if section.rows}
    sections["cost"].draw(plots.accuracy_against_cost(comparison.reports))
    sections["routes"].draw(plots.route_shares(comparison.reports, ROUTES))
    if "judge-relevance" in sections:
        sections["judge-relevance"].draw(*plots.reliability(judged, plots.colours(comparison.reports)))
    if "cost-of-compiling" in sections:
        sections["cost-of-compiling"].draw(*plots.learning_curves(compiled))
    results = {
        "facts": facts,
        "programs": {name: report.as_dict() for name, report in comparison.reports.items()},
        "pairs": [pair.as_dict() for pair in comparison.pairs],
        "judges": dict(judged),
        "compiled": {name: report for name, report in compiled.items() if report},
    }
    return ComparisonReport(title, facts, results, sections, records)


def check_folder(out: Path, parts: Collection[str] = ("records", "judges", "made")) -> None:
    """Refuses a folder that holds other things than a report: its tables, and the folders that `parts` names.

    Raises:
        InputError: It does.
    """
    if out.is_dir():
        strangers = [
            file.name
            for file in out.iterdir()
            if file.suffix not in (".csv", ".json", ".html", ".svg") and file.name not in parts
        ]
        if strangers:
            raise InputError(f"{out} holds other things ({', '.join(sorted(strangers)[:3])}): give a new folder")
    elif out.exists():
        raise InputError(f"{out} is a file: give a folder for the report")
    out.mkdir(parents=True, exist_ok=True)


def answer_sections(comparison: "Comparison") -> list[Section]:
    """Scores, cost, and exact match by kind of question; a program a row."""
    return [_answers(comparison), _costs(comparison), _kinds(comparison)]


def _answers(comparison: "Comparison") -> Section:
    rows = [[name, one.em, one.f1, one.accuracy, one.recall, one.errors] for name, one in comparison.reports.items()]
    n = next(iter(comparison.reports.values())).em.n
    text = (
        f"n = {n} questions; percent, with 95% bootstrap intervals. recall: of gold among the passages first retrieved."
    )
    return Section(
        "Answers", ["program", "exact match", "F1", "accuracy", "recall", "errors"], [*map(list, rows)], text
    )


def _costs(comparison: "Comparison") -> Section:
    rows = [[name, *(float(report.cost.get(cost, 0)) for cost in COSTS)] for name, report in comparison.reports.items()]
    return Section("Cost", ["program", *COSTS.values()], [*map(list, rows)], "Mean per question.")


def _kinds(comparison: "Comparison") -> Section:
    kinds = sorted({kind for report in comparison.reports.values() for kind in report.kinds})
    rows = [[name, *(report.kinds.get(kind) for kind in kinds)] for name, report in comparison.reports.items()]
    counts = next(iter(comparison.reports.values())).kinds
    columns = ["program", *(f"{kind} (n={counts[kind].n})" for kind in kinds)]
    return Section("Exact match by kind of question", columns, [*map(list, rows)] if kinds else [], main=None)


def route_section(comparison: "Comparison") -> Section:
    """What each route settles, and how much of that is right."""
    rows = []
    for name, report in comparison.reports.items():
        routes = [report.routes.get(route) for route in ROUTES]
        rest = 1 - sum(route.share for route in routes if route)
        cells = [f"{route.share:.1%} ({route.correct:.1%})" if route else None for route in routes]
        rows.append([name, *cells, f"{max(0.0, rest):.1%}"])
    text = "The share of the questions that each route settles, and in brackets how many of these are right."
    return Section("Routes", ["program", *ROUTES, "no answer"], rows, text)


def judge_sections(judged: Mapping[str, dict[str, Any]]) -> list[Section]:
    """A section a judge: each program's, asked alone, against gold."""
    measures = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "auroc": "AUROC", "ece": "ECE"}
    lists = {"exact_match": "exact match", "right_number": "right number", "token_f1": "token F1"}
    asked = {
        "know": "Asked alone about the questions and their gold sub-questions.",
        "relevance": "Asked alone about the passages retrieved for them.",
        "decomposition": "Its sub-questions against gold, up to wording.",
    }
    sections = []
    for judge, text in asked.items():
        names = lists if judge == "decomposition" else measures
        failed = any(reports[judge]["errors"] for reports in judged.values() if judge in reports)
        rows = []
        for name, reports in judged.items():
            if judge in reports:
                scores = {measure: score_of(value) for measure, value in reports[judge]["scores"].items()}
                first = next(iter(scores.values()))
                errors = [reports[judge]["errors"]] if failed else []
                rows.append([name, *(scores.get(measure) for measure in names), first.n, *errors])
        columns = ["program", *names.values(), "n", *(["errors"] if failed else [])]
        sections.append(Section(f"Judge: {judge}", columns, rows, text))
    return sections


def pair_sections(pairs: "Sequence[Pair]") -> list[Section]:
    """The differences of pairs of programs in exact match, and in F1."""
    names = [f"{pair.first} - {pair.second}" for pair in pairs]
    em: list[list[Cell]] = [
        [name, pair.em, pair.won, pair.lost, _p(pair.p_em), _p(pair.p_em_holm)]
        for name, pair in zip(names, pairs, strict=True)
    ]
    f1: list[list[Cell]] = [[name, pair.f1, _p(pair.p_f1)] for name, pair in zip(names, pairs, strict=True)]
    text = (
        "On the same questions; won and lost count those that only one has right. p: McNemar's exact test, "
        "Holm: the same, corrected for all pairs."
    )
    return [
        Section("Differences in exact match", ["pair", "difference", "won", "lost", "p", "Holm"], em, text),
        Section("Differences in F1", ["pair", "difference", "p"], f1, "p: approximate randomisation."),
    ]


def _compiled(compiled: Mapping[str, dict[str, Any] | None]) -> Section:
    rows = [
        [name, report["how"], report.get("strategy") or "-", report["lm_calls"], float(report["seconds"])]
        for name, report in compiled.items()
        if report
    ]
    return Section("Cost of compiling", ["program", "how", "strategy", "LM calls", "seconds"], [*map(list, rows)])


def _p(value: float) -> str:
    return "<0.001" if value < 1e-3 else f"{value:.3f}"
