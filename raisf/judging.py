"""`raisf eval --module`: one judge alone against gold; and what a calibration did, for a person to read."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from data.errors import InputError
from raisf.outcome import Outcome

if TYPE_CHECKING:
    from evaluation.judges import JudgeReport

NO_PROBABILITIES = "no AUROC and no ECE: the judge gives verdicts without probabilities"


def evaluate_module(arguments: argparse.Namespace, program: Any) -> Outcome:
    """Measures a judge of the program on the questions of --test.

    Raises:
        InputError: --train for another judge than know, or what the room `optimize` complains of.
    """
    from data.questions import load_questions

    if arguments.train is not None and arguments.module != "know":
        raise InputError("--train fits the baseline of --module know: leave it out")
    examples = load_questions(arguments.test)[: arguments.limit]
    measure = _decomposition if arguments.module == "decomposition" else _verdicts
    return measure(arguments, program, examples)


def _verdicts(arguments: argparse.Namespace, program: Any, examples: list[Any]) -> Outcome:
    from optimize.judgements import collect
    from optimize.reliability import POSITIVE

    judged = collect(program, arguments.module, examples, labels=arguments.labels, threads=arguments.threads)
    report, notes = judged.report(), []
    threshold = getattr(program, f"{arguments.module}_threshold", 0.5) if judged.scored else None
    found: dict[str, Any] = {
        "rows": len(judged.rows),
        "positive": sum(row.gold for row in judged.rows),
        "unreadable": sum(not row.readable for row in judged.rows),
        "errors": judged.errors,
    }
    columns: dict[str, tuple[float | None, JudgeReport]] = {"judge": (threshold, report)}
    if not judged.scored:
        notes.append(NO_PROBABILITIES)
    if arguments.module == "know":
        columns |= _baselines(arguments, program, judged.rows, notes)
    _write_rows(arguments.out, judged.rows)
    data = {"threshold": threshold, **report.as_dict()}
    others = {name: {"threshold": at, **other.as_dict()} for name, (at, other) in list(columns.items())[1:]}
    positive = POSITIVE[arguments.module]
    title = f"the {arguments.module} judge of {arguments.program} on {arguments.test}: "
    title += f"{found['positive']} of {found['rows']} {positive}"
    view: list[RenderableType] = [Text(title), _table(columns)]
    if report.bins:
        view.append(_reliability(report.bins, positive))
    return _outcome(arguments, found, {"judge": data, "baselines": others}, view, notes)


def _baselines(arguments: argparse.Namespace, program: Any, rows: list[Any], notes: list[str]) -> dict[str, Any]:
    """By the baseline's name, its threshold and report; none, and a note, where the LM gives no log-probabilities."""
    from data.questions import load_questions
    from optimize.confidence import KINDS, baselines

    train = load_questions(arguments.train) if arguments.train else None
    questions, gold = [row.question for row in rows], [row.gold for row in rows]
    try:
        made = baselines(program, questions, gold, train, labels=arguments.labels, threads=arguments.threads)
    except InputError as error:
        if train is not None:
            raise
        notes.append(f"no baseline beside the judge: {error}")
        return {}
    if train is None:
        notes.append("the baselines' thresholds are fitted where --train FILE is given")
    else:
        fitted = next(iter(made.values())).fitted_on
        notes.append(f"the baselines' thresholds were fitted on {fitted} questions of {arguments.train}")
    notes.append(f"baselines: a threshold on the log-probability of the LM's own answer, {', '.join(KINDS.values())}")
    return {f"baseline, {kind}": (baseline.threshold, baseline.report) for kind, baseline in made.items()}


def _decomposition(arguments: argparse.Namespace, program: Any, examples: list[Any]) -> Outcome:
    from optimize.judgements import collect_decompositions, decomposition_report

    rows, errors = collect_decompositions(program, examples, threads=arguments.threads)
    report = decomposition_report(rows)
    _write_rows(arguments.out, rows)
    found = {"rows": len(rows), "unreadable": sum(not row.readable for row in rows), "errors": errors}
    title = f"the decomposition judge of {arguments.program} on {arguments.test}: {len(rows)} questions"
    return _outcome(arguments, found, {"judge": report.as_dict()}, [Text(title), _table({"judge": (None, report)})], [])


def _outcome(
    arguments: argparse.Namespace,
    found: dict[str, int],
    measured: dict[str, Any],
    view: list[RenderableType],
    notes: list[str],
) -> Outcome:
    counts = [f"{found[name]} {name}" for name in ("unreadable", "errors") if found[name]]
    lines = [Text(line, style="dim") for line in [*notes, *counts]]
    if arguments.out:
        lines.append(Text(f"rows: {arguments.out}"))
    named = {"module": arguments.module, "program": arguments.program, "test": str(arguments.test)}
    out = {"out": str(arguments.out)} if arguments.out else {}
    return Outcome({**named, **out, **found, **measured, "notes": notes}, Group(*view, *lines))


def _table(columns: "dict[str, tuple[float | None, JudgeReport]]") -> Table:
    table = Table("", *columns)
    names = dict.fromkeys(name for _, report in columns.values() for name in report.scores)
    for name in names:
        shown = name.upper() if name in ("auroc", "ece", "f1") else name.replace("_", " ")
        cells = [str(report.scores[name]) if name in report.scores else "-" for _, report in columns.values()]
        table.add_row(shown, *cells)
    if any(threshold is not None for threshold, _ in columns.values()):
        table.add_section()
        table.add_row("threshold", *("-" if at is None else f"{at:.4g}" for at, _ in columns.values()))
    return table


def _reliability(bins: list[Any], positive: str) -> Table:
    table = Table("probability", "n", "mean", positive, "", title="reliability", title_justify="left")
    for one in bins:
        if one.n:
            bar = Text("█" * round(20 * one.share), style="cyan")
            table.add_row(
                f"{one.low:.1f}-{one.high:.1f}", str(one.n), f"{one.probability:.3f}", f"{one.share:.3f}", bar
            )
    return table


def _write_rows(out: Path | None, rows: list[Any]) -> None:
    from data.files import write_jsonl

    if out is not None:
        write_jsonl(out, [asdict(row) for row in rows])


def calibration_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The prices that --calibrate cost takes.

    Raises:
        InputError: There is one, and another aim.
    """
    names = ("call_price", "search_price")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if given and arguments.calibrate != "cost":
        option = next(iter(given)).replace("_", "-")
        raise InputError(f"--{option} is for --calibrate cost: leave it out, or take that aim")
    return given


def show_calibration(report: dict[str, Any]) -> RenderableType:
    """What `optimize.calibrate` found, a line a judge."""
    from evaluation.intervals import Score

    title = f"calibrated on {report['valset']} questions for aim {report['aim']}; after is held out"
    table = Table("", "threshold", "accuracy before", "after", "ECE before", "after")
    notes = []
    for judge, found in report["judges"].items():
        if "skipped" in found:
            notes.append(Text(f"{judge} was left alone: {found['skipped']}", style="dim"))
            continue
        moved = found["threshold"]
        cells = [
            str(Score(**found[when]["scores"][name])) for name in ("accuracy", "ece") for when in ("before", "after")
        ]
        kept = moved["before"] == moved["after"]
        shown = f"{moved['before']:.3g}, kept" if kept else f"{moved['before']:.3g} to {moved['after']:.3g}"
        table.add_row(judge, shown, *cells)
        if "refused" in found:
            notes.append(Text(f"{judge}: {found['refused']:.3g} fits the verdicts better and costs answers: not taken"))
    answer = report["answer"]
    before, after = (Score(**answer[when]) for when in ("before", "after"))
    calls = answer["lm_calls"]
    cost = f"LM calls a question {calls['before']:.1f}, after {calls['after']:.1f}"
    notes.append(Text(f"exact match of the answers {before}, after {after}, p={answer['p']:.2g}; {cost}"))
    return Group(Text(title), table, *notes)
