"""BlendFilter's case study: the same questions as two programs went about them, as trees."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from raisf.evaluation import RecordsById
from raisf.reports.sections import Cell, Section

if TYPE_CHECKING:
    from raisf.experiments.workspace import Workspace

CASES, WIDTH = 3, 110


def cases(_: "Workspace", answers: Mapping[str, RecordsById]) -> list[Section]:
    """Questions that the last program has right and the first has not, or the first ones where there is none."""
    shown = list(answers.values())
    first, last = shown[0], shown[-1]  # one may be all that could be run
    told = [name for name in sorted(last) if last[name]["em"] > first[name]["em"]]
    chosen = (told or sorted(last))[:CASES]
    rows: list[list[Cell]] = []
    trees: list[str] = []
    for name in chosen:
        for label, records in answers.items():
            record = records[name]
            gold = " or ".join(record["answers"][:3])
            rows.append([record["question"], label, record["prediction"] or "-", gold, "yes" if record["em"] else "no"])
            trees.append(f"{label}\n{tree_text(record)}")
    tested = list(answers)[-1]
    if len(answers) == 1:
        text = f"{tested} is compared with no other program: its first questions."
    elif told:
        text = f"{len(told)} questions are answered right by {tested} alone; the first of them."
    else:
        text = f"No question is answered right by {tested} alone: the first questions."
    columns = ["question", "program", "answer", "gold", "right"]
    text += " Records keep the titles of passages, not their text."
    return [Section("", columns, rows, text, None, blocks=trees)]


def tree_text(record: dict) -> str:
    """A record's tree as plain text."""
    from raisf.programs.rendering import render
    from raisf.programs.trace import Trace
    from raisf.utils.display import as_plain

    if not record["trace"]:
        return f"no tree: {record['error']}"
    return as_plain(render(Trace.model_validate(record["trace"])), WIDTH)
