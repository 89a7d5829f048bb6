"""A label out of a text: strict about what is not there, lenient about case, punctuation and emphasis."""

import re
import unicodedata
from typing import Any

from raisf.utils.wording import UNSPACED

# Quotation marks, dashes and stops as on a keyboard; what cannot be seen is dropped.
_TYPED = str.maketrans(
    "\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f\u2013\u2014\u3001",
    "''" + '"' * 9 + "--,",
    "\u200b\u200c\u200d\u2060\ufeff",
) | {0x3002: "."}

_DRESS = r"\s*_`\"'.,;:()\[\]{}<>#\u2022"
MAX_LABEL_CHARACTERS = 8_000  # with its explanation
# Possessive, so that a text of nothing else is gone through once.
_OPENING = rf"\s*+(?:[-+]\s++)?[{_DRESS}]*+"
_EMPTY_BRACKETS = re.compile(r"\[\s*\]|\(\s*\)|\{\s*\}")  # an unticked box
# What stands between a label and an explanation of it.
_BREAK = re.compile(rf"[*_`\"')\]}}>]*(?:[ \t]*\n|[.:;,!](?:\s|(?=[{UNSPACED}]))|\s+-+\s|\s*\()")
# Words with which an explanation may take back, or leave open, what the label says.
_DOUBT = frozenset(
    "not no never nothing none nor neither nobody nowhere cannot cant wont dont doesnt isnt without false wrong "
    "incorrect untrue unsure uncertain unclear undecided undetermined maybe perhaps possibly might may could wait "
    "actually sorry correction corrected mistake instead rather but however although though except unless if or else "
    "either whether hardly barely scarcely unlikely doubt doubtful insufficient impossible opposite contrary lie joke "
    "jk oops n f x nah nope scratch ignore disregard null nil nan na undefined error "
    "non nicht kein keine nein pas ne sin nunca nada ningún \u043d\u0435 \u043d\u0435\u0442".split()
)
_NEGATIONS = re.compile(r"n't\b|[不没沒非否無未]")


class Unreadable(ValueError):
    """A text from which no value of the wanted type can be read; the message says why."""


def label(text: str, labels: tuple[Any, ...], name: str = "") -> Any:
    """The one label that a text gives.

    The label may be dressed in punctuation, emphasis, brackets and quotation marks, be named (`verdict: know`) and be
    explained behind a punctuation mark. An explanation that names another label, asks, or holds a word of negation or
    doubt makes the text unreadable.

    Raises:
        Unreadable: It gives none, or not clearly.
    """
    for one in labels:
        if text.strip() == str(one):
            return one
    folded = compatible(text[:MAX_LABEL_CHARACTERS]).casefold()
    # An open bracket or quotation mark: there was to be more.
    whole = (
        len(text) <= MAX_LABEL_CHARACTERS
        and all(folded.count(a) == folded.count(b) for a, b in ("[]", "{}"))
        and folded.count('"') % 2 == 0
    )
    body = named(folded, name) if whole else ""
    others = {str(one).casefold(): one for one in labels}
    for said in sorted(others, key=len, reverse=True):
        found = re.match(rf"{_OPENING}{re.escape(said)}(?![^\W_])", body)
        if found is None:
            continue
        opening, rest = found[0][: -len(said)], body[found.end() :]
        signed = said[:1].isdigit() and opening.rstrip().endswith(("-", "+", ".", ",")) and not opening.endswith(" ")
        if not signed and not _EMPTY_BRACKETS.search(opening) and _leaves(rest, said, others):
            return others[said]
        break
    raise Unreadable(f"expected {choices(labels)}, found {shown(text)}")


def contradicts(text: str, said: Any, labels: tuple[Any, ...] = ()) -> bool:
    """Whether what a reply goes on with takes back what it said, or names another label."""
    folded = compatible(text).casefold()
    return bool(folded.strip()) and not _explains(folded, str(said).casefold(), {str(one).casefold() for one in labels})


def _leaves(rest: str, said: str, labels: Any) -> bool:
    """Whether what follows a label leaves it as it is: nothing but dress, or an explanation."""
    if re.fullmatch(rf"[{_DRESS}!]*", rest):
        return ".." not in rest and not _EMPTY_BRACKETS.search(rest)
    found = _BREAK.match(rest)
    return found is not None and _explains(rest[found.end() :], said, labels)


def _explains(text: str, said: str, labels: Any) -> bool:
    if doubts(text) or re.match(r"[\s*_`\"'(\[~<>=+-]*\d", text):
        return False
    words = _words(text)
    return not any(_words(other) in words for other in labels if other != said)


def _words(text: str) -> str:
    return " ".join(["", *re.findall(r"\w+", text), ""])


def doubts(text: str) -> bool:
    """Whether a text in lower case asks, denies or hesitates."""
    return (
        "?" in text or "~" in text or bool(_NEGATIONS.search(text)) or not _DOUBT.isdisjoint(re.findall(r"\w+", text))
    )


def named(text: str, name: str) -> str:
    """A text in lower case without the field's name before the value: `verdict:`, `the answer is`."""
    names = "|".join(dict.fromkeys(filter(None, (re.escape(name.casefold()).replace("_", "[_ ]"), "answer", "label"))))
    gap = r"[\s*_`\"']*+"
    found = re.match(rf"{_OPENING}(?:the\s+)?(?:final\s+)?(?:{names}){gap}(?:(?:is\b|=){gap}:?|:){gap}", text)
    return text[found.end() :] if found else text


def compatible(text: str) -> str:
    """A text in compatibility form: letters, digits and quotation marks of any width and kind are the same."""
    return unicodedata.normalize("NFKC", text).translate(_TYPED)


def choices(labels: tuple[Any, ...]) -> str:
    """The labels, for an error."""
    return f"one of {', '.join(map(str, labels))}"


def shown(value: Any) -> str:
    """The beginning of a value, for an error."""
    return repr(value if not isinstance(value, str) else " ".join(value[:200].split()))[:80]
