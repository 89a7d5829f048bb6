"""The indexes of the programs that are served: their new state is taken up while the service runs."""

import copy
import logging
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import open_folder
from raisf.retrieval.search.filtered import Filtered
from raisf.retrieval.serving.remote import RemoteIndex
from raisf.retrieval.serving.watcher import Watcher
from raisf.serving.service import Service

logger = logging.getLogger(__name__)


class IndexesWatched:
    """As a context: the next question is asked of what an index has become; one under way ends on what it began with.

    Programs over one folder, or one index server, share what is opened. A server keeps no old state: a question that is
    under way when it takes up another one ends with an error that says so, unless it has searched all it wants.

    Args:
        service: Whose programs these are. A module of the user's own is watched by its attribute `retriever`.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._held = ExitStack()

    def __enter__(self) -> "IndexesWatched":
        found: dict[Path | str, Index | RemoteIndex] = {}
        for served in self._service.served.values():
            index = _index_of(served.retriever)
            place = _place_of(index)
            if index is not None and place is not None:
                found.setdefault(place, index)
        for place, index in found.items():
            watcher = Watcher(_Taken(self._service, place, index), lambda place=place: _opened(place))
            self._held.callback(watcher.close)
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()


class _Taken:
    """The index that the programs over a place search now; a new one reaches them all, or none."""

    def __init__(self, service: Service, place: Path | str, index: Index | RemoteIndex) -> None:
        self._service, self._place, self._index = service, place, index

    @property
    def index(self) -> Any:
        return self._index

    @index.setter
    def index(self, fresh: Any) -> None:
        changed = {}
        for name, served in self._service.served.items():
            if _place_of(_index_of(served.retriever)) != self._place:
                continue
            # A copy, whose predictors are the same: whoever asks the old program now goes on as it began.
            program = copy.copy(served.program)
            program.retriever = _like(served.retriever, fresh)
            conversation = copy.copy(served.conversation)
            if conversation is not None:
                conversation.program = program
            changed[name] = replace(served, program=program, conversation=conversation)
        self._service.served.update(changed)
        self._index = fresh
        found = [one.retriever for one in changed.values() if isinstance(one.retriever, Filtered)]
        for condition in {one.condition for one in found if not getattr(one, "passages", True)}:
            logger.warning("no passage of %s satisfies --where %r now: nothing is found there", self._place, condition)


def _index_of(retriever: Any) -> Index | RemoteIndex | None:
    found = retriever.index if isinstance(retriever, Filtered) else retriever
    return found if isinstance(found, Index | RemoteIndex) else None


def _place_of(index: Index | RemoteIndex | None) -> Path | str | None:
    """Where an index is: its folder, which may be a link that will lead to another, or its server's address."""
    if isinstance(index, RemoteIndex):
        return index.url
    return index.path.absolute() if index is not None and index.path is not None else None


def _opened(place: Path | str) -> Index | RemoteIndex:
    return open_folder(place) if isinstance(place, Path) else RemoteIndex(place)


def _like(old: Any, fresh: Any) -> Any:
    return fresh.where(old.condition) if isinstance(old, Filtered) else fresh
