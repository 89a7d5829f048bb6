"""The parts of a document, which readers find, and the passages that they become."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from unicodedata import category

from raisf.retrieval.corpus.splitting import BREAK, pieces_of
from raisf.retrieval.passage import Passage, Value
from raisf.utils.text import SOFT_HYPHEN, clean, composed

_MONEY = ("Sc",)
_DRAWN = {chr(code) for code in range(0x2500, 0x25A0)} | {"\u2766"}
"""Lines and ornaments that are no signs."""
_SIGNS = (*_MONEY, "So")
"""Of Unicode's kinds of characters those that say something alone, below a heading also a mark such as \u2705."""

Lines = list[tuple[int, int]]
"""From which character of a text on it stands in which line, see `Section`."""

Block = tuple[Lines, str]
"""A paragraph, an item of a list or a row of a table on one line, and where in it which line begins."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document; no passage spans two.

    Attributes:
        title: The document's.
        heading: The part's own; empty where it has none.
        place: Where it stands: a page, a line.
        text: Maybe of several paragraphs, see `splitting.BREAK`.
        level: Of the heading, 1 for the highest; 0 where there is none.
        lines: Of each paragraph, from which of its characters on it stands in which line, where that is known: a
            passage is cited by the line that it begins in.
    """

    title: str
    heading: str
    place: Mapping[str, Value]
    text: str
    level: int = 0
    lines: Sequence[Lines] = ()

    @classmethod
    def of_blocks(cls, title: str, heading: str, level: int, line: int | None, blocks: Sequence[Block]) -> "Section":
        """A part of the paragraphs that are given, from a line on; None: from where the first of them begins."""
        if line is None:
            line = next((lines[0][1] for lines, _ in blocks if lines), 1)
        text = BREAK.join(text for _, text in blocks)
        return cls(title, heading, {"line": line}, text, level, [lines for lines, _ in blocks])


def passages_of(name: str, sections: Iterable[Section]) -> Iterator[Passage]:
    """The passages of a document's sections, numbered through; none spans two sections.

    The heading leads the text, and is no part of the title: judges that learnt from titles such as Wikipedia's take a
    passage called `Rivers: Danube` to be about something else.
    """
    number = 0
    for section in _with_bare_headings(sections):
        heading = section.heading
        for piece, paragraph, start in pieces_of(section.text):
            if not _says_something(piece, _SIGNS if heading else _MONEY):
                continue  # a rule, an ornament
            number += 1
            place = section.place
            if section.lines and (paragraph or start) and (lines := section.lines[paragraph]):
                place = {"line": lines[bisect_right(lines, start, key=itemgetter(0)) - 1][1]}
            metadata = {**place, "section": heading} if heading else place
            shown = f"{heading.rstrip(' :')}: {piece}" if heading else piece
            yield Passage(f"{name}#{number}", shown, composed(section.title), source=name, metadata=metadata)


def _says_something(piece: str, signs: Collection[str]) -> bool:
    return any(char.isalnum() or (category(char) in signs and char not in _DRAWN) for char in piece)


def _with_bare_headings(sections: Iterable[Section]) -> Iterator[Section]:
    """The sections that have text; one that is but a heading leads those below it, or is a text itself."""
    above = list[tuple[Section, bool]]()  # each with whether a section below it has text
    for section in sections:
        if not section.level:
            yield section
            continue
        while above and above[-1][0].level >= section.level:
            yield from _last_alone(above)
        if not section.text.strip():
            above.append((section, False))
            continue
        yield replace(section, heading=_path(above, section.heading))
    while above:
        yield from _last_alone(above)


def _path(above: list[tuple[Section, bool]], last: str) -> str:
    """A heading behind those it stands below, which are noted to lead something."""
    above[:] = [(bare, True) for bare, _ in above]
    return ": ".join(filter(None, [*(bare.heading.rstrip(" :") for bare, _ in above), last]))


def _last_alone(above: list[tuple[Section, bool]]) -> Iterator[Section]:
    """Takes the last heading away, as a text of its own where it leads none."""
    bare, leads = above.pop()
    if not leads:
        yield replace(bare, heading="", text=_path(above, bare.heading or bare.title))


def each_line(text: str, first: int) -> Iterator[Block]:
    """A text, each of its lines a paragraph."""
    for number, line in enumerate(map(clean, text.split("\n")), start=first):
        if line:
            yield [(0, number)], line


def led(mark: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """The paragraphs with a mark before the first."""
    for lines, text in blocks:
        yield [(at + len(mark) * (at > 0), line) for at, line in lines], mark + text
        mark = ""


def on_one_line(words: str, first: int) -> Block:
    """The words of a paragraph, and where in them those of each of its lines begin."""
    texts, lines, at, broken = list[str](), [(0, first)], 0, True
    for number, line in enumerate(words.split("\n"), start=first):
        if text := clean(line):
            texts.append(text if broken else f" {text}")
            lines.append((at + (not broken), number))
            at += len(texts[-1])
            broken = line.rstrip().endswith(SOFT_HYPHEN)
    return lines, "".join(texts)
