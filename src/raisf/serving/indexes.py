"""The indexes of the programs that are served: their new state is taken up while the service runs."""

import copy
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import open_folder
from raisf.retrieval.search.filtered import Filtered
from raisf.retrieval.serving.watcher import Watcher
from raisf.serving.service import Service


class IndexesWatched:
    """As a context: the next question is asked of what an index has become; one under way ends on what it began with.

    Programs over one folder share what is opened. An index server takes up changes itself.

    Args:
        service: Whose programs these are. A module of the user's own is watched by its attribute `retriever`.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._held = ExitStack()

    def __enter__(self) -> "IndexesWatched":
        found: dict[Path, Index] = {}
        for served in self._service.served.values():
            index = _index_of(served.retriever)
            if index is not None and index.path is not None:
                found.setdefault(index.path.resolve(), index)
        for folder, index in found.items():
            watcher = Watcher(_Taken(self._service, folder, index), lambda folder=folder: open_folder(folder))
            self._held.callback(watcher.close)
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()


class _Taken:
    """The index that the programs over a folder search now; a new one reaches them all, or none."""

    def __init__(self, service: Service, folder: Path, index: Index) -> None:
        self._service, self._folder, self._index = service, folder, index

    @property
    def index(self) -> Index:
        return self._index

    @index.setter
    def index(self, fresh: Index) -> None:
        changed = {}
        for name, served in self._service.served.items():
            index = _index_of(served.retriever)
            if index is None or index.path is None or index.path.resolve() != self._folder:
                continue
            # A copy, whose predictors are the same: whoever asks the old program now goes on as it began.
            program = copy.copy(served.program)
            program.retriever = _like(served.retriever, fresh)
            changed[name] = replace(served, program=program)
        self._service.served.update(changed)
        self._index = fresh


def _index_of(retriever: Any) -> Index | None:
    found = retriever.index if isinstance(retriever, Filtered) else retriever
    return found if isinstance(found, Index) else None


def _like(old: Any, fresh: Index) -> Any:
    return fresh.where(old.condition) if isinstance(old, Filtered) else fresh
