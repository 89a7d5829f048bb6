"""Reading rst files, with docutils of the extra `documents`: sections by their headings, and of marks what they say."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from raisf.retrieval.corpus.front_matter import without_front_matter
from raisf.retrieval.corpus.lines import joined, read_lines
from raisf.retrieval.corpus.numerals import numeral
from raisf.retrieval.corpus.sections import Block, Section, each_line, led, on_one_line, passages_of
from raisf.retrieval.corpus.shown import address_of, grid_of, is_caption, power_sign, rows_in_words
from raisf.retrieval.corpus.splitting import PUNCTUATION
from raisf.retrieval.corpus.templates import without_tags
from raisf.retrieval.corpus.titles import is_title, title_of
from raisf.retrieval.passage import Passage
from raisf.utils.text import clean

_NO_BREAKS = dict.fromkeys(map(ord, "\x1c\x1d\x1e\x85\u2028\u2029"), " ")
"""At these docutils begins a new line, by which all that follows would be cited wrongly."""
_REPLACEMENT = 500
"""Characters that a substitution stands for at most."""
_PARAGRAPHS = frozenset("paragraph caption attribution rubric title subtitle line raw_text".split())
_UNSEEN = frozenset(
    "comment target substitution_definition pending meta decoration raw transition label colspec".split()
)
_CODE = frozenset(("literal_block", "doctest_block"))
_NO_FIELDS = frozenset("orphan tocdepth nocomments nosearch no-search hide-toc".split())
"""Fields that tell Sphinx how to show a page."""
_UNDERLINES = re.compile(r"^([^\w\s])\1*\s*$", re.MULTILINE)
_LOST = 3
"""Level of a message from which on the text that it is about stands nowhere else."""
_SPANS = frozenset("reference inline literal strong emphasis".split())
_DIRECTIVE = re.compile(r"\s*\.\. [\w:.+-]+ ?::[ \t]*")
_HEADER, _KEY = re.compile(r"PEP: *(\d+)\s*$"), re.compile(r"[A-Z][\w-]*:(\s|$)")
"""How a Python Enhancement Proposal begins, and each line of its header."""


def read_rst(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an rst file, none across a heading. Of a link its text is read, of a picture what it shows."""
    front, lines = without_front_matter(read_lines(file, name, encoding))
    told, written = _without_header(list(lines))
    # What is further in is code, perhaps about templates; a tag within a line may stand in a table's column.
    tags = (not line[:1].isspace() and not without_tags(line).strip() for line in written)
    text = joined(("\n" if tag else line for tag, line in zip(tags, written, strict=True)), name).translate(_NO_BREAKS)
    if not text.strip():
        return passages_of(name, [Section(title_of(file, front.title), "", {"line": 1}, front.text)])
    return passages_of(name, _sections(text, told or front.title, title_of(file)))


def _untitled(text: str) -> list[Section]:
    """The sections of a text, the first of which has no heading, without its title."""
    from raisf.retrieval.corpus.rst_markup import parse

    try:
        return list(_Reader(parse(text)).parts())
    except (RecursionError, ValueError):  # hundreds of lists within each other, a number of thousands of digits
        return [Section.of_blocks("", "", 0, 1, list(each_line(text, 1)))]


def _sections(text: str, told: str, name: str) -> Iterator[Section]:
    """The sections; the title is what is told, the only heading of the first level, or the first that may be one."""
    sections = _untitled(text)
    highest = [section for section in sections if section.level == 1]
    first = highest[0].heading if highest else ""
    leads = len(highest) == 1 or (len(sections) > 1 and not sections[0].text and is_title(first))
    heads = highest[0] if highest and (first == told if told else leads) else None
    title = (heads.heading if heads else told) or name
    for section in sections:
        if section is heads:
            section = replace(section, heading="", level=1 if len(highest) == 1 else 0)
        yield replace(section, title=title)


def _without_header(lines: list[str]) -> tuple[str, list[str]]:
    """The title that the header of a Python Enhancement Proposal tells, and the lines, the header's as fields."""
    number = _HEADER.match(lines[0]) if lines else None
    if number is None:
        return "", lines
    end = next((place for place, line in enumerate(lines) if not line.strip()), len(lines))
    header = [f":{line}" if _KEY.match(line) else line for line in lines[:end]]
    title = next((line.partition(":")[2] for line in lines[:end] if line.startswith("Title:")), "")
    return f"PEP {number[1]}: {clean(title)}" if title.strip() else "", [*header, *lines[end:]]


class _Reader:
    """Reads a docutils tree."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._line = 1  # in which line the reader is
        self._replacements = dict[str, str]()
        self._places = dict[str, str]()  # headings by the names of their places
        names = list[str]()
        for node in document.findall():
            if node.tagname == "target":
                names += node.get("names", ())
            elif node.tagname == "title":
                self._places |= dict.fromkeys(names, clean(node.astext()))
                names = []
            elif node.tagname == "#text":
                names = []

    def parts(self, section: Any = None, heading: str = "", level: int = 0) -> Iterator[Section]:
        """A section of the tree, else the document, up to its first heading; and those below, in their order."""
        section, line = (section, self._line) if section else (self._document, None)
        below = [node for node in section.children if node.tagname == "section"]
        own = [node for node in section.children if node.tagname not in ("section", "title")]
        yield Section.of_blocks("", heading, level, line, [block for node in own for block in self._block(node)])
        for node in below:
            title = node.children[0]
            self._line = max((title.line or self._line + 1) - 1, 1)  # docutils tells the underline's
            yield from self.parts(node, clean(self._words(title)), level + 1)

    def _blocks(self, node: Any) -> Iterator[Block]:
        for child in node.children:
            yield from self._block(child)

    def _block(self, node: Any) -> Iterator[Block]:
        """The paragraphs, items of lists and rows of tables that a node shows; of their marks, those of items."""
        kind = node.tagname
        if kind in _UNSEEN:
            return
        self._line = getattr(node, "line", None) or self._line
        match kind:
            case _ if kind in _CODE:
                yield from each_line(self._words(node), self._line)
            case "system_message":
                if node["level"] >= _LOST:
                    lost = "\n".join(child.astext() for child in node.children if child.tagname == "literal_block")
                    yield from each_line(_UNDERLINES.sub("", _DIRECTIVE.sub("", lost)), self._line)
            case "bullet_list" | "enumerated_list":
                for number, item in enumerate(node.children, start=node.get("start", 1)):
                    mark = _mark(node, number)
                    if item.children or mark == "- ":
                        yield from led(mark, self._blocks(item))
                    else:  # `1987.` on a line is all that it says
                        yield [(0, self._line)], mark.strip()
            case "definition_list_item":
                yield from self._definition(node)
            case "field":
                name, body = node.children
                told = list(self._blocks(body))
                if told and name.astext() not in _NO_FIELDS:
                    yield from led(f"{clean(self._words(name)).removeprefix('param ')}: ", told)
            case "option_list_item":
                options, description = node.children
                yield from led(f"{', '.join(map(self._words, options.children))}: ", self._blocks(description))
            case "footnote" | "citation":
                label = next((child.astext() for child in node.children if child.tagname == "label"), "")
                yield from led(f"[{label}] ", self._blocks(node))
            case "table":
                yield from self._table(node)
            case "image":
                if told := _seen_of(node):
                    yield [(0, self._line)], told
            case _ if kind in _PARAGRAPHS or any(child.tagname == "#text" for child in node.children):
                lines, words = on_one_line(self._words(node), self._line)
                if words:
                    yield lines, words
            case _:
                yield from self._blocks(node)

    def _definition(self, item: Any) -> Iterator[Block]:
        """A term and what describes it, as `Deposit: Two rents`."""
        words = list[str]()
        for child in item.children:
            told = clean(self._words(child)) if child.tagname != "definition" else ""
            words += [f"({told})" if child.tagname == "classifier" else told] if told else []
        term, first = " ".join(words), self._line
        *told, (lines, last) = list(self._blocks(item.children[-1])) or [([], "")]
        if not last:
            yield [(0, first)], term
            return
        yield [(0, first)], term if term[-1:] in PUNCTUATION else f"{term}:"
        yield from told
        code = item.children[-1].children[-1].tagname in _CODE
        yield lines, last if code or last[-1] in PUNCTUATION else f"{last}."

    def _table(self, table: Any) -> Iterator[Block]:
        first, rows, named, texts = self._line, list[Any](), 0, dict[Any, str]()
        for part in table.children:
            yield from self._block(part) if part.tagname == "title" else ()
            for group in part.children if part.tagname == "tgroup" else ():
                rows += group.children if group.tagname in ("thead", "tbody") else ()
                named += len(group.children) if group.tagname == "thead" else 0
        places = list[int]()
        for row in rows:
            found = {cell: list(self._blocks(cell)) for cell in row.children}
            texts |= {cell: " ".join(text for _, text in blocks) for cell, blocks in found.items()}
            places.append(max(first, next((blocks[0][0][0][1] for blocks in found.values() if blocks), first)))
            for cell in row.children:
                cell["colspan"], cell["rowspan"] = (str(cell.get(more, 0) + 1) for more in ("morecols", "morerows"))
        grid = grid_of([row.children for row in rows], texts, named)
        places = [*places[: 1 if named else 0], *places[named:]]
        told = zip(places, rows_in_words(grid, named, {}), strict=True)
        yield from (([(0, place)], text) for place, text in told if text)

    def _words(self, node: Any) -> str:
        """What a paragraph says, on the lines on which it says it."""
        words = ""
        for child, behind in zip_longest(node.children, node.children[1:]):
            shown = self._shown(child, words, behind)
            # A role's text and its target may stand on two lines.
            missing = getattr(child, "rawsource", "").count("\n") - shown.count("\n")
            words += "\n" * missing if words[-1:].isspace() and child.tagname in _SPANS else ""
            words += shown
        return words

    def _shown(self, node: Any, before: str, behind: Any) -> str:
        match node.tagname:
            case "#text":
                return node.astext()
            case "raw" | "comment" | "system_message":
                return ""
            case "image":
                return _seen_of(node)
            case "substitution_reference":
                return self._replacement(node, before, behind)
            case "footnote_reference" | "citation_reference":
                return f"[{node.astext()}]"
        words = self._words(node)
        match node.tagname:
            case "inline" if node.get("place"):
                return self._places.get(node["place"], words)
            case "option_argument":
                return node.get("delimiter", " ") + words
            case "superscript":
                return power_sign("sup", before, words) + words
            case "reference":
                return words + address_of(node.get("refuri"), words)
        return words

    def _replacement(self, node: Any, before: str, behind: Any) -> str:
        """What stands for a name between bars; the name itself where that is told elsewhere.

        But for one that leads a sentence which is whole without it: that is a picture's.
        """
        told, definitions = node["refname"], self._document.substitution_defs
        name = told if told in definitions else self._document.substitution_names.get(told.lower())
        if name is None:
            after = behind.astext().lstrip() if behind is not None else ""
            return "" if not before.strip() and (not after or after[0].isupper()) else node.astext()
        if name not in self._replacements:
            self._replacements[name] = ""  # what stands for itself
            words = self._words(definitions[name])
            self._replacements[name] = words if len(words) <= _REPLACEMENT else node.astext()
        return self._replacements[name]


def _mark(items: Any, number: int) -> str:
    """What an item of a list begins with: its number or letter, or a dash."""
    kind, end = items.get("enumtype", ""), ")" if items.get("suffix") == ")" else "."
    return f"{numeral(number, kind)}{end} " if kind else "- "


def _seen_of(image: Any) -> str:
    """What a picture shows, where more than a name tells it."""
    told = clean(image.get("alt", ""))
    return told if is_caption(told) else ""
