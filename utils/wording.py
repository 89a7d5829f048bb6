"""How texts are worded: what two spellings have in common, what asks for yes or no, what names an earlier answer."""

import re
from collections.abc import Mapping, Sequence

# Only at the edges of a word: "3.5" and "C#" keep what tells them from "35" and "C".
PUNCTUATION = ".,;:!?¿¡\"'`´‘’“”()[]…。？！、"  # noqa: RUF001 - these are what is meant
AUXILIARIES = frozenset(
    "is are was were am isn't aren't wasn't weren't do does did don't doesn't didn't has have had hasn't haven't "
    "hadn't can could can't couldn't will would won't wouldn't shall should shouldn't may might must".split()
)
INTERROGATIVES = frozenset("what which who whom whose where when why how".split())
CJK = "\u2e80-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
"""The characters of Chinese, Japanese and Korean, for a pattern."""
THAI = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Those of Thai, Lao, Burmese and Khmer."""
UNSPACED = CJK + THAI
"""Those of scripts that put no spaces between words, or none between a name and what belongs to it."""
_UNSPACED = re.compile(f"[{UNSPACED}]")
REFERENCE = re.compile(rf"(?<![^\W{UNSPACED}])#(\d{{1,3}})(?!\d)")
"""Where a sub-question names an earlier one, "#1". A longer number names none, nor does one of a word, "issue#1"."""


def normal(text: str) -> str:
    """What two spellings of the same question have in common: case, white space and edge punctuation are gone."""
    words = (word.strip(PUNCTUATION) for word in text.casefold().split())
    return " ".join(word for word in words if word)


def apart(text: str) -> str:
    """The text with spaces around each character of the scripts that put none between words."""
    return text if text.isascii() else _UNSPACED.sub(r" \g<0> ", text)


def is_yes_no(question: str) -> bool:
    """Whether a question asks for yes or no, by its words.

    It does where it, or what follows its first commas, begins with a verb such as "is" or "could", unless it asks to
    choose ("Is Velm or Oss older?"), another clause asks what or who, or so does what is politely put ("Can you tell
    me who ...").
    """
    clauses = [normal(clause).split() for clause in re.split(r"[,;:]\s", question)]
    place = next((place for place, words in enumerate(clauses) if words and words[0] in AUXILIARIES), None)
    if place is None or "or" in clauses[place]:
        return False
    # What follows a comma may as well go on with a statement: "Velm, a town, is part of which county?"
    whole = place > 0 or clauses[0][1:2] == ["you"]
    return not any(word in INTERROGATIVES for words in clauses for word in (words if whole else words[:2]))


def fill(question: str, answers: Mapping[int, str]) -> str:
    """Put answers in the place of the references to them; other "#N" stay."""
    return REFERENCE.sub(lambda match: answers.get(int(match[1]), match[0]), question)


def filled(questions: Sequence[str], answers: Sequence[str]) -> list[str]:
    """Sub-questions with the answers of earlier ones put in the place of the references to them."""
    return [fill(text, dict(enumerate(answers[:before], start=1))) for before, text in enumerate(questions)]
