"""How good the judges are by how many rows they learn from, for each way of compiling them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raisf.evaluation import RecordsById
from raisf.evaluation.intervals import Score
from raisf.evaluation.report import summaries
from raisf.evaluation.seen import seen_lines
from raisf.experiments.settings import PREDICTORS, Setting
from raisf.experiments.tables import fault_lines, joined, judged_beside
from raisf.reports import plots
from raisf.reports.report import last_go_line
from raisf.reports.sections import Cell, Section, score_of
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace

SIZES = (50, 100, 200, 500, 1000)
NONE = "none"
# By way of compiling, what its rows are.
WAYS = {
    "prompts": "prompts draws its four demonstrations a judge out of N of gold's rows.",
    "probe": "probe learns from gold's rows, and leaves decomposing to the base.",
    "weights": "weights (LoRA) learns from gold's rows, the same as probe, and decomposing from gold, too.",
    "outcome": "outcome learns (LoRA) from the N rows of the greatest advantage that trying both verdicts on these "
    "questions gave, and decomposing from gold.",
}
# The judges that are asked alone.
MEASURED = ("know", "relevance")
MEASURES = {"auroc": "AUROC", "accuracy": "accuracy"}
EM = "exact match"
ALONE = tuple(f"{judge} {measure}" for judge in MEASURED for measure in MEASURES.values())
SCORES = (EM, *ALONE)


def sizes_of_ways(
    sizes: Sequence[int] | None = None, ways: Mapping[str, int | None] | None = None
) -> dict[str, tuple[int, ...]]:
    """By way, the numbers of rows that it is tried at.

    Args:
        sizes: All numbers; None: `SIZES`.
        ways: Which ways, each with its greatest number or None; None: `WAYS`.

    Raises:
        InputError: No such way, or one whose greatest number is below all.
    """
    found: dict[str, tuple[int, ...]] = {}
    for way, most in (ways or dict.fromkeys(WAYS)).items():
        if way not in WAYS:
            raise InputError(f"--ways: no way {way!r}; choose of {', '.join(WAYS)}")
        found[way] = tuple(n for n in sizes or SIZES if most is None or n <= most)
        if not found[way]:
            raise InputError(f"--ways {way}={most}: no size is so small; raise it, or give smaller --sizes")
    return found


def settings(workspace: "Workspace") -> dict[str, Setting]:
    """By label, every way at every size, and the judges as they are."""
    ways = {_label(way, n): Setting(way, rows=n) for way, sizes in workspace.sizes.items() for n in sizes}
    return {NONE: Setting("ra-isf"), **ways}


def sections(workspace: "Workspace", answers: Mapping[str, RecordsById]) -> list[Section]:
    """Tables of every way at every size, the judges alone in one of their own, and a figure of both."""
    rows_of = settings(workspace)
    judged = judged_beside(workspace, {label: rows_of[label] for label in answers})
    answered = summaries(answers)
    scores = {label: {EM: report.em, **_alone(judged.get(label, {}))} for label, report in answered.items()}
    reports = {label: _report(workspace, rows_of[label]) for label in answers}
    table: list[list[Cell]] = [[label, report.em, *_learnt(reports[label])] for label, report in answered.items()]
    text = joined(_about(workspace, scores), last_go_line(reports), fault_lines(answered))
    section = Section("", ["judges", EM, "know's rows", "relevance's rows", "seconds"], table, text)
    alone: list[list[Cell]] = [
        [label, *(scores[label].get(name) for name in ALONE)] for label in answers if label in judged
    ]
    shown = {EM: workspace.measure}  # the figure has no headings that are renamed later, as a table's are
    drawn = {shown.get(name, name): lines for name in SCORES if (lines := _lines(workspace, scores, name))}
    section.draw(plots.by_rows(drawn, NONE))
    seen = {label: one.get("not_held_out", ()) for label, reports in judged.items() for one in reports.values()}
    return [section, Section("Judges alone", ["judges", *ALONE], alone, " ".join(seen_lines(seen)), main=None)]


def _label(way: str, size: int) -> str:
    return f"{way}, {size} rows"


def _alone(reports: Mapping[str, Any]) -> dict[str, Score]:
    """By column, what the judges' reports alone say."""
    return {
        f"{judge} {shown}": score_of(reports[judge]["scores"][name])
        for judge in MEASURED
        for name, shown in MEASURES.items()
        if name in reports.get(judge, {}).get("scores", {})
    }


def _report(workspace: "Workspace", setting: Setting) -> dict[str, Any]:
    """What compiling a setting told; nothing of the judges as they are."""
    from raisf.optimize.manifest import read

    artifact = workspace.learning.artifact(setting)
    return (read(artifact).compile or {}) if artifact else {}


def _learnt(report: Mapping[str, Any]) -> list[Cell]:
    """How many rows each judge had, and the seconds that compiling took."""
    if not report:
        return [None] * (len(MEASURED) + 1)
    seconds = report["seconds"] + report.get("judge_rows", {}).get("seconds", 0)
    seconds += report.get("outcomes", {}).get("seconds_before", 0)  # those tries are part of its price
    made = report.get("predictors", {})
    counts = {name: sum(one["rows"]["train"].values()) for name, one in made.items()} or report["rows"]
    return [*(counts.get(PREDICTORS[judge]) for judge in MEASURED), round(float(seconds), 2)]


def _lines(
    workspace: "Workspace", scores: Mapping[str, Mapping[str, Score]], name: str
) -> dict[str, dict[float, Score]]:
    """A measure by way and size; that of the judges as they are is the same at all sizes."""
    found: dict[str, dict[float, Score]] = {}
    for way, sizes in {NONE: _all_sizes(workspace), **workspace.sizes}.items():
        for size in sizes:
            score = scores.get(NONE if way == NONE else _label(way, size), {}).get(name)
            if score is not None:
                found.setdefault(way, {})[size] = score
    return found


def _about(workspace: "Workspace", scores: Mapping[str, Mapping[str, Score]]) -> str:
    counts = {name: _count([of[name].n for of in scores.values() if name in of]) for name in SCORES}
    told = [
        f"n = {counts[EM]} questions; each judge alone, against gold and at a threshold of 0.5: "
        f"{counts['know accuracy']} judgements of know, {counts['relevance accuracy']} of relevance, those that could "
        "be read. Percent, with 95% intervals.",
        f"{NONE}: the judges as they are. N rows: N rows a judge, as evenly over its verdicts as can be had, of the "
        f"first 2N training questions of one random order{_shortened(workspace)}, so that sizes share what they can.",
        *(told for way, told in WAYS.items() if way in workspace.sizes),
        f"All select or stop on the dev split besides, whose {len(workspace.dev)} questions are not among the rows: on "
        "up to 200 rows a judge, and prompts on the answers.",
        "seconds: of compiling, labels and tries included, on a machine that may have done other things.",
    ]
    return " ".join(told)


def _count(counts: Sequence[int]) -> str:
    """A number of judgements, which differs between rows where some could not be read."""
    return " to ".join(map(str, sorted({min(counts, default=0), max(counts, default=0)})))


def _shortened(workspace: "Workspace") -> str:
    """Where there are too few training questions for the largest size."""
    from raisf.optimize.optimizers.training_rows import QUESTIONS_A_ROW

    n = len(workspace.train)
    return f" ({n} are all there are)" if n < QUESTIONS_A_ROW * max(_all_sizes(workspace)) else ""


def _all_sizes(workspace: "Workspace") -> list[int]:
    return sorted({n for sizes in workspace.sizes.values() for n in sizes})
