"""Reading pdf, docx and html, with the libraries of the extra `documents`. Each reader gives a file's passages.

They run in a process of their own, see `raisf.retrieval.corpus.parsing`.
"""

import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raisf.retrieval.corpus.docx_lists import BULLET, OFF, list_marks
from raisf.retrieval.corpus.docx_lists import W as _W
from raisf.retrieval.corpus.readers import Section, passages_of
from raisf.retrieval.corpus.splitting import BREAK, STROKES, power_sign, table_rows, without_leaders
from raisf.retrieval.corpus.titles import title_of
from raisf.retrieval.corpus.web import names_together, number_of, rows_with
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.text import clean

logger = logging.getLogger(__name__)

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_DOCX_SPACES = {f"{_W}tab": "\t", f"{_W}ptab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_DOCX_SIGNS = {f"{_M}sup": "^", f"{_M}den": "/"}  # what a formula shows by where it stands
_DOCX_HOLDERS = {f"{_W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo")}
_DOCX_RUNS = _DOCX_HOLDERS | {
    f"{_W}{name}" for name in ("r", "hyperlink", "smartTag", "fldSimple", "dir", "bdo", "ruby", "rubyBase")
}
_LIGATURES = {0xFB00 + place: letters for place, letters in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))}
_TITLE_LINES = 3
"""Lines that a title takes on a page at most."""
_OUTLINE = tuple("012345678")
"""The levels that a style gives a heading; 9 is that of text."""
_WIDEST = 50
"""Columns that a cell spans at most."""
_LABEL, _LONGEST_HEADING = 3, 15
"""Words of a heading in a style that is not called so at most; with more than the first number it is no sentence."""
_FIRST_ROW, _DIGIT = 0x0020, re.compile(r"\d")
_DOCX_NOTES = ("footnote", "endnote")
_Notes = Mapping[tuple[str, str | None], str]
_FREE = 1 << 22
_GROWTH = 50
"""Bytes of XML that a docx file may hold, for each of its own and beyond `_FREE`: XML is packed to a tenth or so."""


def read_pdf(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a pdf file, none across two pages, each with its `page`, counted from 1.

    Pages that hold pictures alone are logged.
    """
    import pypdf

    pictures = list[int]()

    def section(title: str, number: int, page: Any) -> Section:
        text = without_leaders(_unbroken(page.extract_text()))
        if number == 1 and ((below := _below_title(text, title)).strip() or len(reader.pages) > 1):
            text = below
        if not text.strip() and _has_pictures(page):
            pictures.append(number)
        return Section(title, "", {"page": number}, text)

    try:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{name} is locked with a password; save it without one, or leave it out")
        title = title_of(file, reader.metadata and reader.metadata.title)
        pages = enumerate(reader.pages, start=1)
        yield from passages_of(name, (section(title, number, page) for number, page in pages))
        if 0 < len(pictures) < len(reader.pages):
            logger.warning(
                "%s: %d of its %d pages have no text, only pictures, and are not in the index, the first of them page "
                "%d; run text recognition over it",
                *(name, len(pictures), len(reader.pages), pictures[0]),
            )
    except (InputError, MemoryError):
        raise
    except Exception as error:  # pypdf meets broken files with all sorts of errors besides its own
        raise InputError(
            f"{name}: not a pdf file that can be read ({_in_short(error)}); save it anew, or leave it out"
        ) from error


def read_docx(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a docx file, none across a heading; a row of a table, and a foot- or endnote, is a line of it."""
    import docx

    try:
        _check_unpacked(file, name)
        document = docx.Document(str(file))
        title = title_of(file, document.core_properties.title)
        styles = {style.style_id: style for style in document.styles}
        body, relations = document.element.body, document.part.rels.values()
        marks = list_marks(_docx_counted(body), relations, styles)
        yield from passages_of(name, _docx_sections(body, styles, dict(_docx_notes(relations)), marks, title))
    except (InputError, MemoryError):
        raise
    except Exception as error:  # python-docx lets those of lxml and zipfile through, and fails in ways of its own
        raise InputError(f"{name}: not a docx file ({_in_short(error)}); save it anew, or leave it out") from error


def _in_short(error: Exception) -> str:
    """An error's text on one line, cut; its class where it has no text."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _unbroken(text: str) -> str:
    """Words that a line end breaks with a hyphen, put together, and letters that are set as one, apart.

    On a page a soft hyphen is seen as any other. Encoders know no word with a letter such as `\ufb01`.
    """
    return re.sub(r"(?<=[^\W\d_])-\n(?=[a-zß-ÿ])", "", text.replace("\u00ad", "-").translate(_LIGATURES))


def _below_title(text: str, title: str) -> str:
    """A first page's text without the title that it begins with: each passage has that already."""
    lines = text.lstrip().splitlines()
    tops = (" ".join(lines[:count]) for count in range(1, _TITLE_LINES + 1))
    count = next((count for count, top in enumerate(tops, start=1) if clean(top).casefold() == title.casefold()), 0)
    return "\n".join(lines[count:])


def _has_pictures(page: Any) -> bool:
    try:
        return bool(page.images.keys())
    except Exception:  # a page whose text could be read is none that cannot be, whatever its pictures are
        return False


def _check_unpacked(file: Path, name: str) -> None:
    """Raises an InputError where a docx file holds more than any of its size does."""
    from zipfile import ZipFile

    with ZipFile(file) as packed:
        parts = packed.infolist()
    packed_size = file.stat().st_size
    xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
    if xml > _FREE + _GROWTH * packed_size or sum(part.file_size for part in parts) > 4 * (
        _FREE + _GROWTH * packed_size
    ):
        raise InputError(f"{name}: unpacked it is over {_GROWTH} times as large; save it anew, or leave it out")


def _docx_notes(relations: Iterable[Any]) -> Iterator[tuple[tuple[str, str | None], str]]:
    """The foot- and endnotes of a document, by what refers to them; of separators there are none."""
    from docx.oxml import parse_xml

    for relation in relations:
        kind = relation.reltype.rpartition("/")[2].removesuffix("s")
        if kind in _DOCX_NOTES and not relation.is_external:
            for note in parse_xml(relation.target_part.blob).iter(f"{_W}{kind}"):
                yield (f"{_W}{kind}Reference", note.get(f"{_W}id")), " ".join(map(_docx_text, _docx_blocks(note)))


def _docx_counted(body: Any) -> Iterator[Any]:
    """The paragraphs that are there to be counted: none of a text box, which Word writes twice, and none deleted."""
    shown = (one for one in body.iter(f"{_W}p") if next(one.iterancestors(f"{_W}txbxContent"), None) is None)
    return (paragraph for paragraph in shown if not _is_gone(paragraph))


def _docx_notes_of(element: Any, notes: _Notes) -> Iterator[str]:
    """The notes that a paragraph or a table refers to, but for what has been deleted or moved away."""
    for reference in element.iter(*(f"{_W}{kind}Reference" for kind in _DOCX_NOTES)):
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
    return any(mark is not None and mark.get(f"{_W}val") not in OFF for mark in marks)


def _docx_sections(
    body: Any, styles: Mapping[str, Any], notes: _Notes, marks: Mapping[Any, str], title: str
) -> Iterator[Section]:
    """The sections of a document's body. Read off the XML: python-docx repeats a cell for each column that it spans."""
    heading, level, lines = "", 0, list[str]()
    for element in _docx_blocks(body):
        below = list(_docx_notes_of(element, notes))
        if element.tag == f"{_W}tbl":
            lines += [*_docx_rows(element, marks), *below]
            continue
        text = _docx_text(element)
        named = element.find(f"{_W}pPr/{_W}pStyle")
        used = None if named is None else styles.get(named.get(f"{_W}val"))
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


def _docx_rows(table: Any, marks: Mapping[Any, str]) -> list[str]:
    """The rows of a table, by its columns' names where its first row has them; a table in a cell is text."""
    rows = [row for row in _docx_blocks(table, "tr") if not _is_gone(row)]
    cells = [list(_docx_blocks(row, "tc")) for row in rows]
    texts = {cell: _docx_cell(cell, marks) for row in cells for cell in row}
    wide = max(map(len, cells), default=0)
    captions = next((place for place, row in enumerate(cells) if not len(row) == 1 < wide), 0)
    above = [[texts[cell] for cell in row] for row in cells[:captions]]
    rows, cells = rows[captions:], cells[captions:]
    named = _names_columns(table, rows, [[texts[cell] for cell in row] for row in cells], _docx_grid(rows, texts, 1))
    over = {at: texts[row[0]] for at, row in enumerate(cells[named:], min(named, 1)) if len(row) == 1 < wide}
    told = rows_with(names_together(_docx_grid(rows, texts, named), named), bool(named), over)
    return [*table_rows(above, named=False), *told]


def _docx_grid(rows: Sequence[Any], texts: Mapping[Any, str], named: int) -> list[list[str]]:
    """The cells' texts by row and column: one merged over rows stands in each, a name over columns over each."""
    grid = list[list[str]]()
    for number, row in enumerate(rows):
        line = [""] * _span(row.find(f"{_W}trPr/{_W}gridBefore"), 0)
        for cell in _docx_blocks(row, "tc"):
            merged, column = cell.find(f"{_W}tcPr/{_W}vMerge"), len(line)
            below = merged is not None and merged.get(f"{_W}val") != "restart" and number > 0
            text = grid[-1][column] if below and column < len(grid[-1]) else texts[cell]
            wide = _span(cell.find(f"{_W}tcPr/{_W}gridSpan"), 1)
            line += [text, *[text if number < named else ""] * (wide - 1)]
        grid.append(line + [""] * (len(grid[0]) - len(line) if grid else 0))
    return grid


def _span(mark: Any, otherwise: int) -> int:
    """How many columns a mark says; otherwise where there is none, or it says nothing sensible."""
    return otherwise if mark is None else min(number_of(mark.get(f"{_W}val"), otherwise), _WIDEST)


def _names_columns(
    table: Any, rows: Sequence[Any], texts: Sequence[Sequence[str]], grid: Sequence[Sequence[str]]
) -> int:
    """How many of a table's first rows have its columns' names: are marked as such; one bold alone, or above numbers.

    That a first row is to look different, Word says of every new table: it counts with numbers below words alone.
    """
    marked = list(itertools.takewhile(lambda row: row.find(f"{_W}trPr/{_W}tblHeader") is not None, rows))
    if marked:
        return len(marked) if len(marked) < len(rows) else 1
    labelled = any(first.endswith(":") for first, *_ in filter(None, texts[1:]))  # `Room:` names what stands beside it
    if len(rows) < 2 or labelled or not all(texts[0]):
        return 0
    if _is_bold(rows[0]) and not any(map(_is_bold, rows[1:])):
        return 1
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
    runs = [run for run in row.iter(f"{_W}r") if clean(_docx_text(run))]
    bold = (run.find(f"{_W}rPr/{_W}b") for run in runs)
    return bool(runs) and all(mark is not None and mark.get(f"{_W}val") not in OFF for mark in bold)


def _docx_cell(cell: Any, marks: Mapping[Any, str]) -> str:
    """What a cell's paragraphs say, with their numbers, those of a table in it too; a number alone without its dot."""
    told = ((marks.get(one, "").replace(BULLET, ""), _docx_text(one)) for one in _docx_counted(cell))
    return clean(" ".join(mark + text if text.strip() else mark.rstrip(". ") for mark, text in told))


def _docx_blocks(body: Any, *kinds: str) -> Iterator[Any]:
    """The paragraphs and tables of a body, or what else is asked for; in content controls and tracked changes too."""
    wanted = {f"{_W}{kind}" for kind in kinds or ("p", "tbl")}
    waiting = [*body][::-1]
    while waiting:
        element = waiting.pop()
        if element.tag in wanted:
            yield element
        elif element.tag in _DOCX_HOLDERS:
            waiting += [*element][::-1]


def _docx_text(paragraph: Any) -> str:
    """What a paragraph shows, without the text boxes that hang on it."""
    words = list[str]()
    waiting = [*paragraph][::-1]
    while waiting:
        element = waiting.pop()
        if element.tag in (f"{_W}t", f"{_M}t"):
            words.append(element.text or "")
        elif element.tag in _DOCX_SPACES:
            words.append(_DOCX_SPACES[element.tag])
        elif (element.tag in _DOCX_RUNS or str(element.tag).startswith(_M)) and not _is_hidden(element):
            words.append(_DOCX_SIGNS.get(element.tag, "") or _raised_sign(element, words))
            waiting += [*element][::-1]
    return "".join(words)


def _raised_sign(run: Any, before: Sequence[str]) -> str:
    """The sign before a number that a run begins to raise, or a fraction; Word parts one number into several runs."""
    if run.tag == f"{_M}f":
        return " " if _last(before).isdigit() else ""  # 1 1/2
    if not _is_raised(run) or _is_raised(next(run.itersiblings(run.tag, preceding=True), None)):
        return ""
    raised = (run, *itertools.takewhile(_is_raised, run.itersiblings(run.tag)))
    within = "".join(text.text or "" for one in raised for text in one.iter(f"{_W}t"))
    stroke, below = [*itertools.islice(raised[-1].itersiblings(run.tag), 2), None, None][:2]
    parted = stroke is not None and _docx_text(stroke).strip() in STROKES and _is_raised(below, "subscript")
    return power_sign("sup", _last(before), within, parted)


def _last(words: Sequence[str]) -> str:
    """The last character of words, some of which are empty."""
    return next(filter(None, reversed(words)), "")[-1:]


def _is_raised(run: Any, how: str = "superscript") -> bool:
    mark = None if run is None else run.find(f"{_W}rPr/{_W}vertAlign")
    return mark is not None and mark.get(f"{_W}val") == how
