"""Reading md files: sections by their headings, and of the marks only what they say."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import unescape
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from raisf.retrieval.corpus.lines import read_lines
from raisf.retrieval.corpus.readers import Section, joined, passages_of
from raisf.retrieval.corpus.splitting import BREAK, address_of, power_sign, table_rows
from raisf.retrieval.corpus.titles import title_of, titled, without_front_matter
from raisf.retrieval.corpus.web import PARTING, html_text
from raisf.retrieval.passage import Passage
from raisf.utils.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_DEEPEST = 100
"""Lists and quotations within each other: what lies deeper the parser would leave out, and tell nobody."""

_LONGEST_HEADING = 15
"""Words of a line that an underline makes a heading: a rule below a paragraph makes none of it."""

_CAPTION = 5
"""Words of a picture's text or title that say what it shows; fewer are a name, as a badge has."""

# Attributes as pandoc and kramdown have them at a line's end; the names of tags; comments.
_ATTRIBUTES = re.compile(r"\{(?::[^{}]*|[.#][\w-]+(?: [^{}]*)?)\}\s*$")
_TAG, _COMMENT = re.compile(r"</?([a-zA-Z][\w-]*)[^<>]*>"), re.compile(r"<!--.*?-->", re.DOTALL)
# Inline tags that say nothing, and those that part words; others, as of Vec<String>, are text.
_SILENT = frozenset(
    "a abbr b bdi bdo big cite code del dfn em font i img ins mark picture q s samp small source span strike strong "
    "sub sup tt u var".split()
)
_PARTING = PARTING | {"input", "wbr"}


def read_markdown(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an md file, none across a heading. Of a link its text is read, of a picture its caption."""
    told, lines = without_front_matter(read_lines(file, name, encoding))
    title, lines = titled(lines)
    return passages_of(name, _sections(joined(lines, name), title or title_of(file, told)))


def _sections(text: str, title: str) -> Iterator[Section]:
    """The sections of a text, each with the number of its first line."""
    tokens = _parser().parse(text)
    if any(token.level >= _DEEPEST - 1 for token in tokens):
        yield Section(title, "", {"line": 1}, text)
        return
    starts = [place for place, token in enumerate(tokens) if _begins_section(token, tokens[place + 1 : place + 2])]
    yield _section(title, "", 0, 1, tokens[: starts[0] if starts else None])
    for start, end in zip_longest(starts, starts[1:]):
        opening, words = tokens[start : start + 2]
        heading, level, line = clean(_words(words)), int(opening.tag[1]), opening.map[0] + 1 if opening.map else 1
        if level == 1:
            title, heading = heading or title, ""
        yield _section(title, heading, level, line, tokens[start + 3 : end])


def _begins_section(token: "Token", words: Sequence["Token"]) -> bool:
    if token.type != "heading_open" or token.level:
        return False
    return token.markup[0] == "#" or (
        "\n" not in words[0].content and len(words[0].content.split()) <= _LONGEST_HEADING
    )


def _section(title: str, heading: str, level: int, first: int, tokens: Iterable["Token"]) -> Section:
    """A section of the paragraphs that the tokens are, with their lines."""
    blocks = list(_blocks(tokens, first))
    text = BREAK.join(text for _, text in blocks)
    return Section(title, heading, {"line": first}, text, level, [line for line, _ in blocks])


def _blocks(tokens: Iterable["Token"], line: int) -> Iterator[tuple[int, str]]:
    """The paragraphs, items of lists and rows of tables, each with its line; of their marks, those of items."""
    mark, table = "", list[tuple[int, list[str]]]()
    for token in tokens:
        texts = list[str]()
        line = token.map[0] + 1 if token.map else line
        match token.type:
            case "list_item_open":
                mark = f"{token.info}{token.markup} " if token.info else "- "
            case "list_item_close":
                mark = ""
            case "tr_open":
                table.append((line, []))
            case "inline" if table:
                table[-1][1].append(clean(_words(token)))
            case "table_close":
                rows = table_rows([cells for _, cells in table], named=True)
                yield from ((place, text) for (place, _), text in zip(table, rows, strict=True) if text)
                table = []
            case "inline":
                texts = [_words(token)]
            case "fence" | "code_block":
                texts = token.content.splitlines()
                line += token.type == "fence"
            case "html_block":
                texts = _html_text(token.content).split(BREAK)
        for number, text in enumerate(map(clean, texts)):
            if text:
                yield line + number * (token.type != "html_block"), mark + text
                mark = ""


def _html_text(block: str) -> str:
    """A block of HTML, as web pages are read where their reader is installed."""
    block = _COMMENT.sub(" ", block).replace("<!--", " ")  # what nobody closes is not hidden
    if find_spec("lxml") is None:
        return unescape(_TAG.sub(" ", block))
    return html_text(block)


def _words(token: "Token") -> str:
    """What a line of text says."""
    words, link, parts = "", "", token.children or ()
    for part, after in zip_longest(parts, parts[1:]):
        match part.type:
            case "text":
                words += _ATTRIBUTES.sub("", part.content)
            case "code_inline":
                words += part.content
            case "softbreak" | "hardbreak":
                words += " "
            case "html_inline":
                tag = _TAG.fullmatch(part.content)
                name = tag[1].lower() if tag else ""
                words += power_sign(name, words, after.content if after else "")
                words += " " if name in _PARTING else part.content if tag and name not in _SILENT else ""
            case "image":
                told = (clean(text) for text in (part.content, part.attrs.get("title", "")))
                words += " ".join(text for text in told if len(text.split()) >= _CAPTION)
            case "link_open":
                link = str(part.attrs.get("href", ""))
            case "link_close":
                words += address_of(link, words)
    return words


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable("table")
