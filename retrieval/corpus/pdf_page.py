"""The text of a page of a pdf file, from the runs that it is set in: pypdf tells each with its font, size and place."""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from raisf.retrieval.corpus.shown import STROKES, power_sign
from raisf.retrieval.corpus.splitting import BREAK
from raisf.retrieval.corpus.titles import says_something
from raisf.utils.text import clean

_SMALLER = 0.9
"""Of the size of what stands before it, what a raised number has at most."""
_HIGHER = (0.15, 1)
"""The same of how much higher it stands."""


_NOT_SHOWN = 1 << 1 | 1 << 5
"""Flags of a note on a page that nobody sees."""
_PASSWORD = 1 << 13
"""The flag of a field that shows no letters."""


class _Run(NamedTuple):
    """Characters that are set in one go, with the two matrices that place them."""

    text: str
    on_page: Sequence[float]
    in_text: Sequence[float]
    font: Mapping[str, Any] | None
    size: float


def text_of(page: Any) -> str | None:
    """The text of a page, a raised number told from the one before it: `10^6`; None where its letters are not known."""
    runs = list[_Run]()

    def visit(*run: Any) -> None:
        if run[0]:
            runs.append(_Run(*run))

    text = page.extract_text(visitor_text=visit)
    if 2 * _unknown(runs, text) > len("".join(text.split())):
        return None
    told = "".join(run.text for run in runs)
    return _with_powers(runs) if told == text else text


def filled_in(page: Any, text: str) -> str:
    """What is typed into a form's fields, or over a page, and does not stand in its text.

    It is a paragraph each, behind the field's name if that tells.
    """
    try:
        notes = [note.get_object() for note in page.annotations or ()]
        typed = dict.fromkeys(_typed(note) for note in notes if isinstance(note, Mapping))
        there = clean(text)
        return BREAK.join(one for one in typed if one not in there)
    except Exception:  # a page whose text could be read is none that cannot be, whatever its notes are
        return ""


def _typed(note: Mapping[str, Any]) -> str:
    from pypdf.generic import TextStringObject

    def told(of: Mapping[str, Any], key: str) -> str:
        return clean(of[key]) if key in of and isinstance(of[key], TextStringObject) else ""

    if "/F" in note and note["/F"] & _NOT_SHOWN:
        return ""
    if (kind := note.get("/Subtype")) != "/Widget":
        return told(note, "/Contents") if kind == "/FreeText" else ""
    field = note if "/T" in note or "/Parent" not in note else note["/Parent"]
    value = told(field, "/V") if not ("/Ff" in field and field["/Ff"] & _PASSWORD) else ""
    label = (told(field, "/TU") or told(field, "/T")).rstrip(" :")
    return f"{label}: {value}" if value and says_something(label) else value


def _unknown(runs: Sequence[_Run], text: str) -> int:
    """How many characters of a page are numbers of a font's shapes, or of a font that is not there."""
    fonts = {id(run.font): run.font for run in runs}
    unmapped = {key for key, font in fonts.items() if font and _is_unmapped(font)}
    shapes = "".join("".join(run.text.split()) for run in runs if id(run.font) in unmapped)
    as_letters = 2 * sum(map(str.islower, shapes)) > len(shapes)  # some number their shapes as Unicode does
    return text.count("\ufffd") + (0 if as_letters else len(shapes))


def _is_unmapped(font: Mapping[str, Any]) -> bool:
    """Whether what stands in a text are the numbers of a font's shapes, and nothing tells which letters these draw."""
    numbered = "/Encoding" in font and font["/Encoding"] in ("/Identity-H", "/Identity-V")
    told = font["/ToUnicode"] if "/ToUnicode" in font else None
    as_unicode = isinstance(told, str) and told.startswith("/Identity")  # a name: the numbers are the letters'
    return numbered and not (as_unicode or hasattr(told, "get_data"))


def _with_powers(runs: Sequence[_Run]) -> str:
    said, before = list[str](), None
    for run, behind in zip_longest(runs, runs[1:]):
        # Behind a word it is mostly a footnote's mark, which makes no other word of it.
        if before and before.text[-1].isdigit() and not run.text[0].isspace():
            sign = power_sign("sup", before.text, run.text, bool(behind) and behind.text.lstrip().startswith(STROKES))
            said.append(sign if sign and _is_raised(before, run) else "")
        said.append(run.text)
        before = run
    return "".join(said)


def _is_raised(below: _Run, above: _Run) -> bool:
    """Whether a run is smaller than another, and stands higher on the same line."""
    (x, y), up = _place(below)
    (other_x, other_y), other_up = _place(above)
    height = math.hypot(*up)
    size = below.size * height
    if not 0 < above.size * math.hypot(*other_up) <= _SMALLER * size:
        return False
    least, most = _HIGHER
    return least < ((other_x - x) * up[0] + (other_y - y) * up[1]) / (height * size) < most


def _place(run: _Run) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where on the page a run begins, and which way is up there."""
    page, text = run.on_page, run.in_text
    x, y = (text[4] * page[axis] + text[5] * page[2 + axis] + page[4 + axis] for axis in (0, 1))
    up_x, up_y = (text[2] * page[axis] + text[3] * page[2 + axis] for axis in (0, 1))
    return (x, y), (up_x, up_y)
