"""Reading md files: sections by their headings, and of the marks only what they say."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from importlib.util import find_spec
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from raisf.retrieval.corpus.front_matter import FrontMatter, without_front_matter
from raisf.retrieval.corpus.jsx import is_mdx, without_jsx
from raisf.retrieval.corpus.lines import joined, read_lines
from raisf.retrieval.corpus.markdown_rules import DEEPEST, parser
from raisf.retrieval.corpus.sections import Block, Section, each_line, led, on_one_line, passages_of
from raisf.retrieval.corpus.shown import STROKES, address_of, is_caption, power_sign, table_rows
from raisf.retrieval.corpus.splitting import BREAK
from raisf.retrieval.corpus.templates import as_markdown, is_made
from raisf.retrieval.corpus.titles import says_something, title_of, titled
from raisf.retrieval.corpus.web import PARTING, html_text
from raisf.retrieval.corpus.web_hidden import STRUCK
from raisf.retrieval.passage import Passage
from raisf.utils.text import clean

if TYPE_CHECKING:
    from markdown_it.token import Token

_LONGEST_HEADING = 15
"""Words of a line that an underline makes a heading: a rule below a paragraph makes none of it."""

_TITLES = 2
"""Headings of the first level that may be titles, of a document and of another one below it."""
_CHAPTER = re.compile(
    r"(article|section|chapter|part|schedule|appendix|version|release|[ivxlc]+[.)])\b|\W*v?\d|.*:$", re.IGNORECASE
)

_LOOKED_FOR, _NEAR = 5, 10_000
"""Words of a paragraph of HTML by which it is found in its block, and characters within which each is."""
_BEGIN, _MISSED = 3, 3
"""Words by which a line of it is found in the paragraph, and lines in a row that may not be."""

# Attributes as pandoc and kramdown have them at a line's end; the names of tags; comments.
_ATTRIBUTES = re.compile(r"(?:^|(?<=[\s*_`)\]]))\{(?::[^{}]*|[.#][\w-]+(?: [^{}]*)?|-)\}\s*$")
_CODE_TITLE = re.compile(r"""\btitle=["']([^"']+)["']|\[([^\[\]]+)\]\s*$""")
"""What some sites show above code, `title="fees.toml"` or `[fees.toml]` behind its language."""
_TOP = re.compile(r"^ {0,3}(?:#\s|=+\s*$)", re.MULTILINE)  # what a text with a heading of the first level has
_ITEM = re.compile(r"^(?:- |\d+\. )")
_ATTRIBUTES_BEHIND = re.compile(r"\{:[^{}]*\}")
_TAG = re.compile(r"</?([a-zA-Z][\w-]*)[^<>]*>")
# Inline tags that say nothing, and those that part words; others, as of Vec<String>, are text.
_SILENT = frozenset(
    "a abbr b bdi bdo big cite code del dfn em font i img ins mark picture q s samp small source span strike strong "
    "sub sup time tt u var".split()
)
_PARTING = PARTING | {"input", "wbr"}


def read_markdown(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an md file, none across a heading. Of a link its text is read, of a picture its caption."""
    front, lines = without_front_matter(read_lines(file, name, encoding))
    written = list(lines)
    return _passages(file, name, front, without_jsx(joined(written, name)) if is_mdx(written) else iter(written))


def read_mdx(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an mdx file: Markdown with the components of a site."""
    front, lines = without_front_matter(read_lines(file, name, encoding))
    return _passages(file, name, front, without_jsx(joined(lines, name)))


def _passages(file: Path, name: str, front: FrontMatter, lines: Iterator[str]) -> Iterator[Passage]:
    title, whole = front.title, None
    if not title:
        whole = list(lines)
        title, lines = titled(whole)
        title = clean(_words(parser().parseInline(title)[0])) if title else ""
    text = as_markdown(joined(lines, name))
    if title and whole and _has_another_title(text, title):
        title, text = "", as_markdown(joined(whole, name))
    said = text.split("\n", front.lines)[-1].strip()
    kept = [] if said else [Section(title_of(file, title), "", {"line": 1}, front.text)]
    return passages_of(name, [*_sections(text, title, title_of(file)), *kept])


def _has_another_title(text: str, told: str) -> bool:
    """Whether the first heading is the only one of the first level and the title: what stands before it is a text."""
    tokens = parser().parse(text) if _TOP.search(text) else []
    starts = _starts(tokens)
    if [tokens[place].tag for place in starts].count("h1") != 1 or tokens[starts[0]].tag != "h1":
        return False
    heading = clean(_words(tokens[starts[0] + 1]))
    return heading != told and says_something(heading)


def _sections(text: str, told: str, name: str) -> Iterator[Section]:
    """The sections of a text, each with the number of its first line.

    A heading of the first level is the document's title, or that of a second one behind it. Of more than two each
    heads a chapter, as does each that differs from a title that the document tells before; the title is then that, or
    the document's name, or a first heading that has no text of its own or a word of that name.
    """
    tokens, title = parser().parse(text), told or name
    if any(token.level >= DEEPEST - 1 for token in tokens):
        yield Section(title, "", {"line": 1}, text)
        return
    starts = _starts(tokens)
    highest = (clean(_words(tokens[start + 1])) for start in starts if tokens[start].tag == "h1")
    chapters = sum(heading != told for heading in highest) > (0 if told else _TITLES)
    before = _section(title, "", 0, None, tokens[: starts[0] if starts else None])
    said = before.text.strip()
    yield before
    for start, end in zip_longest(starts, starts[1:]):
        opening, words = tokens[start : start + 2]
        heading, level, line = clean(_words(words)), int(opening.tag[1]), opening.map[0] + 1 if opening.map else 1
        if any(part.type != "code_inline" and is_made(part.content) for part in words.children or ()):
            heading = ""
        bare = start + 3 == end
        if chapters and start == starts[0] and not said and _is_of_all(heading, told, name, bare):
            title, heading, level = heading, "", 0  # it leads no chapter
        elif level == 1 and not chapters:
            title, heading = heading or title, ""
        yield _section(title, heading, level, line, tokens[start + 3 : end])


def _is_of_all(heading: str, told: str, name: str, bare: bool) -> bool:
    """Whether the first of many headings is the document's title."""
    if told:
        return heading == told
    shared = set(heading.casefold().split()) & set(name.casefold().split())
    return says_something(heading) and not _CHAPTER.match(heading) and bool(bare or shared or not name)


def _starts(tokens: Sequence["Token"]) -> list[int]:
    """The places of the headings that begin a section: they stand in nothing else, and are no text above a rule."""
    found = (place for place, token in enumerate(tokens) if token.type == "heading_open" and not token.level)
    return [place for place in found if tokens[place].markup[0] == "#" or _is_short(tokens[place + 1].content)]


def _is_short(words: str) -> bool:
    return "\n" not in words and len(words.split()) <= _LONGEST_HEADING


def _section(title: str, heading: str, level: int, first: int | None, tokens: Iterable["Token"]) -> Section:
    """A section of the paragraphs that the tokens are, with their lines."""
    return Section.of_blocks(title, heading, level, first, list(_blocks(tokens, first or 1)))


def _blocks(tokens: Iterable["Token"], line: int) -> Iterator[Block]:
    """The paragraphs, items of lists and rows of tables, each with its lines; of their marks, those of items."""
    mark, table = "", list[tuple[int, list[str]]]()
    numbers = list[int | None]()  # of the last item of each list that is open
    for token in tokens:
        found = list[Block]()
        line = token.map[0] + 1 if token.map else line
        match token.type:
            case "ordered_list_open" | "bullet_list_open":
                numbers.append(None)
            case "ordered_list_close" | "bullet_list_close":
                numbers.pop()
            case "list_item_open":
                mark = "- "
                if token.info:  # all may be written as 1, and are shown as 1, 2, 3
                    last, written = numbers[-1], int(token.info)
                    numbers[-1] = written if last is None else max(last + 1, written)
                    mark = f"{numbers[-1]}{token.markup} "
            case "list_item_close":
                if mark not in ("", "- "):  # `1987.` on a line is all that it says
                    found = [([(0, line)], mark.strip())]
                mark = ""
            case "entry_open":
                mark = f"[{token.info}] " if token.info else mark
            case "entry_close":
                mark = ""
            case "tr_open":
                table.append((line, []))
            case "inline" if table:
                table[-1][1].append(clean(_words(token)))
            case "table_close":
                rows = table_rows([cells for _, cells in table], named=True)
                yield from (([(0, place)], text) for (place, _), text in zip(table, rows, strict=True) if text)
                table = []
            case "inline":
                words = _words(token)
                found = [on_one_line(words.removeprefix("[ ] ") if mark else words, line)]  # a task's empty box
            case "fence" | "code_block":
                first = line + (token.type == "fence")
                title = _CODE_TITLE.search(token.info)
                found = [([(0, line)], f"{title[1] or title[2]}:")] if title else []
                found += each_line(token.content, first)
            case "html_block":
                found = _html_texts(token.content, line)
        found = [block for block in found if block[1]]
        yield from led(mark, found)
        mark = "" if found else mark


def _html_texts(block: str, first: int) -> list[Block]:
    """The paragraphs of a block of HTML, as web pages are read where their reader is installed, with their lines."""
    block = _without_comments(block)
    seen = _TAG.sub(lambda tag: _blank(tag[0]), block)
    texts = map(clean, (unescape(seen) if find_spec("lxml") is None else html_text(block)).split(BREAK))
    begins = [" ".join(unescape(row).split()[:_BEGIN]) for row in seen.split("\n")]
    rows = [(number, words) for number, words in enumerate(begins, start=first) if words]
    found, line, at = list[Block](), first, 0
    for text in texts:
        # Where the first of its words stands that is written as it is shown.
        places = (seen.find(word, at, at + _NEAR) for word in _ITEM.sub("", text).split()[:_LOOKED_FOR])
        place = next((place for place in places if place >= 0), at)
        line, at = line + seen.count("\n", at, place), place + 1
        found.append(([(0, line), *_lines_of(text, rows, bisect_right(rows, line, key=itemgetter(0)))], text))
    return found


def _lines_of(text: str, rows: Sequence[tuple[int, str]], below: int) -> Iterator[tuple[int, int]]:
    """Where in a paragraph its lines begin, of those rows from one on that are written as they are shown.

    No row is blank: there may be any number of these below each of many paragraphs.
    """
    at = missed = 0
    for line, words in map(rows.__getitem__, range(below, len(rows))):
        place = text.find(words, at, at + _NEAR)
        missed = 0 if place >= 0 else missed + 1
        if missed > _MISSED:  # behind its end
            break
        if place >= 0:
            yield place, line
            at = place + len(words)


def _without_comments(block: str) -> str:
    """A block of HTML with its comments blank; what nobody closes is not hidden."""
    parts, at = list[str](), 0
    while (start := block.find("<!--", at)) >= 0 and (end := block.find("-->", start + 4)) >= 0:
        parts += [block[at:start], _blank(block[start : end + 3])]
        at = end + 3
    return "".join(parts) + block[at:].replace("<!--", "    ")


def _blank(text: str) -> str:
    """As many spaces, on as many lines."""
    return re.sub(r"[^\n]", " ", text)


def _words(token: "Token") -> str:
    """What a paragraph says, on the lines on which it says it."""
    words, link, parts = "", "", _without_readings(_unstruck(token.children or ()))
    written, at = token.content, 0
    flat = written.replace("\n", " ")  # as code is told
    for place, (before, part) in enumerate(zip((None, *parts), parts, strict=False)):
        match part.type:
            case "text":
                linked = before is not None and before.type in ("link_close", "image")
                said = _ATTRIBUTES.sub("", part.content)
                words += _ATTRIBUTES_BEHIND.sub("", said, count=1) if linked and said.startswith("{:") else said
            case "code_inline":
                at = max(flat.find(part.content, at), at)
                words += written[at : at + len(part.content)] if flat.startswith(part.content, at) else part.content
                at += len(part.content)
            case "softbreak" | "hardbreak":
                at = max(written.find("\n", at) + 1, at)
                words += "\n"
            case "html_inline":
                name, closes = _tag_of(part)
                words += "" if closes else _raised(name, words, parts[place + 1 : place + 7])
                words += " " if name in _PARTING else part.content if name and name not in _SILENT else ""
            case "image":
                told = (clean(text) for text in (part.content, part.attrs.get("title", "")))
                words += " ".join(filter(is_caption, told))
            case "link_open":
                link = str(part.attrs.get("href", ""))
            case "link_close":
                words += address_of(link, words)
    return words


def _unstruck(parts: Sequence["Token"]) -> list["Token"]:
    """Parts of a text without what is struck out, by `~~` or by HTML that closes; lines stay lines."""
    marks = [_strikes(part) for part in parts]
    last = {kind: place for place, (kind, closes) in enumerate(marks) if closes}
    kept, struck = list["Token"](), ""
    for place, (part, (kind, closes)) in enumerate(zip(parts, marks, strict=True)):
        if struck:
            kept += [part] if part.type in ("softbreak", "hardbreak") else []
            struck = "" if closes and kind == struck else struck
        elif kind and not closes and last.get(kind, -1) > place:
            struck = kind
        else:
            kept.append(part)
    return kept


def _strikes(part: "Token") -> tuple[str, bool]:
    """With what a part begins to strike out, or ends to; empty where it does not."""
    if part.type in ("s_open", "s_close"):
        return "~~", part.type == "s_close"
    name, closes = _tag_of(part)
    return (name, closes) if name in STRUCK else ("", False)


def _tag_of(part: "Token") -> tuple[str, bool]:
    """The name of the tag that a part is, and whether it closes; empty where it is none."""
    tag = _TAG.fullmatch(part.content) if part.type == "html_inline" else None
    return (tag[1].lower(), part.content[1] == "/") if tag else ("", False)


def _without_readings(parts: Sequence["Token"]) -> list["Token"]:
    """Parts of a text without ruby's tags and the readings above words, which would break these."""
    tags = list(map(_tag_of, parts))
    end = max((place for place, tag in enumerate(tags) if tag == ("ruby", True)), default=-1)
    kept, ruby, reading = list["Token"](), False, False
    for place, (part, (name, closes)) in enumerate(zip(parts, tags, strict=True)):
        if (name == "ruby" and place <= end) or (ruby and name in ("rb", "rt", "rp")):
            ruby = not (name == "ruby" and closes)
            reading = ruby and name in ("rt", "rp") and not closes
        elif not reading:
            kept.append(part)
    return kept


def _raised(name: str, before: str, behind: Sequence["Token"]) -> str:
    """The sign before a number that a tag of this name raises, which may be a link to a note."""
    tags = list(map(_tag_of, behind))
    end = next((place for place, tag in enumerate(tags) if tag == ("sup", True)), len(tags))
    within = "".join(part.content for part in behind[:end] if part.type != "html_inline")
    stroke = "".join(part.content for part in behind[end + 1 : end + 2]).strip()
    return power_sign(name, before, within, stroke in STROKES and tags[end + 2 : end + 3] == [("sub", False)])
