"""Reading pdf, docx and html, with the libraries of the extra `documents`. Each reader gives a file's passages.

They run in a process of their own, see `raisf.retrieval.corpus.parsing`.
"""

import codecs
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from raisf.retrieval.corpus.lines import marked_encoding, wrong_encoding
from raisf.retrieval.corpus.readers import Section, passages_of
from raisf.retrieval.corpus.splitting import BREAK, address_of, row_text
from raisf.retrieval.corpus.titles import title_of
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.text import clean

# How far into a page its encoding must be declared. Source: the HTML standard, section 4.2.5.4.
_DECLARED_WITHIN = 1024
# What a page means by the encodings that it declares: browsers read more into these names than they say, and a
# declaration that was found byte by byte is not in UTF-16. Source: https://encoding.spec.whatwg.org/#names-and-labels
# and the HTML standard, section 13.2.3.2. By Python's names, which all spellings of one encoding have in common.
_MEANT = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
}
# The encodings that a page may declare, by Python's names: those of that standard. Python has others, such as
# unicode_escape, that no browser reads and that make anything of a page.
_DECLARABLE = frozenset(
    "ascii utf-8 utf-8-sig utf-16 utf-16-le utf-16-be cp866 iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 "
    "iso8859-6 iso8859-7 iso8859-8 iso8859-9 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 koi8-r koi8-u "
    "mac-roman mac-cyrillic cp874 tis-620 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 gb2312 gbk "
    "gb18030 hz big5 big5hkscs euc_jp iso2022_jp shift_jis cp932 euc_kr cp949".split()
)
_CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_XML_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_DOCX_SPACES = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_DOCX_HOLDERS = {f"{_W}{name}" for name in ("sdt", "sdtContent", "customXml", "ins", "moveTo")}
_DOCX_RUNS = _DOCX_HOLDERS | {f"{_W}{name}" for name in ("r", "hyperlink", "smartTag", "fldSimple", "dir", "bdo")}
_FREE = 1 << 22
_GROWTH = 50
"""Bytes of XML that a docx file may hold, for each of its own and beyond `_FREE`: XML is packed to a tenth or so."""
_UNSEEN = ("script", "style", "template", "noscript", "head", "svg", "nav", "iframe")
_WORDY = 60
"""Words that no cell of a table has that is there for its data."""
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = frozenset(
    "address article aside blockquote caption dd details div dl dt fieldset figcaption figure footer form header hr "
    "li main ol p pre section summary table tbody td tfoot th thead title tr ul".split()
)


def read_pdf(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a pdf file, none across two pages, each with its `page`, counted from 1."""
    import pypdf

    try:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{name} is locked with a password; save it without one, or leave it out")
        title, number = title_of(file, reader.metadata and reader.metadata.title), 0
        for page_number, page in enumerate(reader.pages, start=1):
            text = _unbroken(page.extract_text())
            for passage in passages_of(name, [Section(title, "", {"page": page_number}, text)]):
                number += 1
                yield Passage(f"{name}#{number}", passage.text, title, source=name, metadata=passage.metadata)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # pypdf meets broken files with all sorts of errors besides its own
        raise InputError(
            f"{name}: not a pdf file that can be read ({_told(error)}); save it anew, or leave it out"
        ) from error


def read_docx(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a docx file, none across a heading; a row of a table is a line of its text."""
    import docx

    try:
        _check_unpacked(file, name)
        document = docx.Document(str(file))
        title = title_of(file, document.core_properties.title)
        styles = {style.style_id: style.name or "" for style in document.styles}
        yield from passages_of(name, _docx_sections(document.element.body, styles, title))
    except (InputError, MemoryError):
        raise
    except Exception as error:  # python-docx lets those of lxml and zipfile through, and fails in ways of its own
        raise InputError(f"{name}: not a docx file ({_told(error)}); save it anew, or leave it out") from error


def read_html(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an html file's visible text without its navigation, none across a heading."""
    from lxml import html
    from lxml.etree import ErrorLevels, ParserError

    text = _decode(file.read_bytes(), name, encoding)
    if not text.strip():
        return iter(())
    try:
        # Without huge_tree it leaves out, and tells nobody, what lies deeper than 256 elements; with it, than 2,048.
        parser = html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True)
        root = html.document_fromstring(text.encode(), parser=parser)
    except ParserError:
        return iter(())  # a page of comments only
    if lost := next((error for error in parser.error_log if error.level == ErrorLevels.FATAL), None):
        raise InputError(f"{name}: not read to its end ({lost.message.split(',')[0]}); mend it, or leave it out")
    told, shown = clean(root.findtext(".//title") or ""), next(root.iter("h1"), None)
    if shown is not None and (heading := clean(shown.text_content())) and (not told or told.startswith(heading)):
        told = heading  # behind it stands the name of the site
    title = title_of(file, told)
    return passages_of(name, _html_sections(root, title))


def _told(error: Exception) -> str:
    """An error in a few words, and its kind where it has none."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _unbroken(text: str) -> str:
    """Words that a line end breaks with a hyphen, put together."""
    return re.sub(r"(?<=[^\W\d_])-\n(?=[a-zß-ÿ])", "", text)


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


def _docx_sections(body: Any, styles: dict[str, str], title: str) -> Iterator[Section]:
    """The sections of a document's body. Read off the XML: python-docx repeats a cell for each column that it spans."""
    heading, lines = "", list[str]()
    for element in _docx_blocks(body):
        if element.tag == f"{_W}tbl":
            lines += _docx_rows(element)
            continue
        text = _docx_text(element)
        named = element.find(f"{_W}pPr/{_W}pStyle")
        style = "" if named is None else styles.get(named.get(f"{_W}val"), "")
        if not style.startswith(("Heading", "Title")) or not text.strip():
            item = element.find(f"{_W}pPr/{_W}numPr") is not None and text.strip()
            lines.append(f"- {text}" if item else text)
            continue
        yield Section(title, heading, {}, BREAK.join(lines))
        heading, lines = ("" if style == "Title" else clean(text)), []
        title = clean(text) if style == "Title" else title
    yield Section(title, heading, {}, BREAK.join(lines))


def _docx_rows(table: Any) -> Iterator[str]:
    """The rows of a table, by its columns' names where its first row is marked as such."""
    header = list[str]()
    for number, row in enumerate(table.iterchildren(f"{_W}tr", f"{_W}sdt")):
        cells = [clean(" ".join(map(_docx_text, cell.iter(f"{_W}p")))) for cell in row.iter(f"{_W}tc")]
        if not number and row.find(f"{_W}trPr/{_W}tblHeader") is not None:
            header = cells
            continue
        yield row_text(cells, header)


def _docx_blocks(body: Any) -> Iterator[Any]:
    """The paragraphs and tables of a body, those in its content controls and tracked changes too."""
    waiting = [*body][::-1]
    while waiting:
        element = waiting.pop()
        if element.tag in (f"{_W}p", f"{_W}tbl"):
            yield element
        elif element.tag in _DOCX_HOLDERS:
            waiting += [*element][::-1]


def _docx_text(paragraph: Any) -> str:
    """What a paragraph shows, without the text boxes that hang on it."""
    words = list[str]()
    waiting = [*paragraph][::-1]
    while waiting:
        element = waiting.pop()
        if element.tag == f"{_W}t":
            words.append(element.text or "")
        elif element.tag in _DOCX_SPACES:
            words.append(_DOCX_SPACES[element.tag])
        elif element.tag in _DOCX_RUNS:
            waiting += [*element][::-1]
    return "".join(words)


def _html_sections(root, title: str) -> Iterator[Section]:
    heading, body = "", []
    for kind, text in _html_parts(root):
        if kind == "text":
            body.append(text)
            continue
        yield Section(title, heading, {}, "".join(body))
        heading, body = (text if text != title else ""), []
    yield Section(title, heading, {}, "".join(body))


def _html_parts(root) -> Iterator[tuple[str, str]]:
    """Runs of text and headings in the order of the page. Without recursion: pages nest as deep as they like."""
    waiting = [(root, False)]
    while waiting:
        element, left = waiting.pop()
        block = BREAK if element.tag in _BLOCKS else ""
        if left:
            told = address_of(element.get("href"), element.text_content()) if element.tag == "a" else ""
            yield "text", told + block + _run(element.tail)
            continue
        waiting.append((element, True))
        if not isinstance(element.tag, str) or element.tag in _UNSEEN:
            continue
        if element.tag in _HEADINGS:
            yield "heading", clean(element.text_content())
            continue
        if element.tag == "table" and (rows := _html_rows(element)):
            yield "text", BREAK + BREAK.join(rows)
            continue
        yield "text", block + {"li": "- ", "br": " "}.get(element.tag, "") + _run(element.text)
        waiting += [(child, False) for child in reversed(element)]


def _run(text: str | None) -> str:
    """A run of text; where its lines break says nothing."""
    return re.sub(r"\s+", " ", text or "")


def _html_rows(table) -> list[str]:
    """The rows of a table, by its columns' names where its first row has them; none where it lays out a page."""
    if len(list(islice(table.iter("table", *_UNSEEN, *_HEADINGS), 2))) > 1:
        return []
    rows = [[cell for cell in row if cell.tag in ("td", "th")] for row in table.iter("tr")]
    texts = [[clean(_spaced(cell)) for cell in row] for row in rows]
    if max(map(len, rows), default=0) < 2 or any(len(text.split()) > _WORDY for row in texts for text in row):
        return []
    named = len(rows) > 1 and all(cell.tag == "th" for cell in rows[0])
    header = texts[0] if named else []
    return [*map(_spaced, table.iter("caption")), *(row_text(row, header) for row in texts[named:])]


def _spaced(cell) -> str:
    """The text of a cell, whose lines and paragraphs are not run together."""
    return "".join(text for _, text in _html_parts(cell))


def _decode(raw: bytes, name: str, encoding: str | None) -> str:
    marked = marked_encoding(raw)
    declared = _CHARSET.search(raw[:_DECLARED_WITHIN])
    used: str = encoding or marked or (declared[1].decode("ascii", "replace") if declared else "utf-8")
    try:
        if not (encoding or marked):
            codec = codecs.lookup(used).name
            if codec not in _DECLARABLE:
                raise LookupError
            used = _MEANT.get(codec, used)
        text = raw.decode(used)
    except UnicodeError as error:
        raise wrong_encoding(name, used, error) from error
    except (LookupError, ValueError) as error:
        raise InputError(f"{name} says it is encoded in {used!r:.40}, which is unknown; name it: --encoding") from error
    return _XML_DECLARATION.sub("", text.replace("\0", "").removeprefix("\ufeff"))
