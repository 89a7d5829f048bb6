"""What a judge alone does, for the terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from raisf.utils.display import DataTable

if TYPE_CHECKING:
    from rich.table import Table

    from raisf.evaluation.judges import Bin, JudgeReport


def judge_table(columns: "Mapping[str, tuple[float | None, JudgeReport]]") -> "Table":
    """A column for the judge and for each baseline: its scores, and its threshold, None where it has none."""
    table = DataTable("", *columns)
    names = dict.fromkeys(name for _, report in columns.values() for name in report.scores)
    for name in names:
        shown = name.upper() if name in ("auroc", "aurc", "ece", "f1") else name.replace("_", " ")
        cells = [str(report.scores[name]) if name in report.scores else "-" for _, report in columns.values()]
        table.add_row(shown, *cells)
    if any(threshold is not None for threshold, _ in columns.values()):
        table.add_section()
        table.add_row("threshold", *("-" if at is None else f"{at:.4g}" for at, _ in columns.values()))
    return table


def reliability_table(bins: "Sequence[Bin]", positive: str) -> "Table":
    """How often what was given each probability is true, a row a bin."""
    table = DataTable("probability", "n", "mean", positive, "", title="reliability", title_justify="left")
    for one in bins:
        bar = Text("█" * round(20 * one.share), style="cyan")
        low, high = f"{one.low:.2f}", f"{one.high:.2f}"
        table.add_row(f"{low}-{high}", str(one.n), f"{one.probability:.3f}", f"{one.share:.3f}", bar)
    return table
