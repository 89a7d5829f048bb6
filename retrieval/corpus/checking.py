"""What an index needs of a stream of passages: that there is one, that each is whole, and that no id comes twice."""

from collections.abc import Iterable, Iterator, Mapping

from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.passage import Passage, is_value
from raisf.utils.errors import InputError


def checked(passages: Iterable[Passage]) -> Iterator[Passage]:
    """The same passages, while making sure that there is one at all, that each is one, and that no id comes twice.

    Raises:
        InputError: No passage, something else among them, or an id that comes twice; the message says where both stand,
            the first at least nearly.
    """
    seen, number = SeenIds(), 0
    for number, passage in enumerate(passages, start=1):
        if wrong := _wrong_in(passage):
            raise InputError(f"passage {number} {wrong}")
        place = passage.citation if passage.source else f"passage {number}"
        if earlier := seen.add(passage.pid, place):
            raise twice(passage.pid, earlier, place)
        yield passage
    if not number:
        raise InputError("the corpus is empty: no passage with any text was found; give documents with text")


def _wrong_in(passage: object) -> str | None:
    """What keeps a passage that a program gives from being read again as it was."""
    if not isinstance(passage, Passage):
        return f"is {passage!r:.60}: give a raisf.Passage (raisf.index takes strings and mappings)"
    for name in ("pid", "text", "title", "source"):
        value = getattr(passage, name)
        if not isinstance(value, str) and not (value is None and name in ("title", "source")):
            return f"has the {name} {value!r:.60}: give a string"
    if not isinstance(passage.metadata, Mapping):
        return f"has the metadata {passage.metadata!r:.60}: give a mapping"
    for name, value in passage.metadata.items():
        if not (isinstance(name, str) and is_value(value)):
            return f"has the metadata {name!r:.60}: {value!r:.60}: give a name, and a text, a number, True or False"
    return None


def twice(pid: str, earlier: str, place: str) -> InputError:
    """The error for an id that comes twice."""
    return InputError(
        f"the id {pid!r} comes twice: {earlier} and {place}; ids must differ, or leave them out and they are numbered"
    )
