"""Data is never markup: what stands in a passage, a question, a label or a file's name is shown, and does nothing.

A terminal obeys control characters, a right-to-left mark reorders what stands beside it, matplotlib typesets `$x$`.
`visible` is for everything that a person reads; `raisf.utils.display` applies it to what rich prints.
"""

import hashlib
import unicodedata
from collections.abc import Collection, Mapping

SOFT_HYPHEN = "\u00ad"
"""Seen only where a line breaks at it, inside a word."""

_KEPT = "\t\n"
# They reorder the text around them: an answer could be made to read as another (Boucher and Anderson 2021).
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# A control character as its picture in Unicode (ESC is ␛), any other as its escape in Python.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT} | {0x7F: "␡"}
_ESCAPES = {ord(one): f"\\u{ord(one):04x}" for one in _BIDI + "\u2028\u2029"}
_SHOWN = _PICTURES | _ESCAPES | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}
# JSON has escaped what lies below 0x20 already; the rest can stand in its strings only.
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in _SHOWN if code >= 0x20}


def text_of(value: object) -> str:
    """What a program or an LM gave, as text: "" for None, and "?" for half a surrogate pair, which no file can hold."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode("utf-8")


def answer_text(value: object, answers: Collection[str] = ()) -> str:
    """The same of an answer: True is yes, False no, and 42.0 is 42, as columns with gaps have it.

    Unless one of the gold answers is called so.
    """
    if (text := text_of(value)) in answers:
        return text
    found = getattr(value, "item", None)  # NumPy's are none of Python's
    value = found() if found is not None and type(value).__name__.startswith(("bool", "float")) else value
    if isinstance(value, bool):
        return ("no", "yes")[value]
    # Others as they are written: in half the digits 0.1 is another number.
    return str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else text


def clean(text: object) -> str:
    """The same on one line, white space as single spaces.

    Without soft hyphens: a word that says where it may be broken is else another word than itself.
    """
    return " ".join(text_of(text).replace(SOFT_HYPHEN, "").split())


def counted(number: int, one: str, many: str = "") -> str:
    """As in "1 passage", "2 passages"; `many` where it is not `one` with an s."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def by_reason(told: Mapping[str, str]) -> dict[str, list[str]]:
    """By what is told of labels, those of which the same is."""
    labels: dict[str, list[str]] = {}
    for label, why in told.items():
        labels.setdefault(why, []).append(label)
    return labels


def composed(text: str) -> str:
    """The text with each letter and its accents as one character: a Mac's names of files have them apart."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def print_of(question: str) -> str:
    """Stands for a question where it must not be told, however it is spaced, capitalised and composed."""
    return hashlib.sha256(clean(composed(question)).lower().encode()).hexdigest()[:16]


def visible(data: object) -> str:
    """The text of something, with its control characters (but for tabs and line breaks) made visible."""
    return str(data).translate(_SHOWN)


def one_line(data: object) -> str:
    """The same with white space as single spaces, line breaks too: a title cannot pass for the line below it."""
    return visible(" ".join(str(data).split()))


def visible_json(text: str) -> str:
    """JSON text for a terminal: the same value, with the characters that `visible` replaces as JSON's own escapes."""
    return text.translate(_JSON_ESCAPES)


def plot_label(data: object) -> str:
    """A label that matplotlib shows as it stands: no mathematics, and not left out of a legend."""
    text = visible(data).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text  # a leading underscore hides a line from its legend
