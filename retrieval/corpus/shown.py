"""What readers put into words: tables, and what links, raised numbers and pictures say besides their text."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any
from urllib.parse import unquote

from raisf.retrieval.corpus.splitting import STOPS

WIDEST = 50
"""Columns that a cell spans at most."""
_SPANNING = 8
"""Words of a cell that is told again under each name that it stands under; longer ones are notes."""
_CAPTION = 5
"""Words of a picture's text that say what it shows."""
_RAISED = re.compile(r"\s*[-+\u2212\u2013]?\d")
STROKES = ("/", "\u2044")
"""What parts the two numbers of a fraction."""
_ADDRESS = re.compile(r"(?:mailto|tel):([^?]+)", re.IGNORECASE)
_NO_DIGITS = re.compile(r"\D")


def table_rows(rows: Sequence[Sequence[str]], named: bool) -> list[str]:
    """The rows of a table as words: `Plan: Lite; Fee: $39.`, so that each can be read far from the table's first row.

    Args:
        rows: Their cells, on one line each.
        named: Whether the first row has the columns' names. Where another has more cells or fewer, they stand as they
            are, `Lite; $39.`, as it does itself; names that no row has a cell for come first.

    Returns:
        A text a row, in their order; empty where a row has no cells, or is that of the names and others tell them all.
    """
    if not (named and len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows)):
        return [row_text(row) for row in rows]
    header, *others = rows
    untold = [name for name, *cells in zip(header, *others, strict=True) if not any(cells)]
    return [row_text(untold), *(row_text(_named(header, row)) for row in others)]


def _named(header: Sequence[str], row: Sequence[str]) -> list[str]:
    cells = zip(header, row, strict=True)
    return [f"{name.rstrip(' :')}: {cell}" if name and cell else cell for name, cell in cells]


def row_text(cells: Iterable[str]) -> str:
    """The cells of a row as a sentence, such as `Lite; $39.`, without names."""
    told = "; ".join(filter(None, cells)).replace(":; ", ": ")  # a cell that leads to the next
    return f"{told}." if told and told[-1] not in f".!?:\u3002\uff01\uff1f\uff1a{STOPS}" else told


def rows_in_words(grid: Sequence[Sequence[str]], named: int, over: Mapping[int, str]) -> list[str]:
    """The rows of a table as `table_rows` has them, the first of them, which have the columns' names, as one.

    Args:
        grid: The cells' texts by row and column.
        named: How many rows have the columns' names.
        over: By number, these as one, the texts of rows that stand over all columns, under the name of none.
    """
    if named:
        names = zip_longest(*grid[:named], fillvalue="")
        grid = [[" ".join(dict.fromkeys(filter(None, told))) for told in names], *grid[named:]]
    rows = [[""] * len(grid[0]) if number in over else line for number, line in enumerate(grid)]
    told = table_rows(rows, bool(named))
    for number, text in over.items():
        told[number] = "".join(table_rows([[text]], named=False))
    return told


def grid_of(rows: Sequence[list[Any]], texts: Mapping[Any, str], named: int) -> list[list[str]]:
    """The cells' texts by row and column: one that spans rows stands in each, a name that spans columns over each.

    Args:
        rows: Their cells, with the attributes `colspan` and `rowspan` of HTML.
        texts: Of each cell.
        named: How many rows have the columns' names.
    """
    grid, below = list[list[str]](), dict[int, tuple[int, str]]()
    for number, row in enumerate(rows):
        line = list[str]()
        waiting = row[::-1]
        while waiting or any(column >= len(line) for column in below):
            left, text = below.pop(len(line), (0, ""))
            if not left and not waiting:
                line.append("")
                continue
            wide = 1
            if not left:
                cell = waiting.pop()
                text, wide = texts[cell], span_of(cell, "colspan")
                left = min(span_of(cell, "rowspan"), len(rows) - number)
            for column in range(len(line), len(line) + wide):
                if left > 1:
                    below[column] = (left - 1, text)
            line += over_columns(text, wide, number < named, first=not line or not named)
        grid.append(line + [""] * (len(grid[0]) - len(line) if grid else 0))
    return grid


def over_columns(text: str, wide: int, named: bool, first: bool) -> list[str]:
    """A cell's text in the columns that it spans: of a name in each, and of a short cell behind a row's first."""
    each = named or (not first and len(text.split()) <= _SPANNING)
    return [text, *[text if each else ""] * (wide - 1)]


def span_of(cell: Any, name: str) -> int:
    """How many rows or columns a cell spans, 1 where it says nothing sensible."""
    return min(number_of(cell.get(name), 1) or 1, WIDEST)


def number_of(told: str | None, otherwise: int) -> int:
    """The number that an attribute tells; the other one where it tells none, or one of no page."""
    told = (told or "").strip()
    return int(told) if told.isdecimal() and len(told) < 10 else otherwise


def address_of(link: str | None, words: str) -> str:
    """What a link says besides its words: an address of e-mail or a telephone number, in brackets; else nothing."""
    found = _ADDRESS.match(link or "")
    told = unquote(found[1]).strip() if found else ""
    digits = _NO_DIGITS.sub("", told)
    again = told in words or ("@" not in told and digits in _NO_DIGITS.sub("", words))
    return "" if again else f" ({told})"


def power_sign(tag: str, before: str, within: str, parted: bool = False) -> str:
    """What stands before a number that an element of HTML raises: 10<sup>6</sup> is 10^6, not 106.

    Args:
        tag: The element's.
        before: What stands before it.
        within: What it says, or begins to say.
        parted: Whether a fraction's stroke and the number below it follow: 1<sup>1</sup>/<sub>2</sub> is 1 1/2.
    """
    beside = before and not before[-1].isspace() and before[-1] not in "([{"
    return (" " if parted else "^") if tag == "sup" and beside and _RAISED.match(within) else ""


def is_caption(words: str) -> bool:
    """Whether a picture's text, or a template's, says what is shown: fewer words are a name, as a badge has."""
    return len(words.split()) >= _CAPTION
