"""Telling a closed world by what it consists of: its passages and its questions, wherever they have been copied to."""

import functools
import re

from raisf.data.world.schema import RELATIONS

_PASSAGE = re.compile(r"\d+-\d+-[01]")  # `raisf.data.world.generator.region`
_ALIAS = re.compile(r"\A, also known as [^.,]+,")
_QUESTION = re.compile(r"w-?\d+-(train|dev|test)-\d+")  # `raisf.data.world.files.write_world`


def is_world_passage(pid: str, title: str, text: str) -> bool:
    """Whether a passage is of a closed world: its id, and a first sentence that such a world writes about its title."""
    if not (title and _PASSAGE.fullmatch(pid)):
        return False
    before, _, behind = text.partition(title)
    return _openings().match(f"{before}{{s}}{_ALIAS.sub('', behind)}") is not None


def is_world_question(identity: object) -> bool:
    """Whether a question's id is one that a closed world gives."""
    return isinstance(identity, str) and bool(_QUESTION.fullmatch(identity))


@functools.cache
def _openings() -> re.Pattern[str]:
    """The sentences that a passage may begin with, where its subject is written {s}."""
    templates = {text for relations in RELATIONS.values() for one in relations for text in one.statements}
    return re.compile("|".join(re.escape(text).replace(r"\{o\}", ".+?") for text in sorted(templates)))
