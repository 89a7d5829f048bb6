"""A result told once and shown three ways: in the terminal, as CSV, on a page."""

import csv
import io
import itertools
import math
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.evaluation.intervals import Score
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, replacing, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

RESULTS = "results.json"
"""What a report's folder holds of its numbers, and by which it is known."""


class Share(float):
    """A share without an interval: shown as percent, and in files from 0 to 1, as scores are."""


class PValue(float):
    """A test's p-value: shown with three digits, and in files as it is."""


Cell = str | int | float | Share | PValue | Score | None
# Columns of a table all of whose scores have their intervals below them: of twelve characters, in a terminal of 80.
MOST_WITH_INTERVALS = 5
# The ends of intervals, beside the mean's own column in a CSV.
ENDS = ("low", "high", "n")


@dataclass(slots=True)
class Section:
    """A part of a report: a table, and what is drawn of it.

    Attributes:
        title: Its heading; the CSV's name is made from it.
        columns: The headings, (columns,).
        rows: (rows, columns); scores and shares are shown as percent, other numbers with two digits.
        text: What a reader must know to read the table right.
        main: The column whose scores the terminal shows with their intervals; None: all, below them, if there are few
            columns. CSV and page show all.
        drawings: Figures of the same numbers, each the text of an SVG element.
        blocks: Texts below the table whose lines are shown as they stand, such as trees.
    """

    title: str
    columns: Sequence[str]
    rows: list[list[Cell]]
    text: str = ""
    main: int | None = 1
    drawings: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)

    def call(self, old: str, new: str) -> None:
        """Gives a measure another name, wherever the table names it."""

        def renamed(text: str) -> str:
            return text.replace(old, new).replace(old.capitalize(), new.capitalize())

        self.title, self.text = renamed(self.title), renamed(self.text)
        self.columns = [renamed(column) for column in self.columns]

    @property
    def name(self) -> str:
        """The title as a file's name."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")

    def draw(self, *figures: "Figure") -> None:
        """Adds figures; equal ones give equal text."""
        from matplotlib import rc_context

        for figure in figures:
            file = io.StringIO()
            with rc_context({"svg.hashsalt": "raisf", "svg.fonttype": "none"}), warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Glyph")  # whose fonts lack one: the reader's draw the text
                figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
            self.drawings.append(file.getvalue())

    def as_dict(self) -> dict[str, Any]:
        """The table as JSON-able values."""
        rows = [{column: _saved(cell) for column, cell in self._named(row)} for row in self.rows]
        told = {"title": self.title, "text": self.text, "columns": list(self.columns), "main": self.main, "rows": rows}
        return told | ({"blocks": self.blocks} if self.blocks else {})

    @classmethod
    def of(cls, saved: dict[str, Any]) -> "Section":
        """What `as_dict` gave; without its drawings."""
        rows = [[_cell(row[column]) for column in saved["columns"]] for row in saved["rows"]]
        blocks = saved.get("blocks", [])
        return cls(saved["title"], saved["columns"], rows, saved["text"], saved["main"], blocks=blocks)

    def write(self, folder: Path, taken: Collection[str] = ()) -> list[Path]:
        """Writes the table as `<name>.csv` and the drawings as `<name>-1.svg`, `<name>-2.svg`, ...; gives these files.

        In the CSV a score takes four columns: value, low, high and n. Where another table has that file, by its name in
        `taken`, this one is called `<name>-2`.
        """
        names = itertools.chain([self.name], (f"{self.name}-{number}" for number in itertools.count(2)))
        name = next(name for name in names if f"{name}.csv" not in taken)
        scored = {column for row in self.rows for column, cell in self._named(row) if isinstance(cell, Score)}
        csv_file = folder / f"{name}.csv"
        with replacing(csv_file) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([part for column in self.columns for part in _headings(column, column in scored)])
            for row in self.rows:
                writer.writerow([part for column, cell in self._named(row) for part in _parts(cell, column in scored)])
        drawn = [folder / f"{name}-{number}.svg" for number, _ in enumerate(self.drawings, 1)]
        for path, drawing in zip(drawn, self.drawings, strict=True):
            write_text(path, drawing)
        return [csv_file, *drawn]

    def view(self) -> "RenderableType":
        """The table for the terminal, narrow: where one column is the main one, it alone has intervals."""
        from raisf.utils.display import DataTable

        table = DataTable(
            title=f"\n{self.title}", title_justify="left", caption=self.text or None, caption_justify="left"
        )
        for number, column in enumerate(self.columns):
            # Where the terminal is too narrow, the names take several lines, and numbers stay whole.
            table.add_column(
                column, justify="right" if number else "left", no_wrap=number == self.main, overflow="fold"
            )
        for row in self.rows:
            table.add_row(*map(self._terminal_cell, range(len(row)), row))
        if not self.blocks:
            return table
        from rich.console import Group

        from raisf.utils.display import as_text

        lines = (line for block in self.blocks for line in ["", *block.split("\n")])
        return Group(table, *(as_text(line, no_wrap=True, overflow="ellipsis") for line in lines))

    def _terminal_cell(self, number: int, cell: Cell) -> str:
        """A cell as the terminal shows it."""
        if self.main is None and len(self.columns) <= MOST_WITH_INTERVALS and isinstance(cell, Score):
            return shown(cell).replace(" ", "\n", 1)
        return shown(cell, interval=number == self.main)

    def _named(self, row: Sequence[Cell]) -> list[tuple[str, Cell]]:
        return list(zip(self.columns, row, strict=True))


def write_sections(sections: Iterable[Section], folder: Path) -> list[str]:
    """Writes tables and drawings into a folder, and deletes those of the report that is there and has more.

    Returns:
        Their names, which `results.json` holds as "files": by these the next report knows which are not the user's own.
    """
    written: list[str] = []
    for section in sections:
        written += [file.name for file in section.write(folder, written)]
    before = read_results(folder).get("files")
    for name in {*before} - {*written} if isinstance(before, list) else ():
        if Path(str(name)).name == name and Path(name).suffix in (".csv", ".svg"):
            (folder / name).unlink(missing_ok=True)
    return written


def read_results(folder: Path) -> dict[str, Any]:
    """What a report's `results.json` holds; nothing if there is none, or another's."""
    try:
        results = read_json(folder / RESULTS)
    except InputError:
        return {}
    return results if isinstance(results, dict) and isinstance(results.get("facts"), dict) else {}


def shown(cell: Cell, interval: bool = True) -> str:
    """A cell as a person reads it."""
    if cell is None or (isinstance(cell, Score) and not cell.n):
        return "-"
    if isinstance(cell, Score):
        value, low, high = (f"{100 * end:z.1f}" for end in (cell.value, cell.low, cell.high))
        return value + f" [{low}, {high}]" * interval
    if isinstance(cell, Share):
        return f"{100 * cell:z.1f}"
    if isinstance(cell, PValue):
        return "<0.001" if cell < 1e-3 else f"{cell:.3f}"
    if isinstance(cell, float):
        return f"{cell:.2f}"
    return str(cell)


def score_of(saved: dict[str, Any]) -> Score:
    """What `Score.as_dict` gave."""
    value, low, high = (math.nan if saved[end] is None else saved[end] for end in ("value", "low", "high"))
    return Score(value, low, high, saved["n"])


def _saved(cell: Cell) -> Any:
    """A cell as a JSON-able value."""
    if isinstance(cell, Score):
        return cell.as_dict()
    if isinstance(cell, Share):
        return {"share": float(cell)}
    return {"p": float(cell)} if isinstance(cell, PValue) else cell


def _cell(saved: Any) -> Cell:
    """What `_saved` gave."""
    if not isinstance(saved, dict):
        return saved
    if "share" in saved:
        return Share(saved["share"])
    return PValue(saved["p"]) if "p" in saved else score_of(saved)


def _headings(column: str, scored: bool) -> list[str]:
    column = no_formula(column)  # a kind of question may be any text
    return [column, *(f"{column} {end}" for end in ENDS)] if scored else [column]


def no_formula(value: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{value}" if re.match(r"[=+@\t\r]|-[^,]", value) else value


def _parts(cell: Cell, scored: bool) -> list[Any]:
    if isinstance(cell, Score):
        return list(cell.as_dict().values())
    return [no_formula(cell) if isinstance(cell, str) else cell, *([None] * len(ENDS) if scored else [])]
