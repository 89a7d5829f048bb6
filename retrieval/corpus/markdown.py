"""Reading md files: sections by their headings, and of the marks only what they say."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

from raisf.retrieval.corpus.lines import read_lines
from raisf.retrieval.corpus.readers import Section, joined, passages_of
from raisf.retrieval.corpus.splitting import BREAK, address_of, row_text
from raisf.retrieval.corpus.titles import title_of, titled, without_front_matter
from raisf.retrieval.passage import Passage
from raisf.utils.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_DEEPEST = 100
"""Lists and quotations within each other: what lies deeper the parser would leave out, and tell nobody."""

_COMMENT, _TAG = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL), re.compile(r"</?[a-zA-Z][^<>]*>")
# What the parser makes nothing of: a link whose address is missing, the attributes of pandoc and kramdown.
_LINK, _ATTRIBUTES = re.compile(r"\[([^\[\]]+)\]\[[^\[\]]*\]"), re.compile(r"\s*\{:?\s*[.#][\w-]+(?: [^{}]*)?\}$")


def read_markdown(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an md file, none across a heading. Of a link its text is read, of a picture nothing."""
    told, lines = without_front_matter(read_lines(file, name, encoding))
    title, lines = titled(lines)
    return passages_of(name, _sections(joined(lines, name), title or title_of(file, told)))


def _sections(text: str, title: str) -> Iterator[Section]:
    """The sections of a text, each with the number of its first line."""
    tokens = _parser().parse(text)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        yield Section(title, "", {"line": 1}, text)
        return
    heading, first, body = "", 1, list["Token"]()
    rest = iter(tokens)
    for token in rest:
        if token.type != "heading_open" or token.level or token.map is None:
            body.append(token)
            continue
        yield _section(title, heading, first, body)
        heading, first, body = clean(_words(next(rest))), token.map[0] + 1, []
        next(rest)  # the heading's end
        if token.tag == "h1":
            title, heading = heading or title, ""
    yield _section(title, heading, first, body)


def _section(title: str, heading: str, first: int, tokens: Iterable["Token"]) -> Section:
    """A section of the paragraphs that the tokens are, with their lines."""
    blocks = list(_blocks(tokens, first))
    text = BREAK.join(text for _, text in blocks)
    return Section(title, heading, {"line": first}, text, [line for line, _ in blocks])


def _blocks(tokens: Iterable["Token"], line: int) -> Iterator[tuple[int, str]]:
    """The paragraphs, items of lists and rows of tables, each with its line; of their marks, those of items."""
    mark, header, cells, rows = "", list[str](), None, 0
    for token in tokens:
        text = ""
        line = token.map[0] + 1 if token.map else line
        match token.type:
            case "list_item_open":
                mark = f"{token.info}{token.markup} " if token.info else "- "
            case "list_item_close":
                mark = ""
            case "tr_open":
                cells = list[str]()
            case "inline" if cells is not None:
                cells.append(clean(_words(token)))
            case "tr_close" if cells is not None:
                header, text = (header, row_text(cells, header)) if rows else (cells, "")
                cells, rows = None, rows + 1
            case "table_close":
                text = row_text(header) if rows == 1 else ""
                header, rows = [], 0
            case "inline":
                text = clean(_words(token))
            case "fence" | "code_block":
                text = clean(token.content)
            case "html_block":
                text = clean(unescape(_TAG.sub(" ", _COMMENT.sub(" ", token.content))))
        if text:
            yield line, mark + text
            mark = ""


def _words(token: "Token") -> str:
    """What a line of text says."""
    words, link = "", ""
    for part in token.children or ():
        match part.type:
            case "text":
                words += _ATTRIBUTES.sub("", part.content)
            case "code_inline":
                words += part.content
            case "softbreak" | "hardbreak":
                words += " "
            case "html_inline" if part.content.lower().startswith("<br"):
                words += " "
            case "link_open":
                link = str(part.attrs.get("href", ""))
            case "link_close":
                words += address_of(link, words)
    return _LINK.sub(r"\1", words)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table")
