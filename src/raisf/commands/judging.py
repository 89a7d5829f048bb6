"""`raisf eval --module`: one judge alone against gold; and what a calibration did, for a person to read."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raisf.commands.outcome import Outcome
from raisf.utils.errors import InputError, LMError
from raisf.utils.files import check_writable, read_jsonl, write_jsonl
from raisf.utils.journal import Journal

if TYPE_CHECKING:
    from raisf.evaluation.judges import JudgeReport
    from raisf.optimize.optimizers.calibrate import Calibrate

# Where the verdicts of a measurement that was stopped lie, for the same command to go on with.
JUDGED = Path("runs/judges")
NO_PROBABILITIES = "no AUROC and no ECE: the judge gives verdicts without probabilities"


def evaluate_module(arguments: argparse.Namespace, program: Any) -> Outcome:
    """Measures a judge of the program on the questions of --test.

    Raises:
        InputError: --train for another judge than know, or with questions of --test; --out holds something else than
            verdicts; or what the room `optimize` complains of.
        LMError: The LM failed on ten rows in a row, or on all there are, or most of its replies cannot be read.
    """
    from raisf.data.questions import load_questions
    from raisf.evaluation.identity import describe, describe_test, digest
    from raisf.optimize.judges.labels import check_labelled
    from raisf.optimize.overlap import check_disjoint

    if arguments.train is not None and arguments.module != "know":
        raise InputError("--train fits the baseline of --module know: leave it out")
    _check_out(arguments.out)
    examples = load_questions(arguments.test)[: arguments.limit]
    train = load_questions(arguments.train) if arguments.train else None
    check_disjoint(train or [], {"test": examples})
    identity = digest([describe(program), describe_test(examples), arguments.module, arguments.labels])
    with Journal.alone(JUDGED, arguments.module, identity) as journal:
        options: dict[str, Any] = {"labels": arguments.labels, "threads": arguments.threads, "journal": journal}
        report, rows, errors = judge_alone(program, arguments.module, examples, **options)
        journal.close()
    if arguments.out is not None:
        write_jsonl(arguments.out, [asdict(row) for row in rows])
    unreadable = sum(not row.readable for row in rows)
    check_labelled(len(rows), unreadable, f"verdicts of the {arguments.module} judge could not be read")
    found = {"rows": len(rows), "unreadable": unreadable, "errors": errors}
    if arguments.module == "decomposition":
        title = f"the decomposition judge of {arguments.program} on {arguments.test}: {len(rows)} questions"
        view = [Text(title), _table({"judge": (None, report)})]
        return _outcome(arguments, found, {"judge": report.as_dict()}, view, [])
    return _verdicts(arguments, program, report, rows, found, train)


def judge_alone(
    program: Any,
    judge: Any,
    examples: Sequence[Any],
    *,
    labels: Any = "model",
    threads: int = 8,
    journal: Journal | None = None,
) -> "tuple[JudgeReport, list[Any], int]":
    """A judge of the program, asked alone about all that gold says of the questions.

    With a journal, what was said before is not asked again.

    Returns:
        Its report, the rows (`Judged` or `Decomposed`) it is made of, and how many are missing because a call failed or
        a reply could not be read and labels nothing.

    Raises:
        InputError: The program has no such judge, or the questions no such gold.
        LMError: The LM failed on ten rows in a row, or on all there are.
    """
    from raisf.optimize.judges.judge_data import steps
    from raisf.optimize.judges.judgements import collect, collect_decompositions, decomposition_report

    if judge == "decomposition":
        rows, errors = collect_decompositions(program, examples, threads=threads, journal=journal)
        report = decomposition_report(rows)
    else:
        judged = collect(program, judge, examples, labels=labels, threads=threads, journal=journal)
        rows, errors, report = judged.rows, judged.errors, judged.report()
        if judge == "know":  # also those that the LM was to answer, to tell whether it knows them, and did not
            errors = len({step.question for example in examples for step in steps(example)}) - len(rows)
    if not rows:
        raise LMError(f"the LM failed on all {errors} calls of the {judge} judge: see that it answers, and try again")
    return report, rows, errors


def _check_out(out: Path | None) -> None:
    """Verdicts take the place of earlier verdicts, and of nothing else."""
    if out is None:
        return
    if out.is_dir():
        raise InputError(f"{out} is a folder: give a file for the verdicts, such as {out / 'verdicts.jsonl'}")
    check_writable(out.parent, "give another file")
    try:
        first = next(read_jsonl(out), None) if out.exists() else None
    except InputError:
        first = {}
    if first is not None and not {"question", "gold", "readable"} <= first.keys():
        raise InputError(f"{out} holds something else than verdicts, which would be replaced: give another file")


def _verdicts(
    arguments: argparse.Namespace,
    program: Any,
    report: "JudgeReport",
    rows: list[Any],
    counts: dict[str, int],
    train: list[Any] | None,
) -> Outcome:
    from raisf.optimize.judges.reliability import POSITIVE

    notes: list[str] = []
    scored = "auroc" in report.scores
    threshold = getattr(program, f"{arguments.module}_threshold", 0.5) if scored else None
    found = {**counts, "positive": sum(row.gold for row in rows)}
    columns: dict[str, tuple[float | None, JudgeReport]] = {"judge": (threshold, report)}
    if not scored:
        notes.append(NO_PROBABILITIES)
    if arguments.module == "know":
        columns |= _baselines(arguments, program, rows, train, notes)
    data = {"threshold": threshold, **report.as_dict()}
    others = {name: {"threshold": at, **other.as_dict()} for name, (at, other) in list(columns.items())[1:]}
    positive = POSITIVE[arguments.module]
    title = f"the {arguments.module} judge of {arguments.program} on {arguments.test}: "
    title += f"{found['positive']} of {found['rows']} {positive}"
    view: list[RenderableType] = [Text(title), _table(columns)]
    if report.bins:
        view.append(_reliability(report.bins, positive))
    return _outcome(arguments, found, {"judge": data, "baselines": others}, view, notes)


def _baselines(
    arguments: argparse.Namespace, program: Any, rows: list[Any], train: list[Any] | None, notes: list[str]
) -> dict[str, Any]:
    """By the baseline's name, its threshold and report; none, and a note, where the LM gives no log-probabilities."""
    from raisf.optimize.judges.confidence import KINDS, baselines

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


def calibration(arguments: argparse.Namespace) -> "Calibrate | None":
    """What --calibrate and its prices ask for; None where there is no --calibrate.

    Raises:
        InputError: There is a price, and another aim than cost.
    """
    names = ("call_price", "search_price")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if given and arguments.calibrate != "cost":
        option = next(iter(given)).replace("_", "-")
        raise InputError(f"--{option} is for --calibrate cost: leave it out, or take that aim")
    if not arguments.calibrate:
        return None
    from raisf.optimize.optimizers.calibrate import Calibrate

    return Calibrate(aim=arguments.calibrate, labels=arguments.labels, threads=arguments.threads, **given)


def told_labels(report: dict[str, Any]) -> list[Text]:
    """Questions that a compilation has no label of, a line a predictor."""
    unlabelled = (report.get("unlabelled") or {}).items()
    return [Text(f"{name}: {told}; the next compile asks again", style="yellow") for name, told in unlabelled]


def show_calibration(report: dict[str, Any]) -> RenderableType:
    """What `raisf.optimize.optimizers.calibrate` found, a line a judge."""
    from raisf.evaluation.intervals import Score

    title = f"calibrated on {report['valset']} questions for aim {report['aim']}; after is held out"
    table = Table("", "threshold", "accuracy before", "after", "ECE before", "after")
    notes = []
    for judge, found in report["judges"].items():
        if "skipped" in found:
            notes.append(Text(f"{judge} was left alone: {found['skipped']}", style="dim"))
            continue
        if found.get("unreadable"):
            notes.append(Text(f"{judge}: {found['unreadable']} unreadable verdicts are left out", style="yellow"))
        if found.get("unlabelled"):
            notes.append(Text(f"{judge}: {found['unlabelled']}", style="yellow"))
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
