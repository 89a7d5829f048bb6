"""Reading pdf, docx and html, with the libraries of the extra `documents`. Each reader gives a file's passages."""

import codecs
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from raisf.retrieval.corpus.readers import Section, marked_encoding, passages_of, title_of, wrong_encoding
from raisf.retrieval.corpus.splitting import clean
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError

logger = logging.getLogger(__name__)

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
_CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_XML_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_UNSEEN = ("script", "style", "template", "noscript", "head", "svg", "nav", "iframe")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = frozenset(
    "address article aside blockquote br caption dd details div dl dt fieldset figcaption figure footer form header hr "
    "li main ol p pre section summary table tbody td tfoot th thead title tr ul".split()
)


def read_pdf(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a pdf file, none across two pages, each with its `page`, counted from 1."""
    pypdf = _library("pypdf", name)
    title, found = title_of(file), False
    try:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise InputError(f"{name} is locked with a password; save it without one, or leave it out")
        title = clean((reader.metadata and reader.metadata.title) or "") or title
        number = 0
        for page_number, page in enumerate(reader.pages, start=1):
            text = _unbroken(page.extract_text())
            found = found or bool(text.strip())
            for passage in passages_of(name, [(title, "", {"page": page_number}, text)]):
                number += 1
                yield Passage(f"{name}#{number}", passage.text, title, source=name, metadata=passage.metadata)
    # pypdf meets broken files with all sorts of errors besides its own.
    except (pypdf.errors.PyPdfError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{name}: not a pdf file that can be read ({error}); save it anew, or leave it out") from error
    if not found:
        logger.warning("%s has no text, only pictures perhaps: left out (run text recognition over it first)", name)


def read_docx(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a docx file, none across a heading; a row of a table is a line of its text."""
    from zipfile import BadZipFile

    docx = _library("docx", name)
    try:
        document = docx.Document(str(file))
    except (docx.opc.exceptions.OpcError, BadZipFile, ValueError, KeyError) as error:
        raise InputError(f"{name}: not a docx file ({error}); save it anew, or leave it out") from error
    return passages_of(name, _docx_sections(document, clean(document.core_properties.title or "") or title_of(file)))


def read_html(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an html file's visible text without its navigation, none across a heading."""
    html = _library("lxml.html", name)
    from lxml.etree import ParserError

    text = _decode(file.read_bytes(), name, encoding)
    if not text.strip():
        return iter(())
    try:
        # Without huge_tree it leaves out, and tells nobody, what lies deeper than 256 elements.
        parser = html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True)
        root = html.document_fromstring(text.encode(), parser=parser)
    except ParserError:
        return iter(())  # a page of comments only
    title = clean(root.findtext(".//title") or "") or title_of(file)
    return passages_of(name, _html_sections(root, title))


def _library(module: str, name: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"cannot read {name}: that needs the extra `documents` (pip install -e '.[documents]'); or leave it out"
        ) from error


def _unbroken(text: str) -> str:
    """Words that a line end breaks with a hyphen, put together."""
    return re.sub(r"(?<=[^\W\d_])-\n(?=[a-zß-ÿ])", "", text)


def _docx_sections(document, title: str) -> Iterator[Section]:
    heading, body = "", []
    for item in document.iter_inner_content():
        if hasattr(item, "rows"):
            body += [" ".join(dict.fromkeys(clean(cell.text) for cell in row.cells)) for row in item.rows]
            continue
        style = (item.style.name or "") if item.style is not None else ""
        if not style.startswith(("Heading", "Title")) or not item.text.strip():
            body.append(item.text)
            continue
        yield title, heading, {}, "\n".join(body)
        heading, body = ("" if style == "Title" else clean(item.text)), []
        title = clean(item.text) if style == "Title" else title
    yield title, heading, {}, "\n".join(body)


def _html_sections(root, title: str) -> Iterator[Section]:
    heading, body = "", []
    for kind, text in _html_parts(root):
        if kind == "text":
            body.append(text)
            continue
        yield title, heading, {}, "".join(body)
        heading, body = (text if text != title else ""), []
    yield title, heading, {}, "".join(body)


def _html_parts(root) -> Iterator[tuple[str, str]]:
    """Runs of text and headings in the order of the page. Without recursion: pages nest as deep as they like."""
    waiting = [(root, False)]
    while waiting:
        element, left = waiting.pop()
        if left:
            yield "text", " " * (element.tag in _BLOCKS) + (element.tail or "")
            continue
        waiting.append((element, True))
        if not isinstance(element.tag, str) or element.tag in _UNSEEN:
            continue
        if element.tag in _HEADINGS:
            yield "heading", clean(element.text_content())
            continue
        yield "text", " " * (element.tag in _BLOCKS) + (element.text or "")
        waiting += [(child, False) for child in reversed(element)]


def _decode(raw: bytes, name: str, encoding: str | None) -> str:
    marked = marked_encoding(raw)
    declared = _CHARSET.search(raw[:_DECLARED_WITHIN])
    used: str = encoding or marked or (declared[1].decode("ascii", "replace") if declared else "utf-8")
    try:
        if not (encoding or marked):
            used = _MEANT.get(codecs.lookup(used).name, used)
        text = raw.decode(used)
    except UnicodeError as error:
        raise wrong_encoding(name, used, error) from error
    except LookupError as error:
        raise InputError(f"{name} says it is encoded in {used!r}, which is unknown; name it: --encoding") from error
    return _XML_DECLARATION.sub("", text.replace("\0", "").removeprefix("\ufeff"))
