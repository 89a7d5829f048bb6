"""What the programs do with the text of questions and answers: compare it, and fill in "#1" references."""

import re
from collections.abc import Mapping

UNKNOWN = "unknown"

# Only at the edges of a word: "3.5" and "C#" keep what tells them from "35" and "C".
_PUNCTUATION = ".,;:!?¿¡\"'`´‘’“”()[]…。？！、"  # noqa: RUF001 - these are what is meant
_REFERENCE = re.compile(r"(?<!\w)#(\d+)(?!\d)")


def clean(text: object) -> str:
    """The text in one line, or "" for None."""
    return "" if text is None else " ".join(str(text).split())


def normal(text: str) -> str:
    """What two spellings of the same question have in common: case, white space and edge punctuation are gone."""
    words = (word.strip(_PUNCTUATION) for word in text.casefold().split())
    return " ".join(word for word in words if word)


def is_unknown(answer: str) -> bool:
    """Whether an answer says that there is none."""
    return normal(answer) in ("", UNKNOWN)


def references(question: str, before: int) -> list[int]:
    """Which earlier sub-questions a sub-question names.

    Args:
        question: Such as "Where was #1 born?".
        before: The sub-question's own number, counted from 1. "#N" for any other N ("the #1 hit" in the first
            sub-question, say) is text, not a reference.

    Returns:
        Numbers counted from 1, ascending, each once.
    """
    return sorted({int(number) for number in _REFERENCE.findall(question) if 0 < int(number) < before})


def fill(question: str, answers: Mapping[int, str]) -> str:
    """Put answers in the place of the references to them; other "#N" stay."""
    return _REFERENCE.sub(lambda match: answers.get(int(match[1]), match[0]), question)
