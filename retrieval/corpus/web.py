"""Reading html, with lxml of the extra `documents`: what a page shows, its tables by their columns' names."""

import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from raisf.retrieval.corpus.front_matter import without_front_matter
from raisf.retrieval.corpus.numerals import numeral
from raisf.retrieval.corpus.sections import Section, passages_of
from raisf.retrieval.corpus.shown import (
    STROKES,
    address_of,
    grid_of,
    number_of,
    power_sign,
    rows_in_words,
    span_of,
    table_rows,
)
from raisf.retrieval.corpus.splitting import BREAK, PUNCTUATION
from raisf.retrieval.corpus.templates import is_made, without_tags
from raisf.retrieval.corpus.titles import title_of
from raisf.retrieval.corpus.web_encoding import decoded
from raisf.retrieval.corpus.web_hidden import HEADINGS, drop_hidden, is_unclosed
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.text import SOFT_HYPHEN, clean

# The reading above a word (ruby) would break it. Of a head only the title has words: where a page leaves out its tags
# and the body's, lxml takes for the head's what stands before the first paragraph.
_UNSEEN = frozenset("script style template noscript title svg nav iframe select datalist textarea rt rp".split())
"""Elements that are not seen."""
_WORDY = 60
"""Words that no cell of a table without names has that is there for its data."""
_NUMBERED = re.compile(r"\s*\d+[.)]")
_CODE = re.compile(r"(<(?:pre|code)\b.{0,20000}?</(?:pre|code)>)", re.IGNORECASE | re.DOTALL)
_FORMULAS = {"msup": "^", "msubsup": "^", "mfrac": "/"}
"""What the last part of an element of MathML shows by where it stands."""
_NUMERALS = {"1": "decimal", "a": "lowerletter", "A": "upperletter", "i": "lowerroman", "I": "upperroman"}
_TERMS = {"dt": ":", "dd": "."}
"""What ends a term and its description, as `Deposit: Two rents.`, where they end in no mark of their own."""
_CELLS, _ROWS = ("td", "th"), ("thead", "tbody", "tfoot", "tr", "caption", "colgroup", "col")
# What begins an item, and what parts words that stand in one line.
_MARKS = {"li": "- "} | dict.fromkeys(("br", "option", "label", "button", "kbd"), " ")
_BLOCKS = frozenset(
    "address article aside blockquote caption center dd details div dl dt fieldset figcaption figure footer form "
    "h1 h2 h3 h4 h5 h6 header hr li main ol p pre section summary table tbody td tfoot th thead title tr ul".split()
)
PARTING = _BLOCKS.union(_MARKS)
"""Elements that part the words before them from those within."""


def read_html(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an html file's visible text without its navigation, none across a heading."""
    from lxml import html
    from lxml.etree import ErrorLevels, ParserError

    front, lines = without_front_matter(decoded(file.read_bytes(), name, encoding).splitlines(keepends=True))
    text = "".join(lines)
    template = front.text or text.lstrip().startswith("{%")  # and no page about templates
    if template:
        text = "".join(part if _CODE.match(part) else without_tags(part) for part in _CODE.split(text))
    if not text.strip():
        return passages_of(name, [Section(title_of(file, front.title), "", {}, front.text)])
    try:
        # Without huge_tree it leaves out, and tells nobody, what lies deeper than 256 elements; with it, than 2,048.
        parser = html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True)
        root = html.document_fromstring(text.encode(), parser=parser)
    except ParserError:
        return iter(())  # a page of comments only
    if lost := next((error for error in parser.error_log if error.level == ErrorLevels.FATAL), None):
        raise InputError(f"{name}: not read to its end ({lost.message.split(',')[0]}); mend it, or leave it out")
    drop_hidden(_all_of(root))
    for element in root.iter("title", *HEADINGS) if template else ():
        if is_made(element.text_content()):
            element.clear(keep_tail=True)
    told = clean(root.xpath("string(.//title[not(ancestor::svg)])"))
    heading = next(filter(None, map(_heading, root.iter("h1"))), "")
    if heading and (not told or told.startswith(heading)):
        told = heading  # behind it stands the name of the site
    title = title_of(file, told or front.title)
    return passages_of(name, _html_sections(root, title))


def html_text(block: str) -> str:
    """The visible text of a piece of HTML, its paragraphs parted by `BREAK`."""
    from lxml import html
    from lxml.etree import ParserError

    try:
        root = html.document_fromstring(block.encode(), parser=html.HTMLParser(encoding="utf-8", no_network=True))
    except ParserError:
        return ""  # the end of a tag, or its like
    drop_hidden(_all_of(root))
    return _shown(_all_of(root))


def _all_of(root: Any) -> list[Any]:
    """The elements of a page: what stands behind its end, a second page perhaps, the parser puts beside it."""
    return [root, *root.itersiblings()]


def _html_sections(root, title: str) -> Iterator[Section]:
    heading, level, body = "", 0, []
    for kind, text in _html_parts(_all_of(root), HEADINGS):
        if kind == "text" or not text:  # a picture may stand as a heading
            body.append(text)
            continue
        yield Section(title, heading, {}, "".join(body), level)
        heading, level, body = (text if text != title else ""), int(kind[1]), []
    yield Section(title, heading, {}, "".join(body), level)


def _shown(elements: Iterable[Any], before: str = "") -> str:
    """What is before, is seen of elements, and stands behind each of them, its paragraphs parted by `BREAK`."""
    return before + "".join(text for _, text in _html_parts(elements, last=before[-1:]))


def _heading(element: Any) -> str:
    return clean(_shown(element, _run(element.text)))


def _html_parts(elements: Iterable[Any], headings: Container[str] = (), last: str = "") -> Iterator[tuple[str, str]]:
    """Runs of text, and headings of these kinds, in the order of the page, behind a last character of others.

    Without recursion: pages nest as deep as they like.
    """
    waiting, numbers = [(element, False) for element in elements][::-1], dict[Any, int]()
    while waiting:
        element, left = waiting.pop()
        block = BREAK if element.tag in _BLOCKS else ""
        if left:
            told = address_of(element.get("href"), element.text_content()) if element.tag == "a" else ""
            told += "" if last.isspace() or last in PUNCTUATION else _TERMS.get(element.tag, "")
            text = told + block + _run(element.tail)
        else:
            waiting.append((element, True))
            if not isinstance(element.tag, str) or (element.tag in _UNSEEN and not _unclosed_nav(element)):
                continue
            if element.tag in headings:
                yield element.tag, _heading(element)
                continue
            if element.tag == "table" and (rows := _html_rows(element)):
                yield "text", BREAK + BREAK.join(rows)
                continue
            mark = _next_number(element, numbers) or _MARKS.get(element.tag, "")
            text = block + mark + _run(element.text)
            text = (_raised(element, last) or _apart(element, last, text)) + text
            waiting += [(child, False) for child in reversed(element)]
        last = text[-1:] or last
        yield "text", text


def _next_number(item: Any, numbers: dict[Any, int]) -> str:
    """What stands before an item of a numbered list, `3. `; the numbers are those of the lists' last items."""
    parent = item.getparent() if item.tag == "li" else None
    if parent is None or parent.tag != "ol" or parent.get("reversed") is not None:
        return ""
    if (form := _NUMERALS.get(parent.get("type", "1"))) is None:
        return ""
    last = numbers.get(parent, number_of(parent.get("start"), 1) - 1)
    numbers[parent] = number_of(item.get("value"), last + 1)
    return "" if _NUMBERED.match(item.text or "") else f"{numeral(numbers[parent], form)}. "


def _apart(element: Any, before: str, within: str) -> str:
    """A space between two spans that only a style sheet parts, where numbers would grow together: €80 and 12 m²."""
    sibling = element.getprevious() if element.tag == "span" else None
    if sibling is None or sibling.tag != "span" or sibling.tail:
        return ""
    ends = before[-1:], within[:1]
    return " " if all(map(str.isalnum, ends)) and any(map(str.isdigit, ends)) else ""


def _raised(element: Any, before: str) -> str:
    """The sign before a number that an element raises, which may be a link to a note, or of a formula's last part."""
    if element.tag == "mfrac" and before[-1:].isdigit():
        return " "  # 1 1/2
    if element.tag != "sup":
        within = element.getparent() if element.getnext() is None else None
        return "" if within is None or element.getprevious() is None else _FORMULAS.get(within.tag, "")
    behind, stroke = element.getnext(), clean(element.tail)
    parted = behind is not None and behind.tag == "sub" and stroke in STROKES
    return power_sign("sup", before, element.text_content(), parted)


def _unclosed_nav(element: Any) -> bool:
    return element.tag == "nav" and is_unclosed(element)


def _run(text: str | None) -> str:
    """A run of text; where its lines break says nothing."""
    return re.sub(r"\s+", " ", re.sub(f"{SOFT_HYPHEN}\\s*\n\\s*", "", text or ""))


def _html_rows(table) -> list[str]:
    """The rows of a table of data, by its columns' names where its first row has them; of a page's layout none."""
    laid = (part for part in table.iter("table", "nav", "iframe", *HEADINGS) if part is not table)
    if any(part.tag not in HEADINGS or not _in_name(part) for part in laid) or not _only_cells(table):
        return []
    rows = [cells for row in table.iter("tr") if (cells := list(row.iterchildren(*_CELLS)))]
    texts = {cell: clean(_shown([cell])) for row in rows for cell in row}
    if max(map(len, rows), default=0) < 2:
        return []
    above = [clean(_shown([caption])) for caption in table.iter("caption")]
    while _is_names(rows[0]) and len(rows[0]) == 1 < len(rows):
        above.append(texts[rows.pop(0)[0]])  # one name over all columns
    # The rows of names: below one that spans columns stand those of each. A table may consist of names alone.
    named = next((count for count, row in enumerate(rows) if not _is_names(row) or len(row) == 1), 1)
    named = named or int(_is_bold(rows[0]) and not any(map(_is_bold, rows[1:])))
    if not named and any(len(text.split()) > _WORDY for text in texts.values()):
        return []
    if named:  # which a long table's end may tell again
        names = [texts[cell] for cell in rows[named - 1]]
        rows[named:] = [row for row in rows[named:] if [texts[cell] for cell in row] != names]
    grid = grid_of(rows, texts, named)
    if not named:
        grid = [_led(row, line) for row, line in zip(rows, grid, strict=True)]
    captions = table_rows([[text] for text in above], named=False)
    wide, others = max(map(len, grid[: named or 1])), enumerate(rows[named:], start=min(named, 1))
    over = {at: texts[row[0]] for at, row in others if len(row) == 1 < wide <= span_of(row[0], "colspan")}
    return list(filter(None, [*captions, *rows_in_words(grid, named, over)]))


def _is_names(row: list[Any]) -> bool:
    """Whether a row has columns' names: in a table's head, or all that it says, of which a corner may be nothing."""
    names = [cell for cell in row if cell.tag == "th"]
    others = (cell for cell in row if cell.tag != "th")
    in_head = row[0].getparent().getparent().tag == "thead"
    return in_head or len(names) == len(row) or (len(names) > 1 and not any(clean(_shown([one])) for one in others))


def _in_name(part: Any) -> bool:
    """Whether a part of a table stands in a cell with a name, or in its caption."""
    return next(part.iterancestors("th", "caption", "td"), part).tag in ("th", "caption")


def _is_bold(row: list[Any]) -> bool:
    """Whether all that the cells of a row say is bold."""
    said = [(clean(cell.text_content()), list(cell.iter("b", "strong"))) for cell in row]
    told = [clean("".join(part.text_content() for part in bold)) == words for words, bold in said if words]
    return len(told) > 1 and all(told)


def _led(row: list[Any], line: list[str]) -> list[str]:
    """The texts of a row; where its first cell names what the others tell, as `Owner: the town`."""
    first, *others = line
    if row[0].tag == "th" and len(row) == len(line) > 1 and not any(cell.tag == "th" for cell in row[1:]):
        return [f"{first.rstrip(' :')}: {others[0]}", *others[1:]] if first and others[0] else line
    return line


def _only_cells(table) -> bool:
    """Whether all of a table's text is in the cells of its rows."""
    for part in table.iter("table", "thead", "tbody", "tfoot", "tr"):
        allowed = _CELLS if part.tag == "tr" else _ROWS
        strange = (child for child in part if isinstance(child.tag, str) and child.tag not in allowed)
        if clean(part.text) or any(clean(child.tail) for child in part) or next(strange, None) is not None:
            return False
    return True
