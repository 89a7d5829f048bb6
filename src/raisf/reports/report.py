"""The report of a comparison: its tables, and the files and the page that they go into."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.evaluation.intervals import caution
from raisf.evaluation.readability import counts
from raisf.evaluation.report import FAILED, UNCOUNTED, UNTOLD, waited
from raisf.evaluation.risk import COVERAGES
from raisf.evaluation.seen import seen_lines
from raisf.reports.examples import Example, wins_and_losses
from raisf.reports.headline import headline
from raisf.reports.sections import RESULTS, Cell, PValue, Section, Share, read_results, score_of, write_sections
from raisf.utils.errors import InputError
from raisf.utils.files import LOCK, check_writable
from raisf.utils.leftovers import strangers

if TYPE_CHECKING:
    from raisf.evaluation.comparison import Comparison, Pair
    from raisf.evaluation.report import Report

ROUTES = ("direct", "passages", "decomposed")
ACTED = "acted"
"""The route of ReAct, beside these where it is among the programs."""
# The means a question that the tables show, and their headings.
COSTS = {
    "lm_calls": "LM calls",
    "prompt_tokens": "tokens read",
    "completion_tokens": "tokens written",
    "retrievals": "retrievals",
    "discarded_retrievals": "discarded",
    "seconds": "seconds",
}
PAGE = "report.html"


@dataclass(frozen=True)
class ComparisonReport:
    """Programs on the same questions.

    Attributes:
        title: The page's.
        facts: What was compared on what, for the page.
        results: What results.json holds: scores, pairs, judges and what compiling took, as JSON values.
        sections: The tables and figures by name, in order.
        records: By label and question id, what each program answered.
        headline: The result in a sentence.
        examples: Questions that only one of the two best programs has right, with their trees.
    """

    title: str
    facts: dict[str, Any]
    results: dict[str, Any]
    sections: dict[str, Section]
    records: Mapping[str, Mapping[str, dict[str, Any]]]
    headline: str = ""
    examples: Sequence[Example] = ()

    def write(self, out: Path) -> None:
        """Writes results.json, the tables as CSV, and report.html into a folder."""
        from raisf.reports.page import write_page
        from raisf.utils.files import write_json

        sections = list(self.sections.values())
        files = write_sections(sections, out)
        write_json(out / RESULTS, {**self.results, "files": files})
        write_page(out / PAGE, self.title, self.facts, sections, self.headline, self.examples)


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
        records: By label and question id, what each program answered, as `each_once` takes it.
        judged: By label and judge, the judge's report alone against gold.
        compiled: By label, a program's `compile_report`, if it was compiled.
    """
    from raisf.evaluation.comparison import Comparison, compare_records, each_once
    from raisf.evaluation.report import summaries
    from raisf.reports import plots

    once = each_once(records)  # one under two labels would be its own next best, and tested twice
    tested = compare_records(once)
    comparison = Comparison(summaries(records), tested.pairs)
    made = [
        *answer_sections(comparison),
        route_section(comparison),
        *judge_sections(judged),
        *pair_sections(comparison.pairs),
        _compiled(compiled),
    ]
    sections = {section.name: section for section in made if section.rows}
    sections["answers"].draw(plots.exact_match(comparison.reports))
    sections["cost"].draw(*plots.accuracy_against_cost(comparison.reports))
    if "routes" in sections:
        routed = with_routes(comparison.reports)
        sections["routes"].draw(plots.route_shares(routed, settling(routed)))
    if judges := [section for name, section in sections.items() if name.startswith("judge-")]:
        judges[0].draw(*plots.reliability_curves(judged, plots.colours(comparison.reports)))
    if "cost-of-compiling" in sections:
        sections["cost-of-compiling"].draw(*plots.learning_curves(compiled))
    results = {
        "facts": facts,
        "programs": {name: report.as_dict() for name, report in comparison.reports.items()},
        "pairs": [pair.as_dict() for pair in comparison.pairs],
        "judges": dict(judged),
        "compiled": {name: report for name, report in compiled.items() if report},
    }
    return ComparisonReport(title, facts, results, sections, records, headline(tested), wins_and_losses(tested, once))


def check_folder(out: Path, parts: Collection[str] = ("records", "judges", "made")) -> None:
    """Refuses a folder that holds other things than a report: its tables, and the folders that `parts` names.

    A Markdown page among them is no stranger: it may be one that was asked for, and nothing writes over another.

    Raises:
        InputError: It does.
    """
    if out.is_dir():
        files = strangers(out, LOCK, *parts)
        others = strangers(out, LOCK, *parts, "*.csv", "*.json", "*.html", "*.svg", "*.md")
        if others or (files and not _is_report(out, parts)):
            told = ", ".join((others or files)[:3])
            raise InputError(f"{out} holds other things ({told}): give a new folder")
    elif out.exists():
        raise InputError(f"{out} is a file: give a folder for the report")
    check_writable(out)
    out.mkdir(parents=True, exist_ok=True)


def _is_report(out: Path, parts: Collection[str]) -> bool:
    """Whether a folder of tables is a report's, by its results, those of its parts, or the answers that it keeps."""
    return any(map(read_results, (out, *(out / part for part in parts)))) or any((out / "records").glob("*.meta.json"))


def answer_sections(comparison: "Comparison") -> list[Section]:
    """Scores, cost, exact match by kind of question and of the surest answers; a program a row."""
    return [_answers(comparison), cost_section(comparison.reports), _kinds(comparison), _risks(comparison)]


def _answers(comparison: "Comparison") -> Section:
    unreadable = any(one.unreadable for one in comparison.reports.values())
    rows: list[list[Cell]] = []
    for name, one in comparison.reports.items():
        unread = [f"{one.unreadable} of {one.outputs}"] * unreadable
        rows.append([name, one.em, one.f1, one.accuracy, one.recall, *unread, one.errors])
    n = next(iter(comparison.reports.values())).em.n
    text = (
        f"n = {n} questions; percent, with 95% intervals: Wilson's for exact match and accuracy, else bootstrap. "
        f"recall: of gold among the passages at hand to answer the question itself{_searched(comparison.reports)}."
    )
    if unreadable:
        text += " unreadable: of the LM's outputs; an answer among them counts as wrong."
    if few := caution(n):
        text += f" {few}."
    columns = ["program", "exact match", "F1", "accuracy", "recall", *["unreadable"] * unreadable, "errors"]
    return Section("Answers", columns, rows, text)


def _searched(reports: "Mapping[str, Report]") -> str:
    """Over how many questions each program's recall is, where these differ: one that knows searches for fewer."""
    counts = {name: one.recall.n for name, one in reports.items() if one.recall is not None}
    if len(set(counts.values())) < 2:
        return ""
    told = ", ".join(f"{name} {n}" for name, n in counts.items())
    return f", over the questions with gold that each searched for ({told})"


def _risks(comparison: "Comparison") -> Section:
    known = {name: report.risk for name, report in comparison.reports.items() if report.risk is not None}
    shares = [f"the surest {coverage:.0%}" for coverage in COVERAGES]
    rows: list[list[Cell]] = [
        [name, risk.aurc, *(Share(risk.right[coverage]) for coverage in COVERAGES)] for name, risk in known.items()
    ]
    text = "Exact match of the surest answers. AURC: the area under the share wrong over coverage, lower is better."
    return Section("Risk and coverage", ["program", "AURC", *shares], rows, text)


def output_counts(
    records: Mapping[str, Mapping[str, dict[str, Any]]], judged: Mapping[str, dict[str, Any]]
) -> dict[str, tuple[int, int]]:
    """By program, and by judge of a program, how many LM outputs could not be read, and how many there were."""
    found = {name: counts(of.values()) for name, of in records.items()}
    for name, reports in judged.items():
        for judge, report in reports.items():
            if "rows" in report:
                found[f"the {judge} judge of {name}"] = (report["unreadable"], report["rows"])
    return found


def cost_section(reports: "Mapping[str, Report]") -> Section:
    """What each program costs a question."""
    rows: list[list[Cell]] = [[name, *map(report.told, COSTS)] for name, report in reports.items()]
    text = "Mean per question. discarded: retrievals that ran beside a self-knowledge judge which then said know."
    text += f" seconds: {waited(reports.values())}.{uncounted_line(reports)}"
    if any("lm_calls" in report.cost and "retrievals" not in report.cost for report in reports.values()):
        text += " A module of one's own is counted by its LM calls: what it retrieves is not told."
    return Section("Cost", ["program", *COSTS.values()], rows, text)


def uncounted_line(reports: "Mapping[str, Report]") -> str:
    """For a table's text: what its costs leave out, such as the tokens of calls that told none; empty for nothing."""
    missing = {name: report.cost for name, report in reports.items() if report.cost.get("unmetered_calls")}
    told = [f"{name} {cost['unmetered_calls']:.2f} of {cost['lm_calls']:.2f}" for name, cost in missing.items()]
    untold = f" Calls that told no tokens, and count for none: {'; '.join(told)}." if told else ""
    return untold + f" {UNCOUNTED}" * any(report.errors for report in reports.values())


def _kinds(comparison: "Comparison") -> Section:
    kinds = sorted({kind for report in comparison.reports.values() for kind in report.kinds})
    rows = [[name, *(report.kinds.get(kind) for kind in kinds)] for name, report in comparison.reports.items()]
    counts = next(iter(comparison.reports.values())).kinds
    columns = ["program", *(f"{kind} (n={counts[kind].n})" for kind in kinds)]
    return Section("Exact match by kind of question", columns, [*map(list, rows)] if kinds else [], main=None)


def route_section(comparison: "Comparison") -> Section:
    """What each route settles, and how much of that is right."""
    rows, routed = [], with_routes(comparison.reports)
    names = settling(routed)
    for name, report in routed.items():
        routes = [report.routes.get(route) for route in names]
        rest = 1 - sum(route.share for route in routes if route)
        cells = [f"{route.share:.1%} ({route.correct:.1%})" if route else "0.0%" for route in routes]
        right = sum(route.share * route.correct for of, route in report.routes.items() if of not in names)
        rows.append([name, *cells, f"{max(0.0, rest):.1%}" + (f" ({right / rest:.1%})" if right else "")])
    text = (
        "The share of the questions that each route settles, and in brackets how many of these are right. An answer "
        '"unknown" counts to the route that gave it; no answer: no route gave any.'
    )
    return Section("Routes", ["program", *names, "no answer"], rows, text)


def settling(reports: "Mapping[str, Report]") -> tuple[str, ...]:
    """The routes by which these programs come to answers."""
    return (*ROUTES, *[ACTED] * any(ACTED in report.routes for report in reports.values()))


def with_routes(reports: "Mapping[str, Report]") -> "dict[str, Report]":
    """Those of the programs that tell routes: ours, and not what answers without a trace."""
    return {name: report for name, report in reports.items() if report.routes.keys() - {UNTOLD, FAILED}}


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
        found = {name: reports[judge] for name, reports in judged.items() if judge in reports}
        missing, left_out_line = left_out_of(found.values())
        rows = []
        for name, report in found.items():
            scores = {measure: score_of(value) for measure, value in report["scores"].items()}
            n = next(iter(scores.values())).n if scores else 0
            left_out = [report.get(count, 0) for count in missing]
            rows.append([name, *(scores.get(measure) for measure in names), n, *left_out])
        seen = seen_lines({name: report.get("not_held_out", ()) for name, report in found.items()})
        text = " ".join([f"{text}{left_out_line}{_with_probability(found)}", *seen])
        sections.append(Section(f"Judge: {judge}", ["program", *names.values(), "n", *missing], rows, text))
    return sections


def left_out_of(reports: Collection[Mapping[str, Any]]) -> tuple[list[str], str]:
    """What the measures of judges leave out, where there is any: the columns that count it, and what a text says."""
    missing = [count for count in ("unreadable", "errors") if any(one.get(count) for one in reports)]
    told = " Verdicts that could not be read are counted beside n, and are in no measure."
    return missing, told * ("unreadable" in missing)


def _with_probability(found: Mapping[str, dict[str, Any]]) -> str:
    """Over how many of its verdicts a judge's AUROC and ECE are, where its LM gave some of them no probability."""
    scores = {name: report["scores"] for name, report in found.items() if "ece" in report["scores"]}
    told = [f"{name} {of['ece']['n']}" for name, of in scores.items() if of["ece"]["n"] < of["accuracy"]["n"]]
    return f" AUROC and ECE are over the verdicts with a probability ({', '.join(told)})." if told else ""


def pair_sections(pairs: "Sequence[Pair]") -> list[Section]:
    """The differences of pairs of programs in exact match, and in F1."""
    names = [f"{pair.first} - {pair.second}" for pair in pairs]
    em: list[list[Cell]] = [
        [name, pair.em, pair.won, pair.lost, PValue(pair.p_em), PValue(pair.p_em_holm)]
        for name, pair in zip(names, pairs, strict=True)
    ]
    f1: list[list[Cell]] = [
        [name, pair.f1, PValue(pair.p_f1), PValue(pair.p_f1_holm)] for name, pair in zip(names, pairs, strict=True)
    ]
    text = (
        "On the same questions; won and lost count those that only one has right. p: McNemar's exact test, "
        "Holm: the same, corrected for all pairs."
    )
    text_f1 = "p: approximate randomisation, Holm: the same, corrected for all pairs."
    return [
        Section("Differences in exact match", ["pair", "difference", "won", "lost", "p", "Holm"], em, text),
        Section("Differences in F1", ["pair", "difference", "p", "Holm"], f1, text_f1),
    ]


def _compiled(compiled: Mapping[str, dict[str, Any] | None]) -> Section:
    # What was only calibrated does not say how it was compiled, and what ships not what that took.
    rows: list[list[Cell]] = [
        [name, report.get("how"), report.get("strategy"), report.get("lm_calls"), _float(report.get("seconds"))]
        for name, report in compiled.items()
        if report
    ]
    text = last_go_line({name: report for name, report in compiled.items() if report})
    return Section("Cost of compiling", ["program", "how", "strategy", "LM calls", "seconds"], rows, text)


def last_go_line(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """For a table's text: which rows' calls and seconds, by their reports, are of less than all of the compiling."""
    went_on = [label for label, report in reports.items() if report.get("resumed")]
    told = "An earlier run had made a part of it, and only the rest is counted"
    return f"{told}: {'; '.join(went_on)}." if went_on else ""


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)
