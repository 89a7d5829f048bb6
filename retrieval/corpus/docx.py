"""Reading docx files, with the extra `documents`, in a process of their own: see `raisf.retrieval.corpus.parsing`."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raisf.retrieval.corpus.docx_lists import BULLET, is_on, list_marks, value_of
from raisf.retrieval.corpus.docx_lists import W as _W
from raisf.retrieval.corpus.sections import Section, passages_of
from raisf.retrieval.corpus.shown import STROKES, WIDEST, number_of, over_columns, power_sign, rows_in_words, table_rows
from raisf.retrieval.corpus.splitting import BREAK
from raisf.retrieval.corpus.titles import title_of
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError, in_short
from raisf.utils.text import clean

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_SPACES = {f"{_W}tab": "\t", f"{_W}ptab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_SIGNS = {f"{_M}sup": "^", f"{_M}den": "/"}  # what a formula shows by where it stands
_OPERATOR = re.compile(r"\S\s*[-+\u2212\u00b1*/\u00b7\u00d7=]")
"""What parts a term of a formula: as the half of a fraction it stands in brackets."""
_HOLDERS = {f"{_W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo")}
_RUNS = _HOLDERS | {
    f"{_W}{name}" for name in ("r", "hyperlink", "smartTag", "fldSimple", "dir", "bdo", "ruby", "rubyBase")
}
_OUTLINE = tuple("012345678")
"""The levels that a style gives a heading; 9 is that of text."""
_LABEL, _LONGEST_HEADING = 3, 15
"""Words of a heading in a style that is not called so at most; with more than the first number it is no sentence."""
_FIRST_ROW, _DIGIT = 0x0020, re.compile(r"\d")
_NOTES = ("footnote", "endnote")
_PARTS = {"officeDocument", "core-properties", "styles", "numbering", *(f"{note}s" for note in _NOTES)}
"""The kinds of parts that are read, as relations name them."""
_Notes = Mapping[tuple[str, str | None], str]
_FREE = 1 << 22
_GROWTH = 50
"""Bytes of XML that a docx file may hold, for each of its own and beyond `_FREE`: XML is packed to a tenth or so."""


def read_docx(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a docx file, none across a heading; a row of a table, and a foot- or endnote, is a line of it."""
    import docx

    try:
        _check_unpacked(file, name)
        _open_only_what_is_read()
        document = docx.Document(str(file))
        title = title_of(file, document.core_properties.title)
        styles = {style.style_id: style for style in document.styles}
        body, relations = document.element.body, document.part.rels.values()
        marks = list_marks(_counted(body), relations, styles)
        yield from passages_of(name, _sections(body, styles, dict(_notes(relations)), marks, title))
    except (InputError, MemoryError):
        raise
    except Exception as error:  # python-docx lets those of lxml and zipfile through, and fails in ways of its own
        raise InputError(f"{name}: not a docx file ({in_short(error)}); save it anew, or leave it out") from error


def _check_unpacked(file: Path, name: str) -> None:
    """Raises an InputError where a docx file holds more than any of its size does."""
    from zipfile import ZipFile

    with ZipFile(file) as packed:
        parts = packed.infolist()
    room = _FREE + _GROWTH * file.stat().st_size
    xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
    if xml > room or sum(part.file_size for part in parts) > 4 * room:
        raise InputError(f"{name}: unpacked it is over {_GROWTH} times as large; save it anew, or leave it out")


def _open_only_what_is_read() -> None:
    """Has python-docx leave all other parts closed: Word, too, opens a file whose pictures are missing."""
    from docx.opc.constants import RELATIONSHIP_TARGET_MODE
    from docx.opc.pkgreader import _SerializedRelationship

    def is_left_closed(relation: Any) -> bool:
        kind = relation.reltype.rpartition("/")[2]
        return relation.target_mode == RELATIONSHIP_TARGET_MODE.EXTERNAL or kind not in _PARTS

    relations: Any = _SerializedRelationship
    relations.is_external = property(is_left_closed)


def _notes(relations: Iterable[Any]) -> Iterator[tuple[tuple[str, str | None], str]]:
    """The foot- and endnotes of a document, by what refers to them; of separators there are none."""
    from docx.oxml import parse_xml

    for relation in relations:
        kind = relation.reltype.rpartition("/")[2].removesuffix("s")
        if kind in _NOTES and not relation.is_external:
            for note in parse_xml(relation.target_part.blob).iter(f"{_W}{kind}"):
                yield (f"{_W}{kind}Reference", note.get(f"{_W}id")), " ".join(map(_text, _blocks(note)))


def _counted(body: Any) -> Iterator[Any]:
    """The paragraphs that are there to be counted: none of a text box, which Word writes twice, and none deleted."""
    shown = (one for one in body.iter(f"{_W}p") if next(one.iterancestors(f"{_W}txbxContent"), None) is None)
    return (paragraph for paragraph in shown if not _is_gone(paragraph))


def _notes_of(element: Any, notes: _Notes) -> Iterator[str]:
    """The notes that a paragraph or a table refers to, but for what has been deleted or moved away."""
    for reference in element.iter(*(f"{_W}{kind}Reference" for kind in _NOTES)):
        if not _is_gone(reference):
            yield notes.get((reference.tag, reference.get(f"{_W}id")), "")


def _is_gone(element: Any) -> bool:
    """Whether an element has been deleted or moved away, or the row of a table that holds it."""
    gone = (f"{_W}del", f"{_W}moveFrom")
    holders = (element, *element.iterancestors(*gone, f"{_W}tr"))
    return any(one.tag in gone or one.find(f"{_W}trPr/{_W}del") is not None for one in holders)


def _is_hidden(run: Any) -> bool:
    """Whether a run is marked as hidden text, or struck out: that holds no longer."""
    marks = (run.find(f"{_W}rPr/{_W}{name}") for name in ("vanish", "strike", "dstrike"))
    return any(map(is_on, marks))


def _sections(
    body: Any, styles: Mapping[str, Any], notes: _Notes, marks: Mapping[Any, str], title: str
) -> Iterator[Section]:
    """The sections of a document's body. Read off the XML: python-docx repeats a cell for each column that it spans."""
    heading, level, lines = "", 0, list[str]()
    for element in _blocks(body):
        below = list(_notes_of(element, notes))
        if element.tag == f"{_W}tbl":
            lines += [*_rows(element, marks), *below]
            continue
        text = _text(element)
        used = styles.get(value_of(element, f"{_W}pPr/{_W}pStyle") or "")
        style = (used and used.name) or ""
        depth = _level_of(used, text) if text.strip() else 0
        mark = marks.get(element, "") if text.strip() else ""
        if not depth:
            lines += [mark + text, *below]
            continue
        yield Section(title, heading, {}, BREAK.join(lines), level)
        heading, lines, level = ("" if style == "Title" else mark.replace(BULLET, "") + clean(text)), below, depth
        title = clean(text) if style == "Title" else title
    yield Section(title, heading, {}, BREAK.join(lines), level)


def _level_of(style: Any, text: str) -> int:
    """The level of a heading, 0 of another text: a style of one's own is what it is based on, unless it says otherwise.

    Contracts have whole clauses in such styles.
    """
    name = (style and style.name) or ""
    if name.startswith(("Heading", "Title")):
        return 1 if name == "Title" else 1 + int(name[-1]) if name[-1].isdecimal() else 2
    words = text.split()
    if style is None or len(words) > _LONGEST_HEADING or (len(words) > _LABEL and words[-1].endswith((".", ";"))):
        return 0
    told = style.element.find(f"{_W}pPr/{_W}outlineLvl")
    if told is not None:
        level = told.get(f"{_W}val")
        return 2 + int(level) if level in _OUTLINE else 0
    base = getattr(style, "base_style", None)  # a list's has none
    return 0 if base is not None and base.name == "Title" else _level_of(base, text)


def _rows(table: Any, marks: Mapping[Any, str]) -> list[str]:
    """The rows of a table, by its columns' names where its first row has them; a table in a cell is text."""
    rows = [row for row in _blocks(table, "tr") if not _is_gone(row)]
    cells = [list(_blocks(row, "tc")) for row in rows]
    texts = {cell: _cell(cell, marks) for row in cells for cell in row}
    wide = max(map(len, cells), default=0)
    captions = next((place for place, row in enumerate(cells) if not len(row) == 1 < wide), 0)
    above = [[texts[cell] for cell in row] for row in cells[:captions]]
    rows, cells = rows[captions:], cells[captions:]
    named = _names_columns(table, rows, [[texts[cell] for cell in row] for row in cells], _grid(rows, texts, 1))
    over = {at: texts[row[0]] for at, row in enumerate(cells[named:], min(named, 1)) if len(row) == 1 < wide}
    return [*table_rows(above, named=False), *rows_in_words(_grid(rows, texts, named), named, over)]


def _grid(rows: Sequence[Any], texts: Mapping[Any, str], named: int) -> list[list[str]]:
    """The cells' texts by row and column: one merged over rows stands in each, a name over columns over each."""
    grid = list[list[str]]()
    for number, row in enumerate(rows):
        line = [""] * _span(row.find(f"{_W}trPr/{_W}gridBefore"), 0)
        for cell in _blocks(row, "tc"):
            merged, column = cell.find(f"{_W}tcPr/{_W}vMerge"), len(line)
            below = merged is not None and merged.get(f"{_W}val") != "restart" and number > 0
            text = grid[-1][column] if below and column < len(grid[-1]) else texts[cell]
            wide = _span(cell.find(f"{_W}tcPr/{_W}gridSpan"), 1)
            line += over_columns(text, wide, number < named, first=not line or not named)
        grid.append(line + [""] * (len(grid[0]) - len(line) if grid else 0))
    return grid


def _span(mark: Any, otherwise: int) -> int:
    """How many columns a mark says; otherwise where there is none, or it says nothing sensible."""
    return otherwise if mark is None else min(number_of(mark.get(f"{_W}val"), otherwise), WIDEST)


def _names_columns(
    table: Any, rows: Sequence[Any], texts: Sequence[Sequence[str]], grid: Sequence[Sequence[str]]
) -> int:
    """How many of a table's first rows have its columns' names: are marked as such; one bold alone, or above numbers.

    That a first row is to look different, Word says of every new table: it counts with numbers below words alone.
    """
    marked = list(itertools.takewhile(lambda row: is_on(row.find(f"{_W}trPr/{_W}tblHeader")), rows))
    if marked:
        return len(marked) if len(marked) < len(rows) else 1
    labelled = any(first.endswith(":") for first, *_ in filter(None, texts[1:]))  # `Room:` names what stands beside it
    if len(rows) < 2 or labelled or not all(texts[0][1:] or texts[0]):  # a corner may be empty
        return 0
    if _is_bold(rows[0]) and not any(map(_is_bold, rows[1:])):
        return 1
    if rows[0].find(f"{_W}trPr/{_W}tblHeader") is not None:  # it is said to be none
        return 0
    look = table.find(f"{_W}tblPr/{_W}tblLook")
    told = "" if look is None else look.get(f"{_W}firstRow") or ""
    differs = told in ("1", "true", "on") or (
        not told and look is not None and int(look.get(f"{_W}val") or "0", 16) & _FIRST_ROW
    )
    columns = zip(*grid, strict=False)
    numbers = (not _DIGIT.search(name) and all(map(_DIGIT.search, cells)) for name, *cells in columns)
    return int(bool(differs) and len(rows) > 2 and not any(map(_DIGIT.search, texts[0])) and any(numbers))


def _is_bold(row: Any) -> bool:
    """Whether all that a row says is bold."""
    runs = [run for run in row.iter(f"{_W}r") if clean(_text(run))]
    return bool(runs) and all(is_on(run.find(f"{_W}rPr/{_W}b")) for run in runs)


def _cell(cell: Any, marks: Mapping[Any, str]) -> str:
    """What a cell's paragraphs say, with their numbers, those of a table in it too; a number alone without its dot."""
    told = ((marks.get(one, "").replace(BULLET, ""), _text(one)) for one in _counted(cell))
    return clean(" ".join(mark + text if text.strip() else mark.rstrip(". ") for mark, text in told))


def _blocks(body: Any, *kinds: str) -> Iterator[Any]:
    """The paragraphs and tables of a body, or what else is asked for; in content controls and tracked changes too."""
    wanted = {f"{_W}{kind}" for kind in kinds or ("p", "tbl")}
    waiting = [*body][::-1]
    while waiting:
        element = waiting.pop()
        if element.tag in wanted:
            yield element
        elif element.tag in _HOLDERS:
            waiting += [*element][::-1]


def _text(paragraph: Any) -> str:
    """What a paragraph shows, without the text boxes that hang on it."""
    words = list[str]()
    waiting = [*paragraph][::-1]
    while waiting:
        element = waiting.pop()
        if isinstance(element, str):
            words.append(element)
        elif element.tag in (f"{_W}t", f"{_M}t"):
            words.append(element.text or "")
        elif element.tag in _SPACES:
            words.append(_SPACES[element.tag])
        elif (element.tag in _RUNS or str(element.tag).startswith(_M)) and not _is_hidden(element):
            before, behind = _around(element)
            words += [_SIGNS.get(element.tag, "") or _raised_sign(element, words), before]
            waiting += [behind, *[*element][::-1]]
    return "".join(words)


def _around(part: Any) -> tuple[str, str]:
    """What a part of a formula shows before and behind its text: brackets, a root, a sum."""
    match part.tag.removeprefix(_M):
        case "d":
            first, last = (part.find(f"{_M}dPr/{_M}{name}Chr") for name in ("beg", "end"))
            return _sign(first, "("), _sign(last, ")")
        case "e" if part.getparent().tag == f"{_M}rad":  # behind its degree
            return "\u221a(", ")"
        case "nary":
            return _sign(part.find(f"{_M}naryPr/{_M}chr"), "\u222b"), ""
        case "num" | "den" | "sup" if [one.tag for one in part] == [f"{_M}d"]:  # which has brackets
            return "", ""
        case "num" | "den" | "sup" if _OPERATOR.search("".join(text.text or "" for text in part.iter(f"{_M}t"))):
            return "(", ")"
    return "", ""


def _sign(told: Any, usual: str) -> str:
    return usual if told is None else told.get(f"{_M}val", "")


def _raised_sign(run: Any, before: Sequence[str]) -> str:
    """The sign before a number that a run begins to raise, or a fraction; Word parts one number into several runs."""
    if run.tag == f"{_M}f":
        return " " if _last(before).isdigit() else ""  # 1 1/2
    if not _is_raised(run) or _is_raised(next(run.itersiblings(run.tag, preceding=True), None)):
        return ""
    raised = (run, *itertools.takewhile(_is_raised, run.itersiblings(run.tag)))
    within = "".join(text.text or "" for one in raised for text in one.iter(f"{_W}t"))
    stroke, below = [*itertools.islice(raised[-1].itersiblings(run.tag), 2), None, None][:2]
    parted = stroke is not None and _text(stroke).strip() in STROKES and _is_raised(below, "subscript")
    return power_sign("sup", _last(before), within, parted)


def _last(words: Sequence[str]) -> str:
    """The last character of words, some of which are empty."""
    return next(filter(None, reversed(words)), "")[-1:]


def _is_raised(run: Any, how: str = "superscript") -> bool:
    return value_of(run, f"{_W}rPr/{_W}vertAlign") == how
