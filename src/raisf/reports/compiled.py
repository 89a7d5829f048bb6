"""What compiling did, for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from raisf.evaluation.intervals import Score
from raisf.optimize.judges.judge_rows import HELD_OUT
from raisf.reports.sections import Cell, Section
from raisf.utils.display import DataTable, as_text
from raisf.utils.text import visible


def compiled_view(report: dict[str, Any]) -> list[RenderableType]:
    """What a compilation has tried, chosen or trained."""
    if report["how"] == "both":
        steps = [shown for step in report["steps"] for shown in (as_text(step["name"]), *compiled_view(step["report"]))]
        return [*steps, _candidates_table(report), *_failed_lines(report)]
    shown: list[RenderableType] = [outcomes_view(report["outcomes"])] if report["how"] == "outcome" else []
    if "probe" in (report["how"], report.get("by")):
        return [*shown, probe_table(report), *left_out_lines(report)]
    if "trained" in report:
        return [*shown, training_table(report), *left_out_lines(report)]
    return [*shown, candidates_view(report)]


def left_out_lines(report: dict[str, Any]) -> list[Text]:
    """Rows that are counted in a table and taught nothing, a line a predictor."""
    whys = (("too_long", "longer than the base's context"), ("dropped", "without all that is to be said"))
    return [
        as_text(f"{name}: rows for training and validation that are {why}, and left out: {n}", "yellow")
        for name, made in report["predictors"].items()
        for one, why in whys
        if (n := made.get(one, 0))
    ]


def candidates_view(report: dict[str, Any]) -> RenderableType:
    """A row for each candidate, and the instructions that the chosen one has of its own."""
    told = [Text.assemble((f"{name}: ", "bold"), visible(text)) for name, text in report["instructions"].items()]
    if report["strategy"] == "mipro" and not any(report["proposed"].values()):
        told.append(as_text("no instruction was proposed: the LM's format has none, or none could be read", "dim"))
    return Group(_candidates_table(report), *told, *_failed_lines(report))


def _failed_lines(report: dict[str, Any]) -> list[Text]:
    told = []
    if failed := report["failed"]:
        told.append(f"{failed} of {report['valset']} dev questions failed with some candidate and count as wrong there")
    if runs := report.get("failed_runs"):
        told.append(f"{runs} runs of training questions failed and teach nothing")
    return [as_text(text, "yellow") for text in told]


def _candidates_table(report: dict[str, Any]) -> Table:
    first, *_ = report["candidates"]
    title = f"selected: {report['chosen']}"
    columns = ("candidate", f"{report['metric']} on the dev split", f"against {first['name']}")
    table = DataTable(*columns, title=title, title_justify="left")
    for candidate in report["candidates"]:
        against = "" if candidate is first else _signed(Score(**candidate["difference"]))
        table.add_row(candidate["name"], str(Score(**candidate["score"])), against)
    return table


def outcomes_view(report: dict[str, Any]) -> RenderableType:
    """What trying both verdicts came to, a row a judge."""
    columns = ("judge", "better verdict", "taken", "advantage", "decided by the answer", "agrees with gold", "kappa")
    title = f"verdicts tried on {report['questions']} questions, {report['lm_calls']:,} LM calls"
    table = DataTable(*columns, title=title, title_justify="left")
    for judge, found in report["judges"].items():
        counts = [_by_class(found[name]) for name in ("rows", "taken")]
        agreed = _agreed(found.get("agreement"))
        table.add_row(judge, *counts, f"{found['advantage']:.2f}", str(found["decided"]), *agreed)
    notes = []
    if report["failed"]:
        notes.append(as_text(f"{report['failed']} questions failed and taught nothing", "yellow"))
    if report["unreadable"]:
        notes.append(
            as_text(f"{report['unreadable']} tries ended without a readable answer and taught nothing", "yellow")
        )
    return Group(table, *notes)


def training_table(report: dict[str, Any]) -> Table:
    """A row for each trained predictor: its rows, the validation before and after, and the cost."""
    columns = ("predictor", "rows", "loss", "exact", "epoch", "tokens/s")
    title = f"trained weights, {report['trained']}; loss and exact on {_validated_on(report)}, before → after"
    table = DataTable(*columns, title=title, title_justify="left")
    for name, made in report["predictors"].items():
        first, best = made["curve"][0], made["curve"][made["best_epoch"]]
        table.add_row(
            name,
            _by_class(made["rows"]["train"]),
            f"{first['loss']:.3f} → {best['loss']:.3f}",
            f"{first['exact']:.1%} → {best['exact']:.1%}",
            f"{made['best_epoch']}/{len(made['curve']) - 1}",
            f"{made['tokens_per_second']:,}",
        )
    for name, why in report["missing"].items():
        table.add_row(name, f"left to the base: {why}")
    return table


def _validated_on(report: Mapping[str, Any]) -> str:
    """What the figures of a training are of: the dev split, unless collected rows have none of its questions."""
    held_out = report.get("judge_rows", {}).get("held_out") or []
    told = f"{HELD_OUT:.0%} of the training questions, as no collected row is of a dev question"
    if held_out and len(held_out) < len(report["predictors"]):
        return f"the dev split (of {', '.join(held_out)} on {told})"
    return told if held_out else "the dev split"


def probe_table(report: dict[str, Any]) -> Table:
    """A row for each predictor with a probe: its rows, what was chosen, and how it does on the validation rows."""
    columns = ("predictor", "rows", "layer", "C", "AUROC", "log loss", "n", "seconds")
    title = f"probes on {', '.join(sorted({made['base'] for made in report['predictors'].values()}))}; "
    title += f"AUROC and log loss on {_validated_on(report)}, by which layer and C were chosen"
    table = DataTable(*columns, title=title, title_justify="left")
    for name, made in report["predictors"].items():
        found = made["validation"]
        auroc = f"{100 * found['auroc']:.1f}"
        if "low" in found:
            auroc += f" [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"
        table.add_row(
            name,
            _by_class(made["rows"]["train"]),
            str(made["layer"]),
            f"{made['C']:g}",
            auroc,
            f"{found['log_loss']:.3f}",
            str(found["n"]),
            f"{made['seconds']:.1f}",
        )
    for name, why in report["missing"].items():
        table.add_row(name, f"keeps its LM: {why}")
    return table


def rows_table(collected: dict[str, Any]) -> Table:
    """A row for each judge: what was collected for it, and how far who labelled agrees with gold."""
    columns = ("judge", "rows", "of them", "agrees with gold", "kappa")
    table = DataTable(*columns)
    for judge, classes in collected["rows"].items():
        agreed = collected["agreement"].get(judge)
        share, kappa = _agreed(agreed)
        share += f", token F1 {agreed['token_f1']:.1%}" if agreed and "token_f1" in agreed else ""
        table.add_row(judge, str(sum(classes.values())), _by_class(classes), share, kappa)
    return table


def _by_class(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items())


def _agreed(agreed: Mapping[str, Any] | None) -> tuple[str, str]:
    """An agreement's share and kappa, as a table shows them."""
    if not agreed:
        return "-", "-"
    kappa = "-" if agreed["kappa"] is None else f"{agreed['kappa']:.2f}"
    share = f"{agreed['agree']:.1%} [{100 * agreed['low']:.1f}, {100 * agreed['high']:.1f}]"
    return f"{share}, n = {agreed['n']}", kappa


def teacher_line(teacher: dict[str, Any]) -> str:
    """Who labelled, and at what cost."""
    tokens = [f"{teacher.get(name, 0):,}" for name in ("prompt_tokens", "completion_tokens")]
    unmetered = f" ({teacher['unmetered_calls']:,} told no tokens)" if teacher.get("unmetered_calls") else ""
    return (
        f"teacher: {teacher['lm']}, {teacher.get('calls', 0):,} calls{unmetered}, {tokens[0]} tokens read, "
        f"{tokens[1]} written, {teacher.get('seconds', 0):,} s"
    )


def teacher_section(taught: Mapping[str, Any]) -> Section:
    """Whose labels compilations learnt from, how far they agree with gold, and at what cost; a row a judge."""
    rows: list[list[Cell]] = []
    lines: list[str] = []
    for name, given in taught.items():
        for split, collected in given.get("splits", {}).items():
            lines.append(f"{name}, {split}: {teacher_line(collected['teacher'])}.")
            for judge, classes in collected["rows"].items():
                found = collected["agreement"].get(judge, {})
                share = Score(found["agree"], found["low"], found["high"], found["n"]) if found else None
                told: list[Cell] = [share, found.get("kappa"), found.get("n")]
                rows.append([f"{name}, {split}: {judge}", sum(classes.values()), *told])
    text = "Where gold speaks the teacher was asked too; know: the LM's own answers. " + " ".join(lines)
    return Section("Labels by the teacher", ["rows", "collected", "agrees with gold", "kappa", "n"], rows, text, 2)


def judge_rows_view(report: dict[str, Any]) -> list[RenderableType]:
    """Whose rows a compilation took for the judges; nothing where they are gold's."""
    given = report.get("judge_rows")
    if not given:
        return []
    shown: list[RenderableType] = []
    for split, collected in given.get("splits", {}).items():
        shown.append(as_text(f"rows of the {split} split, by {teacher_line(collected['teacher'])}"))
        shown.append(rows_table(collected))
    folders = given.get("folders")
    return [*shown, *([as_text(f"the judges' rows: {', '.join(folders)}")] if folders else [])]


def unlabelled_lines(report: dict[str, Any]) -> list[Text]:
    """Questions that a compilation has no label of, a line a predictor."""
    unlabelled = (report.get("unlabelled") or {}).items()
    return [as_text(f"{name}: {told}; the next compile asks again", "yellow") for name, told in unlabelled]


def calibration_view(report: dict[str, Any]) -> RenderableType:
    """What `raisf.optimize.optimizers.calibrate` found, a line a judge."""
    held, seen = ("answers", "verdicts") if report["aim"] in ("answer", "cost") else ("verdicts", "answers")
    title = f"calibrated on {report['valset']} questions for aim {report['aim']}: of the {held}, after is held out; "
    title += f"of the {seen}, it is on the questions that chose the thresholds"
    table = DataTable("", "threshold", "accuracy before", "after", "ECE before", "after")
    notes: list[RenderableType] = []
    for judge, found in report["judges"].items():
        if "skipped" in found:
            notes.append(as_text(f"{judge}{_moved_unmeasured(found)}: {found['skipped']}", "dim"))
            continue
        if found.get("unreadable"):
            notes.append(as_text(f"{judge}: {found['unreadable']} unreadable verdicts are left out", "yellow"))
        if found.get("unlabelled"):
            notes.append(as_text(f"{judge}: {found['unlabelled']}", "yellow"))
        moved = found["threshold"]
        cells = [
            str(Score(**found[when]["scores"][name])) for name in ("accuracy", "ece") for when in ("before", "after")
        ]
        kept = moved["before"] == moved["after"]
        shown = f"{moved['before']:.3g}, kept" if kept else f"{moved['before']:.3g} to {moved['after']:.3g}"
        table.add_row(judge, shown, *cells)
        if "refused" in found:
            refused = f"{judge}: {found['refused']:.3g} fits the verdicts better and costs answers: not taken"
            notes.append(as_text(refused))
    if "know" in report:
        notes.insert(0, _kinds_table(report["know"], report["metric"]))
    answer = report["answer"]
    before, after = (Score(**answer[when]) for when in ("before", "after"))
    calls = answer["lm_calls"]
    cost = f"LM calls per question {calls['before']:.1f}, after {calls['after']:.1f}"
    notes.append(as_text(f"{report['metric']} of the answers {before}, after {after}, p={answer['p']:.2g}; {cost}"))
    if report.get("failed"):
        notes.append(as_text(f"{report['failed']} questions failed twice and count as wrong", "yellow"))
    return Group(as_text(title), table, *notes)


def _moved_unmeasured(found: dict[str, Any]) -> str:
    moved = found.get("threshold", {"before": None, "after": None})
    if moved["before"] == moved["after"]:
        return " was left alone"
    return f" has the threshold {moved['after']:.3g} instead of {moved['before']:.3g}, and was not measured alone"


def _kinds_table(report: dict[str, Any], metric: str) -> RenderableType:
    """A row for each kind of self-knowledge that was tried, with the answers on questions it was not fitted on."""
    title = f"self-knowledge: {report['chosen']} is kept, it was {report['before']}"
    table = DataTable("kind", f"{metric}, held out", "LM calls", "retrievals", "threshold", title=title)
    for kind, found in report["tried"].items():
        cost = [f"{found[name]:.1f}" for name in ("lm_calls", "retrievals")]
        table.add_row(kind, str(Score(**found["score"])), *cost, f"{found['thresholds']['know']:.3g}")
    for kind, why in report["left_out"].items():
        table.add_row(kind, f"left out: {why}")
    return table


def confidence_view(report: dict[str, Any]) -> RenderableType:
    """What `raisf.optimize.confidence` found."""
    before, after = (Score(**report["ece"][when]) for when in ("before", "after"))
    title = f"confidence scaled on {report['answers']} of {report['valset']} answers, those that have one"
    fitted = f"slope {report['slope']:.3g}, offset {report['offset']:+.3g}; ECE {before}, after (held out) {after}"
    return Group(as_text(title), as_text(fitted))


def _signed(difference: Score) -> str:
    return f"{100 * difference.value:+z.1f} [{100 * difference.low:+z.1f}, {100 * difference.high:+z.1f}]"
