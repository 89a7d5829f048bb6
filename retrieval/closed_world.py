"""Whether an index holds a closed world: told by its passages, so that old, served and copied indexes are known too."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raisf.data.world.recognising import is_world_passage
from raisf.retrieval.engines.base import Index
from raisf.retrieval.opening import open_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.filtered import Filtered
from raisf.retrieval.store.manifest import read_manifest
from raisf.retrieval.store.segments import live_passages
from raisf.utils.urls import is_address

LOOKED_AT = 3
"""Passages that are looked at of what is searched elsewhere, and tells no more than what it finds."""


def of_closed_world(index: Any) -> bool:
    """Whether the passages are those of a closed world (`raisf.data.world`), and no others.

    All are looked at, up to the first that is of no such world: a user's own lie anywhere among them once segments have
    been merged.

    Args:
        index: A folder, an address, or any retriever.

    Raises:
        InputError: There is no index, or it is damaged.
    """
    passages = _passages(index)
    some = next(passages, None)
    return some is not None and all(
        is_world_passage(one.pid, one.title, one.text) for one in itertools.chain([some], passages)
    )


def _passages(given: Any) -> Iterator[Passage]:
    named = isinstance(given, str | Path)
    if named and not is_address(given):
        for segment in read_manifest(given).segments:
            yield from live_passages(Path(given), segment)
        return
    index: Any = open_index(given) if named else given
    held = getattr(index, "passages", None) if isinstance(index, Index | Filtered) else None
    if held is not None:
        yield from held
    elif (folder := getattr(index, "path", None)) is not None:
        yield from _passages(folder)
    else:
        yield from index("the town", LOOKED_AT)  # a server, a collection
