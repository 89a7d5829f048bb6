"""The tables and figures of the papers' experiments, made of answers by label, with the papers' figures beside ours."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raisf.evaluation import RecordsById
from raisf.evaluation.comparison import Comparison, compare_records
from raisf.evaluation.intervals import Score
from raisf.evaluation.report import UNCOUNTED, Report, summaries
from raisf.experiments import published_results as published
from raisf.experiments.settings import Setting
from raisf.reports import plots
from raisf.reports.report import (
    ROUTES,
    answer_sections,
    cost_section,
    judge_sections,
    pair_sections,
    route_section,
    with_routes,
)
from raisf.reports.sections import Cell, Section
from raisf.utils.errors import InputError, RaisfError

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace

Answers = Mapping[str, RecordsById]
# What is compared with all others, as far as it could be run.
BEST = ("ra-isf, weights", "ra-isf, prompts", "ra-isf, zero-shot", "RA-ISF")


def table(
    *figures: published.Figures,
    names: tuple[str, ...] = ("paper",),
    f1: published.Figures | None = None,
    besides: bool = False,
    demonstrated: bool = False,
    whose: str = "",
    engine: str | None = None,
) -> "Callable[[Workspace, Answers], list[Section]]":
    """Scores and cost of each row, and the paper's own figures beside them.

    Args:
        *figures: Tables of the paper, by the rows' labels.
        names: What each is called.
        f1: The paper's F1.
        besides: The paper's rows are no rows of ours: they stand below them.
        demonstrated: Whether the paper's prompts had demonstrations in all of its rows: three, as BlendFilter's.
        whose: Which LM answered in the paper, over which retriever; empty where `names` say it.
        engine: The one of ours that is the paper's retriever, where rows search what the workspace says; None: no
            matter.
    """

    def sections(workspace: "Workspace", answers: Answers) -> list[Section]:
        yes_no = workspace.measure == "accuracy"
        reports = summaries(answers)
        unread = any(report.unreadable for report in reports.values())
        beside = [*figures, *([f1] if f1 and not yes_no else [])]
        rows: list[list[Cell]] = []
        for label, report in reports.items():
            rows.append([label, report.em, *([] if yes_no else [report.f1]), report.cost.get("lm_calls")])
            rows[-1] += [f"{report.unreadable} of {report.outputs}"] if unread else []
            rows[-1] += [published.figure_of(one, label, workspace.name, demonstrated=demonstrated) for one in beside]
        # What the paper has of rows that stand below ours, or that could not be run.
        empty: list[Cell] = [None] * (len(rows[0]) - 1 - len(beside))
        for label in figures[0] if besides else workspace.left_out:
            theirs = [published.figure_of(one, label, workspace.name, demonstrated=demonstrated) for one in beside]
            if besides or any(one is not None for one in theirs):
                rows.append([label, *empty, *theirs])
        columns = ["program", "exact match", *([] if yes_no else ["F1"]), "LM calls", *["unreadable"] * unread]
        columns += [f"{name}*, %" for name in names[: len(figures)]]
        columns += ["paper's F1*, %"] if f1 and not yes_no else []
        return [Section("", columns, rows, text_below(workspace, reports, beside))]

    def text_below(workspace: "Workspace", reports: Mapping[str, Report], beside: Sequence[published.Figures]) -> str:
        text = f"n = {len(workspace.test)}."
        if figures:
            text += f" *the paper's own figure{f' ({whose})' * bool(whose)}, "
            shares = [published.shown_for(one, workspace.name) for one in beside]
            text += f"{shares[0]}{f'; of F1, {shares[-1]}' * (shares[-1] != shares[0])}."
        if engine and (searched := workspace.indexes.searched) != engine:
            text += f" Ours search with another retriever{f', {searched}' * bool(searched)}."
        if demonstrated:
            text += " All of its rows were prompted with three demonstrations"
            few = any(label.endswith(published.FEW_SHOT) for label in reports)
            text += ": hold them against our few-shot rows. Our others show none." if few else "; ours show none."
        if any(report.unreadable for report in reports.values()):
            text += " unreadable: of the LM's outputs; an answer among them counts as wrong."
        failed = error_line(reports)
        return joined(text, failed, UNCOUNTED * bool(failed))

    return sections


def error_line(reports: Mapping[str, Report]) -> str:
    """For a table's text: which rows have questions that ended in an error; empty where none has."""
    failed = [f"{label} {report.errors}" for label, report in reports.items() if report.errors]
    return f"Questions that ended in an error, and count as wrong: {'; '.join(failed)}." if failed else ""


def fault_lines(reports: Mapping[str, Report]) -> str:
    """The same, and which rows have outputs that could not be read, for a table that has no column of these."""
    found = [
        f"{label} {report.unreadable} of {report.outputs}" for label, report in reports.items() if report.unreadable
    ]
    unread = "Outputs of the LM that could not be read, an answer among which counts as wrong: "
    return joined(f"{unread}{'; '.join(found)}." if found else "", error_line(reports))


def joined(*texts: str) -> str:
    """A text of those that are not empty."""
    return " ".join(part for text in texts for part in text.split(" ") if part)


def main(workspace: "Workspace", answers: Answers) -> list[Section]:
    """Table 1: the systems; what RA-ISF gains over each; by kind of question; and what it costs."""
    made = table(*published.TABLE_1.values(), names=tuple(published.TABLE_1))
    (first,) = made(workspace, answers)
    comparison = compare_records(answers, _best(answers))
    first.draw(*plots.accuracy_against_cost(comparison.reports, workspace.measure))
    _, cost, kinds, _ = answer_sections(comparison)
    return [first, pair_sections(comparison.pairs)[0], kinds, cost]


def ablations(workspace: "Workspace", answers: Answers) -> list[Section]:
    """Table 2, and each row's difference from the whole.

    Raises:
        InputError: RA-ISF was to be asked, and cannot be run.
    """
    ours = published.TABLE_2.keys() - published.TABLE_1["GPT-3.5"].keys()
    if not ours & answers.keys() and (lost := sorted(ours & workspace.left_out.keys())):
        raise InputError(f"nothing of RA-ISF can be run: {lost[0]}: {workspace.left_out[lost[0]]}")
    (first,) = table(published.TABLE_2, whose="GPT-3.5")(workspace, answers)
    return [first, pair_sections(compare_records(answers, _best(answers)).pairs)[0]]


def check_kinds(workspace: "Workspace") -> None:
    """Tells of questions that are all of one kind, where kinds are compared."""
    if len(kinds := {example.kind for example in workspace.test}) < 2:
        raise InputError(
            f"it compares kinds of question, and all {len(workspace.test)} test questions are of the kind "
            f"{kinds.pop()!r}: give them a `kind` each, raise --n, or leave it out"
        )


def sweep(axis: str, by_kind: bool = False) -> "Callable[[Workspace, Answers], list[Section]]":
    """A curve over a number, a line a program (or a kind of question).

    A label ends in the number; a program whose label has none is the same at all of them, also where it is alone.
    """

    def sections(workspace: "Workspace", answers: Answers) -> list[Section]:
        lines: dict[str, dict[float, Score]] = {}
        level: dict[str, Score] = {}
        reports = summaries(answers)
        for label, report in reports.items():
            name, number = _numbered(label)
            if number is None:
                level[label] = report.em
                continue
            kinds = {f"{kind} (n={score.n})": score for kind, score in report.kinds.items()}
            for line, score in (kinds if by_kind else {name: report.em}).items():
                lines.setdefault(line, {})[number] = score
        numbers = sorted({number for line in lines.values() for number in line})
        text = joined(f"n = {len(workspace.test)}{' over all kinds' * by_kind}.", fault_lines(reports))
        if not numbers:
            return [Section("", ["exact match", f"any {axis}"], [[*one] for one in level.items()], text)]
        lines |= {label: dict.fromkeys(numbers, score) for label, score in level.items()}
        columns = ["exact match", *(f"{axis} {number:g}" for number in numbers)]
        rows: list[list[Cell]] = [[name, *(line.get(number) for number in numbers)] for name, line in lines.items()]
        section = Section("", columns, rows, text, main=None)
        section.draw(plots.curves(lines, axis, f"{workspace.measure}, percent"))
        return [section]

    return sections


def depths(workspace: "Workspace", answers: Answers) -> list[Section]:
    """Figure 2: the answers over the depth, and what each depth costs."""
    (curve,) = sweep("max_depth")(workspace, answers)
    return [curve, cost_section(summaries(answers))]


def effort(workspace: "Workspace", answers: Answers) -> list[Section]:
    """Table 4: retrievals and sub-questions a question, over all and by kind."""
    rows: list[list[Cell]] = []
    for label, records in answers.items():
        kinds = sorted({record["kind"] for record in records.values() if record["kind"]})
        for kind in ("all", *(kinds if len(kinds) > 1 else ())):
            of = [one for one in records.values() if kind in ("all", one["kind"]) and one["trace"]]
            if not of:
                continue
            searched, discarded = (
                sum(record["cost"].get(name, 0) for record in of) / len(of)
                for name in ("retrievals", "discarded_retrievals")
            )
            asked = sum(_questions(record["trace"]["root"]) for record in of) / len(of)
            rows.append([label if kind == "all" else f"{label}: {kind}", searched, asked, discarded, len(of)])
    for lm, figures in published.TABLE_4.items():
        theirs = [published.figure_of(figures, name, workspace.name) for name in ("retrievals", "questions")]
        if any(one is not None for one in theirs):
            rows.append([f"the paper's, {lm}", *theirs, None, None])
    text = (
        "Mean per question answered. Questions: itself and all sub-questions below it, as the paper seems to count. "
        "Discarded: retrievals that ran beside a self-knowledge judge which then said know, and are not among the "
        f"retrievals. The paper's figures, {published.shown_for(published.TABLE_4['GPT-3.5'], workspace.name)}."
        " It does not say over which questions they are means."
    )
    return [Section("", ["program", "retrievals", "questions", "discarded", "n"], rows, text)]


def routes(workspace: "Workspace", answers: Answers) -> list[Section]:
    """Table 7: what each module settles, and how much of that is right."""
    comparison = Comparison(summaries(answers), [])
    section = route_section(comparison)
    section.text = joined(section.text, fault_lines(comparison.reports))
    theirs: list[Cell] = [_settled(column, workspace.name) for column in section.columns[1:]]
    if any(theirs):
        section.rows.append(["the paper's, GPT-3.5", *theirs])
        told = published.shown_for(published.TABLE_7, workspace.name)
        section.text += f" The paper's, {told}: the share that is right is worked out from its Tables 6 and 7."
    section.draw(plots.route_shares(with_routes(comparison.reports), ROUTES))
    return [section]


def reliability(_: "Workspace", judged: Mapping[str, dict[str, Any]]) -> list[Section]:
    """Table 5: each judge alone against gold."""
    sections = judge_sections(judged)
    first, theirs = sections[0], {judge: _agreement(judge) for judge in published.TABLE_5}
    for section in sections:
        section.text += f" The paper's agreement: {theirs[section.title.removeprefix('Judge: ')]}."
    asked = {judge for reports in judged.values() for judge in reports}
    if missing := [f"{judge} (the paper's agreement: {told})" for judge, told in theirs.items() if judge not in asked]:
        first.text += f" Judges without a table, as the test questions have no gold for them: {'; '.join(missing)}."
    first.draw(*plots.reliability_curves(judged, plots.colours(judged)))
    return sections


def judged_beside(workspace: "Workspace", settings: Mapping[str, Setting]) -> dict[str, dict[str, Any]]:
    """Each judge's report alone, beside answers, which stay where judges cannot be asked: `left_out` says why."""
    before, workspace.left_out = workspace.left_out, {}
    try:
        judged = workspace.judge(settings)
    except RaisfError:
        if not workspace.left_out:
            raise
        judged = {}
    finally:
        alone = {f"{label}: its judges alone": why for label, why in workspace.left_out.items()}
        workspace.left_out = before | alone
    return judged


def _agreement(judge: str) -> str:
    return ", ".join(f"{who} {value}" for who, value in published.TABLE_5[judge].items())


def _best(answers: Answers) -> str:
    return next((name for name in BEST if name in answers), next(iter(answers)))


def _numbered(label: str) -> tuple[str, float | None]:
    """`program, axis NUMBER` as the program and the number; a label without one as it is."""
    name, _, last = label.rpartition(" ")
    try:
        return name.rpartition(",")[0], float(last)
    except ValueError:
        return label, None


def _settled(route: str, data: str | None) -> str | None:
    """What the paper's Table 7 has of a route, as our table of routes writes it."""
    share, right = (published.figure_of(of, route, data) for of in (published.TABLE_7, published.TABLE_7_RIGHT))
    if share is None or right is None:
        return None if share is None else f"{share}%"
    return f"{share}% ({right}%)" if isinstance(right, float) else f"{share}%, right {right}"


def _questions(node: dict[str, Any]) -> int:
    """The questions of a tree, its root among them."""
    return 1 + sum(_questions(sub) for sub in node["sub_questions"])
