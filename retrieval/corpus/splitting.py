"""Cutting texts into passages of about 100 words, between paragraphs, items of lists and rows, or at sentence ends."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import zip_longest

from raisf.utils.text import SOFT_HYPHEN, clean
from raisf.utils.wording import CJK, THAI

TARGET = 100
"""Words a passage: the length of the passages of DPR and of the RA-ISF paper's Wikipedia corpus."""
SHORTEST, LONGEST = 50, 130
"""A cut may move from TARGET within these; a text up to LONGEST stays whole."""

BREAK = "\n\n"
"""What parts paragraphs, items of a list and rows of a table in a text: a passage had better end there."""

# A word is a run without spaces, at most 40 characters of it (a data blob must be cut too), or where scripts put no
# spaces between words one Chinese, Japanese or Korean character, or six of Thai, Lao, Burmese or Khmer.
_CJK = rf"{CJK}\uff00-\uffef"
WORD = re.compile(rf"[{_CJK}]|[{THAI}]{{1,6}}|[^\s{_CJK}{THAI}]{{1,40}}")
STOPS = "\u0964\u0965\u06d4\u061f\u0589\u1362\u104b\u17d4"
"""What ends a sentence in Hindi, Urdu, Arabic, Armenian, Amharic, Burmese and Khmer."""
_BROKEN = re.compile(f"{SOFT_HYPHEN}[ \\t]*\\r?\n[ \\t]*")
# What a number with a point counts: in German, Czech, Danish, Norwegian and Finnish.
_MONTHS = (
    "Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember|ledna|února|března|dubna|"
    "května|června|července|srpna|září|října|listopadu|prosince|januar|februar|marts|mars|april|maj|mai|juni|juli|"
    r"august|september|oktober|november|de[cs]ember|\w{4,8}kuuta|Jahrhunderts?|Weltkriegs?"
)
_DAY = rf"\.(?:(?<=\b\d\.)|(?<=\b\d\d\.))\s+(?:{_MONTHS})\b"
_KING = r"\.(?:(?<=\b[IVX]{2}\.)|(?<=\b[IVX]{3}\.)|(?<=\b[IVX]{4}\.))\s+[a-z\u00df-\u00f6\u00f8-\u00ff]"
NOT_SHORT = (
    r"(?<!\b(?:Mr|MR|Ms|MS|Dr|DR|St|No|Nr|vs))(?<!\b(?:Mrs|MRS|Art|Fig|Sec|Vol|e\.g|i\.e))(?<!\bProf)"
    rf"(?!{_DAY}|{_KING})"
)
"""A pattern of what no title or day's number stands before, nor what leads to a number: there no sentence ends."""
WIDE_END = r"""[\u3002\uff01\uff1f]+[)"'\u201d\u2019\u300b\u300d\u300f\uff09]*"""
"""A pattern of a sentence's end in Chinese and Japanese."""
# Nor does one behind an initial.
_SENTENCE_END = re.compile(rf"""(?<!\b[A-Z]){NOT_SHORT}[.!?\u2026{STOPS}][)"'\u201d\u2019\]]*(?=\s)|{WIDE_END}""")
PUNCTUATION = f".,;:!?\u2026\u3002\uff0c\uff1b\uff1a\uff01\uff1f{STOPS}"
_HEADING = 8
"""Words of a line at most that is a heading of the paragraph below it: it ends in no punctuation mark, that does."""
_LEADERS = re.compile(r"\.(?:[ \t]{0,3}\.){5,}")
_MARK = re.compile(r"(?:[-*+\u2022\u2023\u25e6\u00b7]|\d{1,3}[.)]) ")
_NUMBER = re.compile(r"(?:\w{1,4}\.)+(?= )")
"""What looks like the end of a sentence at the beginning of a block, and is the number of its item: `2.1.`, `iv.`."""


def without_leaders(text: str) -> str:
    """A text without the dots that lead from an entry to its page: each counts as a word, and a page of them as many.

    Some fill a passage alone, and part an entry from its number.
    """
    return _LEADERS.sub(" ", text)


def split_text(text: str) -> list[str]:
    """Cuts a text into pieces of about 100 words; whitespace is collapsed.

    A cut is between two paragraphs or items of a list where that is near, else at a sentence's end, else behind 100
    words. A piece has at most 130 words, and each but the last at least 50.
    """
    return [piece for piece, *_ in pieces_of(text)]


def pieces_of(text: str) -> list[tuple[str, int, int]]:
    """The pieces of a text (see `split_text`), each with the paragraph and its character that it begins at, from 0."""
    blocks = [" ".join(lines) for lines in paragraphs(text)]
    text = " ".join(blocks)
    ends = [match.end() for match in WORD.finditer(text)]
    if len(ends) <= LONGEST:
        return [(text, 0, 0)] if text else []
    starts, block_ends, marks = _places(blocks)
    sentence_ends = {match.end() for match in _SENTENCE_END.finditer(text)} - marks
    pieces, first, offset = [], 0, 0
    while len(ends) - first > LONGEST:
        near = range(first + SHORTEST, first + LONGEST + 1)
        good = [i for i in near if ends[i - 1] in block_ends] or [i for i in near if ends[i - 1] in sentence_ends]
        cut = min(good, key=lambda i: abs(i - first - TARGET), default=first + TARGET)
        pieces.append((offset, text[offset : ends[cut - 1]].strip()))
        first, offset = cut, ends[cut - 1] + (text[ends[cut - 1]] == " ")
    pieces.append((offset, text[offset:].strip()))
    blocks_of = [bisect_right(starts, offset) - 1 for offset, _ in pieces]
    return [(piece, block, offset - starts[block]) for (offset, piece), block in zip(pieces, blocks_of, strict=True)]


def paragraphs(text: str) -> Iterator[list[str]]:
    """The paragraphs of a text and the items of its lists, as their lines, each clean."""
    lines = list[str]()
    for line in map(clean, _BROKEN.sub("", text).splitlines()):
        if lines and (not line or _MARK.match(line)):
            yield lines
            lines = []
        if line:
            lines.append(line)
    if lines:
        yield lines


def _places(blocks: list[str]) -> tuple[list[int], set[int], set[int]]:
    """Places in the blocks as one text, joined by spaces.

    Returns:
        Where each block begins; where those end that do not lead to the next one; where lists' numbers end.
    """
    starts, block_ends, marks, start = list[int](), set[int](), set[int](), 0
    for block, below in zip_longest(blocks, blocks[1:], fillvalue=""):
        starts.append(start)
        if number := _NUMBER.match(block):
            marks.add(start + number.end())
        if not (block.endswith(":") or _heads(block, below)):
            block_ends.add(start + len(block))
        start += len(block) + 1
    return starts, block_ends, marks


def _heads(block: str, below: str) -> bool:
    """Whether a block is a heading of that below it, as `3. COSTS` is of `The company pays for a desk`."""
    words = len(block.split())
    return (
        words <= _HEADING
        and block[-1] not in PUNCTUATION
        and not _MARK.match(below)
        and len(below.split()) >= 2 * words
        and bool(_SENTENCE_END.search(f"{below} "))
    )
