"""Reading jsonl and json, and what all readers make passages from. Each streams a file's passages."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any
from unicodedata import category

import ujson

from raisf.data.schemas import joined_sentences
from raisf.retrieval.corpus.lines import read_lines, told_encoding
from raisf.retrieval.corpus.splitting import BREAK, pieces_of
from raisf.retrieval.corpus.texts import cut
from raisf.retrieval.passage import Passage, Value, cell, columns_of
from raisf.utils.errors import InputError
from raisf.utils.json_stream import stream_array
from raisf.utils.text import SOFT_HYPHEN, clean, composed

LONGEST_TEXT = 1 << 28
"""Characters of a text that is read as one, a txt or md file's: it lies in memory."""

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


def read_jsonl_rows(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a jsonl file's rows."""
    for number, line in enumerate(read_lines(file, name, encoding), start=1):
        if not line.strip():
            continue
        try:
            row = ujson.loads(line)
        except ValueError as error:
            shown = line[:60].strip()
            raise InputError(f"{name}, line {number}: not JSON ({error}): {shown!r}; mend or drop the line") from error
        if not isinstance(row, dict):
            raise InputError(f'{name}, line {number}: expected {{"text": ...}}, found {type(row).__name__}')
        yield from row_passages(row, name, number)


def read_json_rows(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of the rows in a json file's list."""
    with file.open("rb") as raw:
        encoding = told_encoding(raw, encoding)
    for number, row in enumerate(stream_array(file, encoding=encoding), start=1):
        if not isinstance(row, dict):
            raise InputError(f'{name}, row {number}: expected {{"text": ...}}, found {type(row).__name__}')
        yield from row_passages(row, name, number, "row")


def passages_of(name: str, sections: Iterable[Section]) -> Iterator[Passage]:
    """The passages of a document's sections, numbered through; none spans two sections.

    The heading leads the text, and is no part of the title: judges that learnt from titles such as Wikipedia's take a
    passage called `Rivers: Danube` to be about something else.
    """
    number = 0
    for section in _with_bare_headings(sections):
        heading = section.heading
        for piece, paragraph, start in pieces_of(section.text):
            signs = _SIGNS if heading else _MONEY
            if not any(char.isalnum() or (category(char) in signs and char not in _DRAWN) for char in piece):
                continue  # a rule, an ornament
            number += 1
            within = section.lines[paragraph] if section.lines and (paragraph or start) else ()
            line = within[bisect_right(within, start, key=itemgetter(0)) - 1][1] if within else None
            place = section.place if line is None else {"line": line}
            metadata = {**place, "section": heading} if heading else place
            shown = f"{heading.rstrip(' :')}: {piece}" if heading else piece
            yield Passage(f"{name}#{number}", shown, composed(section.title), source=name, metadata=metadata)


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


def joined(lines: Iterable[str], name: str) -> str:
    """A text out of its lines.

    Raises:
        InputError: It is too long to lie in memory.
    """
    kept, room = list[str](), LONGEST_TEXT
    for line in lines:
        kept.append(line)
        room -= len(line)
        if room < 0:
            raise InputError(f"{name}: a text of over {LONGEST_TEXT:,} characters; break it into several files")
    return "".join(kept)


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


def row_passages(row: Mapping[str, Any], name: str, number: int, unit: str = "line") -> Iterator[Passage]:
    """The passages of a row that has a text.

    Raises:
        InputError: It has none, or an id that no file can hold.
    """
    text, title, pid = (cell(row, field) for field in ("text", "title", "id"))
    if text is None and "text" in row:
        return
    if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
        text = joined_sentences(text)
    if not isinstance(text, str):
        raise InputError(
            f"{name}, {unit} {number}: no 'text' of type string; found the keys {', '.join(map(str, row)) or '(none)'}"
        )
    pid = f"{name}#{number}" if pid is None or pid == "" else str(pid)
    try:
        pid.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name}, {unit} {number}: the id {pid!r} has half a surrogate pair, which no file can hold; mend it, or "
            "leave the ids out and they are numbered"
        ) from error
    title = clean(composed(str(title or "")))
    columns = {name: clean(told) if isinstance(told, str) else told for name, told in columns_of(row).items()}
    metadata = {f"file {unit}" if unit in columns else unit: number, **columns}  # first comes what is cited
    yield from cut(pid, text, title, name, metadata)
