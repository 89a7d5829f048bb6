"""Whether an index holds a closed world: told by its passages, so that old, served and copied indexes are known too."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from raisf.data.world.recognising import is_world_passage
from raisf.retrieval.engines.qdrant import SCHEMES
from raisf.retrieval.opening import open_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import read_manifest
from raisf.retrieval.store.rows import read_segment

LOOKED_AT = 3
"""Passages of each segment that are looked at: what a user has added to a world is a segment of its own."""


def of_closed_world(index: Any) -> bool:
    """Whether the passages are those of a closed world (`raisf.data.world`), and no others.

    Args:
        index: A folder, an address, or any retriever.

    Raises:
        InputError: There is no index, or it is damaged.
    """
    passages = list(_some(index))
    return bool(passages) and all(is_world_passage(one.pid, one.title, one.text) for one in passages)


def _some(index: Any) -> Iterable[Passage]:
    if isinstance(index, str | Path):
        if str(index).startswith(("http://", "https://", *SCHEMES)):
            index = open_index(index)
        else:
            path = Path(index)
            for segment in read_manifest(path).segments:
                yield from islice(read_segment(path, segment), LOOKED_AT)
            return
    if (path := getattr(index, "path", None)) is not None:
        yield from _some(path)
    else:
        yield from index("the town", LOOKED_AT)  # a server, a collection, a filter: what it finds
