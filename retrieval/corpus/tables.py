"""Reading csv and tsv files, streamed: rows that have a text, rows that are told in words, and ColBERT's collection."""

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from raisf.retrieval.corpus.lines import LONGEST_LINE, PACKED, read_lines
from raisf.retrieval.corpus.rows import row_passages
from raisf.retrieval.corpus.sections import Section, passages_of
from raisf.retrieval.corpus.shown import table_rows
from raisf.retrieval.corpus.titles import title_of
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.text import clean

_COLLECTION = re.compile(r"\d+\t[^\t]*(\t[^\t]*)?$")
_COLLECTIONS = re.compile(r"collection|corpus|passages|psgs|(?<![a-z])part(?![a-z])", re.IGNORECASE)
"""What a collection's file is called whose numbers begin with neither 0 nor 1; `parts.tsv` is a list of parts."""
_NAMING = ("title", "name")
"""Columns that say what a row is about."""
_RECORD = 5
"""Columns from which on each row stands alone: among others like it a reader takes a cell of the wrong one."""
_FIELD, _FIELDS = 200, 2000
"""Characters of a cell, and of all cells and their columns' names together, up to which a row can be filtered by them:
each passage that the row is cut into repeats them."""
_HELD = 1000
"""Rows that become passages together: no passage spans more."""

_BLANK = " \r\n\t,;|"
"""What lines hold that a spreadsheet's empty rows are written as."""
_LETTER = re.compile(r"[^\W\d_]")
_CAPTIONS = 3
"""Rows at most that stand above the columns' names, empty ones among them."""
_SIGN = re.compile(r"[,;\t]")
_LOOKED_AT = 10
"""Lines behind the first by which the columns are told apart."""
_VALUE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?:[ T].*)?|[^\s@]+@[^\s@]+\.\w+|https?://\S+", re.IGNORECASE)
"""A date, an address of e-mail or of a page: with another below it none of these is a column's name."""
_NUMBER = re.compile(r"\d{1,30}")
_SEPARATOR = re.compile(r"sep=([,;\t|])", re.IGNORECASE)

_Row = tuple[int, list[str]]
"""The line that a row begins in, and its cells."""


def read_table(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a csv or tsv file's rows: of their `text`, or where no column is called so, of their cells."""
    csv.field_size_limit(LONGEST_LINE)  # the library's own limit of 128 kB a field is below a long document
    lines = read_lines(file, name, encoding)
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() not in PACKED]
    usual = "\t" if suffixes[-1:] == [".tsv"] else ","
    begun, told = _begin(lines)
    lines = itertools.chain(begun, lines)
    if usual == "\t" and _COLLECTION.match(begun[-1]) and _is_collection(file, begun[-1].partition("\t")[0]):
        yield from _collection_passages(lines, name)
        return
    looked_at = list(itertools.islice(lines, len(begun) + _LOOKED_AT))
    lines = itertools.chain(looked_at, lines)
    parsed = _parsed(lines, name, told or _delimiter(looked_at[len(begun) - 1 :], usual))
    caption, parsed = _without_caption(parsed)
    rows = _even(parsed, name, usual)
    names, rows = _named(rows)
    columns = _lower(names)
    if "text" not in columns:
        yield from _passages_in_words(rows, names, title_of(file, caption), name, caption)
        return
    if double := next((column for column in columns if column and columns.count(column) > 1), None):
        raise InputError(f"{name}: its first line names the column {double!r} twice; rename one, or leave it out")
    shared = {"title": caption} if caption else {}
    for line, cells in rows:
        row = {**shared, **dict(zip(columns, cells, strict=True))}
        yield from row_passages({**row, "text": _below(caption, row.get("title", ""), row["text"])}, name, line)


def _is_collection(file: Path, first: str) -> bool:
    """Whether a table of numbers and texts is ColBERT's: by its first number, or its name. Others' numbers are told."""
    return first in ("0", "1") or _COLLECTIONS.search(file.stem) is not None


def _begin(lines: Iterator[str]) -> tuple[list[str], str | None]:
    """The lines up to the first that says something, and the delimiter if Excel's line `sep=;` before it names one.

    Lines before that one are given as empty: they count as lines of the file.
    """
    begun, told = [next(lines, "")], None
    while (said := _SEPARATOR.fullmatch(begun[-1].strip("\r\n "))) or (begun[-1] and not begun[-1].strip(_BLANK)):
        told = said[1] if said else told
        begun[-1:] = ["\n", next(lines, "")]
    return begun, told


def _delimiter(lines: Sequence[str], usual: str) -> str:
    """The delimiter of a table, by its first lines: of `,`, `;` and tab the one that parts all of them alike.

    A bar parts columns where none of these does: cells hold it too, for a choice.
    First lines of several words that nothing parts are captions, where three rows or more follow that are all alike,
    but for empty cells left off their ends.
    """

    def fits(sign: str) -> tuple[bool, float, int]:
        try:
            rows = list(filter(None, csv.reader(lines, delimiter=sign)))
            counts = [len(cells) for cells in rows]
            told = list(itertools.takewhile(lambda cells: len(cells) == 1 < len(cells[0].split()), rows[:_CAPTIONS]))
            below = counts[len(told) :]
            first, *others = below if len(below) > 2 and _even_below(below) else counts
        except (csv.Error, ValueError):
            return False, 0.0, 0
        alike = sum(count == first for count in others) / max(1, len(others)) if first > 1 else 0.0
        return alike > 0, alike, first

    found = max((usual, ",", ";", "\t"), key=fits)
    return "|" if fits("|")[0] and not fits(found)[0] else found


def _even_below(counts: Sequence[int]) -> bool:
    """Whether rows of so many cells, the names first, are a table: none has one cell, most have as many as names."""
    return min(counts) > 1 and max(counts) == counts[0] and 2 * counts.count(counts[0]) > len(counts)


def _parsed(lines: Iterable[str], name: str, delimiter: str) -> Iterator[_Row]:
    """The rows of a table that have cells."""
    begun = 0

    def noted() -> Iterator[str]:
        nonlocal begun
        for number, line in enumerate(lines, start=1):
            if not begun and line.strip("\r\n"):
                begun = number  # of the row that is being read: its cells may have lines
            yield line

    rows = csv.reader(noted(), delimiter=delimiter, strict=True)
    try:
        for cells in filter(None, rows):
            line, begun = begun, 0
            yield line, cells
    except csv.Error as error:
        # The line that the row begins in: a quote that is never closed takes in all lines behind it.
        raise InputError(f"{name}, line {begun or rows.line_num}: not a table ({error}); check its quotes") from error


def _without_caption(rows: Iterator[_Row]) -> tuple[str, Iterator[_Row]]:
    """What a spreadsheet has in rows of their own above the columns' names, and the rows from these on.

    Such a row has more words than one in its first cell and nothing in two or more others, or no others, where all rows
    below are a table's; the names below it are words in all cells, and two rows or more stand below them.
    """
    head = list(itertools.islice(rows, _CAPTIONS + 3))
    for names in range(1, len(head) - 2):
        above, wide = head[:names], len(head[names][1])
        told = [cells[0].strip() for _, cells in above]
        even = _even_below([len(cells) for _, cells in head[names:]])
        alone = all(
            (len(cells) == wide > 2 and not any(map(str.strip, cells[1:]))) or (len(cells) == 1 and even)
            for _, cells in above
        )
        worded = all(not caption or len(caption.split()) > 1 for caption in told) and any(told)
        if alone and worded and all(map(_LETTER.search, head[names][1])):
            return " ".join(filter(None, told)), itertools.chain(head[names:], rows)
    return "", itertools.chain(head, rows)


def _named(rows: Iterator[_Row]) -> tuple[list[str], Iterator[_Row]]:
    """The columns' names, and the rows below them; empty names where the first row is one of these already."""
    (line, first), second = next(rows, (0, [])), next(rows, None)
    below = rows if second is None else itertools.chain([second], rows)
    names = [clean(cell) for cell in first]
    pairs = list(zip(names, map(clean, second[1]), strict=True)) if second else []
    numbers = list(filter(_NUMBER.fullmatch, pairs[0])) if pairs else []
    numbered = len(numbers) == 2 and (len(pairs) == 2 or int(numbers[1]) == int(numbers[0]) + 1)
    numbered = numbered and not any(map(_NUMBER.fullmatch, names[1:]))
    values = numbered or any(all(map(_VALUE.fullmatch, pair)) for pair in pairs)
    return ([""] * len(names), itertools.chain([(line, first)], below)) if values else (names, below)


def _even(rows: Iterable[_Row], name: str, usual: str) -> Iterator[_Row]:
    """The rows of a table, that with the columns' names first, each with as many cells.

    Spreadsheets leave empty cells off a csv file's rows; a row that ends before its text is broken.

    Raises:
        InputError: A row has more cells, or too few.
    """
    columns = named = needed = 0
    for line, cells in rows:
        if not columns:
            columns, named = len(cells), line
            names = [clean(cell).lower() for cell in cells]
            needed = columns if usual != "," else names.index("text") + 1 if "text" in names else 1
        unparted = 1 == len(cells) < columns and _SIGN.search(cells[0])  # by another sign than the first line's
        if unparted or not needed <= len(cells) <= columns:
            state = "more" if len(cells) > columns else "fewer"
            raise InputError(f"{name}, line {line}: {state} than the {columns} columns of line {named}")
        yield line, cells + [""] * (columns - len(cells))


def _below(caption: str, title: str, text: str) -> str:
    """A row's text below the table's caption, where that is no passage's title."""
    return f"{caption.rstrip(' :')}: {text}" if caption and text.strip() and clean(title) != clean(caption) else text


def _passages_in_words(
    rows: Iterator[_Row], names: Sequence[str], about: str, name: str, caption: str
) -> Iterator[Passage]:
    """The passages of rows that have no `text`: each cell is written behind its column's name.

    `Plan: Lite; Fee: $39.`, and several rows a passage, as in a document. Where a column says what each row is about,
    or there are many, a row is a passage of its own, with that or the table's name for a title, and its short cells
    are metadata.
    """
    columns = _lower(names)
    naming = next((columns.index(column) for column in _NAMING if column in columns), None)
    if naming is None and len(columns) < _RECORD:
        yield from passages_of(name, _sections(rows, names, about, "" if clean(caption) == about else caption))
        return
    others = [place for place in range(len(names)) if place != naming]
    told = [names[place] for place in others]
    for line, cells in rows:
        title = about if naming is None else clean(cells[naming]) or about
        text = _in_words(told, [cells[place] for place in others]) or _in_words(names, cells)
        yield from row_passages(
            {**_fields(columns, cells), "title": title, "text": _below(caption, title, text)}, name, line
        )


def _lower(names: Iterable[str]) -> list[str]:
    """The columns' names in small letters; Python's for the Turkish \u0130 are two characters, which nobody types."""
    return [name.replace("\u0130", "i").lower() for name in names]


def _fields(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """The short cells of a row by their columns, the first of those that are called the same."""
    fields: dict[str, str] = {}
    left = _FIELDS
    for column, cell in zip(columns, cells, strict=True):
        size = len(column) + len(cell)
        if cell and column not in {"", "id", *fields} and len(cell) <= _FIELD and size <= left:
            fields[column] = cell
            left -= size
    return fields


def _sections(rows: Iterator[_Row], names: Sequence[str], about: str, heading: str) -> Iterator[Section]:
    """The rows as parts of a document, `_HELD` each."""
    while held := list(itertools.islice(rows, _HELD)):
        told = [([(0, line)], text) for line, cells in held if (text := _in_words(names, cells))]
        yield Section.of_blocks(about, heading, 0, None, told)


def _in_words(names: Sequence[str], cells: Sequence[str]) -> str:
    return table_rows([names, [clean(cell) for cell in cells]], named=True)[1]


def _collection_passages(lines: Iterable[str], name: str) -> Iterator[Passage]:
    """The passages of ColBERT's collection.tsv: id, text or `title | text`, maybe title; quotes are only quotes.

    Source: colbert-ai, `colbert/evaluation/loaders.py`.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        pid, *cells = line.rstrip("\r\n").split("\t")
        if len(cells) not in (1, 2):
            raise InputError(
                f"{name}, line {number}: expected an id, a text and maybe a title, found {1 + len(cells)} columns"
            )
        text, title = (
            cells if len(cells) == 2 else cells[0].split(" | ", 1)[::-1] if " | " in cells[0] else (cells[0], "")
        )
        yield from row_passages({"id": pid, "text": text, "title": title}, name, number)
