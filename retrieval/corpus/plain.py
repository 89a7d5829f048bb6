"""Reading plain text, and what it has without marks: headings, entries of lists, turns of talks.

A heading is a line with a rule below it, and maybe one above.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from raisf.retrieval.corpus.front_matter import without_front_matter
from raisf.retrieval.corpus.lines import joined, read_lines
from raisf.retrieval.corpus.sections import Section, passages_of
from raisf.retrieval.corpus.shown import row_text
from raisf.retrieval.corpus.splitting import BREAK, PUNCTUATION, WORD, paragraphs, without_leaders
from raisf.retrieval.corpus.titles import is_short, says_something, title_of, titled
from raisf.retrieval.passage import Passage
from raisf.utils.text import clean

_RULE = re.compile(r"([=~#*+^_\"'`.:-])(?: ?\1){3,}")
_RELEASE = re.compile(r"\b\d+\.\d+\.\d+\b|\b\d{4}-\d\d-\d\d\b")
"""A version or a day, which heads a part without a letter; other numbers above a rule are a sum."""
_SHARE = 0.5
"""Of a heading's characters, those that a rule below it has at least where none is above it."""

_HEAD = 20
"""Lines in which a text may tell its title: Project Gutenberg's tell a licence before it."""

_ENTRIES, _ENTRY = 3, 6
"""Lines of a paragraph from which on they may be entries, and words of an entry at most: lines of prose have more."""
_TURN = re.compile(
    r"[\[(]?(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4},?[ T])?\d{1,2}(?::\d{2}){1,2}(?:[.,]\d+)?(?: ?[APap][Mm])?[\])]?(?: |$)"
    r"|[^\W\da-z][\w.'\u2019-]*(?: [\w.'\u2019()-]+){0,3}:(?: |$)|<[^<>\s]{1,30}> "
)
"""How a turn of a talk begins: with a time, or with who speaks."""
_TURNS = 3
"""Such lines from which on a paragraph is a talk."""

_Kind = tuple[str, bool]
"""A rule's character, and whether there is one above the heading, too."""


def read_text(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a txt file, none across a heading."""
    front, lines = without_front_matter(read_lines(file, name, encoding), fenced=True)
    title, lines = (front.title, lines) if front.title else titled(lines)
    text = joined(lines, name)
    title = title.removeprefix("Title:").strip() or _told(text)
    first, *others = _sections(without_leaders(text if text.strip() else front.text), title or title_of(file))
    if not title and first.level == 1 and all(section.level > 1 for section in others):  # it is all of the text's
        title = first.heading
        first = replace(first, heading="", level=0)
        others = [replace(section, level=section.level - 1) for section in others]
    return passages_of(name, [replace(section, title=title or section.title) for section in (first, *others)])


def _told(text: str) -> str:
    """The title that one of a text's first paragraphs begins with, `Title: Dune`; nothing where there are several."""
    head = ["", *text.split("\n", _HEAD)[:_HEAD]]
    told = [line for above, line in pairwise(head) if line.startswith("Title:") and not above.strip()]
    title = clean(told[0].removeprefix("Title:")) if told and f"\n{text}".count("\nTitle:") == 1 else ""
    return title if says_something(title) else ""


def _sections(text: str, title: str) -> Iterator[Section]:
    """The parts of a text, one at least, each below its heading; a kind of rule has a level, in their order."""
    lines, kinds, place = text.split("\n"), list[_Kind](), 0
    rules = [found[1] if (found := _RULE.fullmatch(line.strip())) else "" for line in lines]
    heading, level, said = "", 0, list[str]()
    while place < len(lines):
        if found := _heading(lines, rules, place):
            if level or any(map(str.strip, said)):
                yield Section(title, heading, {}, _entries_apart("\n".join(said)), level)
            heading, kind, place = found
            kinds += [] if kind in kinds else [kind]
            level, said = kinds.index(kind) + 1, []
        else:
            said.append("" if rules[place] else lines[place])
            place += 1
    yield Section(title, heading, {}, _entries_apart("\n".join(said)), level)


def _heading(lines: Sequence[str], rules: Sequence[str], place: int) -> tuple[str, _Kind, int] | None:
    """The heading that stands at a place of a text, its kind, and the place behind it; None: there is none.

    Args:
        lines: Of the text.
        rules: The character of each line that is a rule, and of others nothing.
        place: Where it begins, maybe with the rule above it.
    """
    first, second, third = [*rules[place : place + 3], "", ""][:3]
    if first and third == first and not second and _may_head(line := clean(lines[place + 1])):
        return line, (first, True), place + 3
    apart = place == 0 or rules[place - 1] or not lines[place - 1].strip()
    if apart and second and not first and _may_head(line := clean(lines[place])):
        if len(lines[place + 1].strip()) >= _SHARE * len(line):
            return line, (second, False), place + 2
    return None


def _may_head(line: str) -> bool:
    return (
        is_short(line) and line[-1:] not in ",;" and (any(map(str.isalpha, line)) or _RELEASE.search(line) is not None)
    )


def _entries_apart(text: str) -> str:
    """A plain text in which entries of a list without marks, `2 carrots` on a line, are told apart: `2 carrots;`."""
    return BREAK.join(entry for lines in paragraphs(text) for entry in _entries(lines))


def _entries(lines: Sequence[str]) -> list[str]:
    if not _are_entries(lines):
        return _turns(lines)
    return [*(line if line[-1] in PUNCTUATION else f"{line};" for line in lines[:-1]), row_text(lines[-1:])]


def _turns(lines: Sequence[str]) -> list[str]:
    """The lines as one paragraph, or of a talk its turns: a passage had better begin with who speaks."""
    begins = [bool(place and _TURN.match(line)) for place, line in enumerate(lines)]
    if sum(begins) < _TURNS - 1:
        return [" ".join(lines)]
    turns = list[list[str]]()
    for line, begun in zip(lines, begins, strict=True):
        if begun or not turns:
            turns.append([])
        turns[-1].append(line)
    return [" ".join(turn) for turn in turns]


def _are_entries(lines: Sequence[str]) -> bool:
    """Whether most lines are short and end without a punctuation mark, and few go on with a sentence."""
    short = sum(line[-1] not in PUNCTUATION and len(WORD.findall(line)) <= _ENTRY for line in lines)
    going_on = sum(line[0].islower() for line in lines)
    return len(lines) >= _ENTRIES and 4 * short >= 3 * len(lines) and 2 * going_on < len(lines)
