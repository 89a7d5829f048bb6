"""Cutting texts into passages of about 100 words, at sentence ends."""

import re

from raisf.utils.text import clean

TARGET = 100
"""Words a passage: the length of the passages of DPR and of the RA-ISF paper's Wikipedia corpus."""
SHORTEST, LONGEST = 50, 130
"""A cut may move from TARGET to a sentence end within these; a text up to LONGEST stays whole."""

# A word is a run without spaces, at most 40 characters of it (a data blob must be cut too), or one Chinese, Japanese
# or Korean character: those scripts put no spaces between words.
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,40}}")
_SENTENCE_END = re.compile(r"""[.!?\u2026][)"'\u201d\u2019\]]*(?=\s)|[\u3002\uff01\uff1f]""")


def split_text(text: str) -> list[str]:
    """Cuts a text into pieces of about 100 words, at sentence ends where one is near; whitespace is collapsed.

    A piece has at most 130 words, and 50 at least unless the whole text has fewer or no sentence ends near (the last
    piece may then have 30).
    """
    text = clean(text)
    ends = [match.end() for match in _WORD.finditer(text)]
    if len(ends) <= LONGEST:
        return [text] if text else []
    sentence_ends = {match.end() for match in _SENTENCE_END.finditer(text)}
    pieces, first, offset = [], 0, 0
    while len(ends) - first > LONGEST:
        cut = min(
            (i for i in range(first + SHORTEST, first + LONGEST + 1) if ends[i - 1] in sentence_ends),
            key=lambda i: abs(i - first - TARGET),
            default=first + TARGET,
        )
        pieces.append(text[offset : ends[cut - 1]].strip())
        first, offset = cut, ends[cut - 1]
    return [*pieces, text[offset:].strip()]
