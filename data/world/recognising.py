"""Telling a closed world by what it consists of: its passages and its questions, wherever they have been copied to."""

import functools
import re

from raisf.data.world.schema import RELATIONS

_PASSAGE = re.compile(r"\d+-\d+-[01]")  # `raisf.data.world.generator.region`
_QUESTION = re.compile(r"w-?\d+-(train|dev|test)-\d+")  # `raisf.data.world.files.write_world`


def is_world_passage(pid: str, title: str, text: str) -> bool:
    """Whether a passage is of a closed world: its id, and a first sentence that such a world writes about its title."""
    return bool(_PASSAGE.fullmatch(pid) and title and any(form.match(text) for form in _openings(title)))


def is_world_question(identity: object) -> bool:
    """Whether a question's id is one that a closed world gives."""
    return isinstance(identity, str) and bool(_QUESTION.fullmatch(identity))


@functools.lru_cache(maxsize=64)
def _openings(subject: str) -> list[re.Pattern[str]]:
    """The sentences that a passage about a subject may begin with; the subject may have an alias behind it."""
    named = re.escape(subject) + r"(?:, also known as [^.]+?,)?"
    templates = {text for relations in RELATIONS.values() for one in relations for text in one.statements}
    return [re.compile(re.escape(text).replace(r"\{s\}", named).replace(r"\{o\}", ".+?")) for text in templates]
