"""Reading plain text, and the headings in it: lines with a rule below them, and maybe one above."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from raisf.retrieval.corpus.lines import read_lines
from raisf.retrieval.corpus.readers import Section, joined, passages_of
from raisf.retrieval.corpus.splitting import entries_apart, without_leaders
from raisf.retrieval.corpus.titles import title_of, titled
from raisf.retrieval.passage import Passage
from raisf.utils.text import clean

_RULE = re.compile(r"([=~#*+^_\"'`.:-])(?: ?\1){3,}")
_WORDS, _WIDEST = 15, 120
"""Words and characters of a heading at most."""
_SHARE = 0.5
"""Of a heading's characters, those that a rule below it has at least where none is above it."""

_Kind = tuple[str, bool]
"""A rule's character, and whether there is one above the heading, too."""


def read_text(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a txt file, none across a heading."""
    title, lines = titled(read_lines(file, name, encoding))
    first, *others = _sections(without_leaders(joined(lines, name)), title or title_of(file))
    if not title and first.level == 1 and all(section.level > 1 for section in others):  # it is all of the text's
        title = first.heading
        first = replace(first, heading="", level=0)
        others = [replace(section, level=section.level - 1) for section in others]
    return passages_of(name, [replace(section, title=title or section.title) for section in (first, *others)])


def _sections(text: str, title: str) -> Iterator[Section]:
    """The parts of a text, one at least, each below its heading; a kind of rule has a level, in their order."""
    lines, kinds, place = text.split("\n"), list[_Kind](), 0
    heading, level, said = "", 0, list[str]()
    while place < len(lines):
        if found := _heading(lines[place - 1 : place] if place else [], lines[place : place + 3]):
            if level or any(map(str.strip, said)):
                yield Section(title, heading, {}, entries_apart("\n".join(said)), level)
            heading, kind, length = found
            kinds += [] if kind in kinds else [kind]
            level, said = kinds.index(kind) + 1, []
            place += length
        else:
            said.append("" if _RULE.fullmatch(clean(lines[place])) else lines[place])
            place += 1
    yield Section(title, heading, {}, entries_apart("\n".join(said)), level)


def _heading(above: Sequence[str], lines: Sequence[str]) -> tuple[str, _Kind, int] | None:
    """The heading that a text's next three lines begin with, its kind, and how many of them it takes.

    Args:
        above: The line before them, if there is one.
        lines: They themselves, or what is left of the text.

    Returns:
        None where they begin with no heading.
    """
    first, second, third = (clean(line) for line in [*lines, "", ""][:3])
    rules = [_RULE.fullmatch(line) for line in (first, second, third)]
    if rules[0] and rules[2] and rules[0][1] == rules[2][1] and not rules[1] and _may_head(second):
        return second, (rules[0][1], True), 3
    apart = not above or not above[0].strip() or _RULE.fullmatch(clean(above[0]))
    if apart and rules[1] and not rules[0] and _may_head(first) and len(second) >= _SHARE * len(first):
        return first, (rules[1][1], False), 2
    return None


def _may_head(line: str) -> bool:
    short = len(line.split()) <= _WORDS and len(line) <= _WIDEST
    return short and line[-1:] not in ",;" and any(map(str.isalpha, line))
