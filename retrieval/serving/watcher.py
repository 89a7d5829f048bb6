"""Taking up the new state of an index, in its folder or at its server, while programs search it."""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from raisf.retrieval.engines.base import Index
from raisf.retrieval.serving.remote import RemoteIndex
from raisf.retrieval.store.manifest import MANIFEST, read_manifest

logger = logging.getLogger(__name__)

REFRESH = 1.0
"""Seconds between two looks at whether the index has changed."""

Searched = TypeVar("Searched", bound=Index | RemoteIndex)


class Holder(Protocol[Searched]):
    """What searches an index; another may be put in its place at any time."""

    @property
    def index(self) -> Searched:
        """The index."""
        ...

    @index.setter
    def index(self, fresh: Searched) -> None: ...


class Watcher:
    """Gives a holder the index anew whenever its folder, or what its server serves, has changed.

    Args:
        holder: What searches.
        reopen: Opens the index again; None: nothing is watched.
    """

    def __init__(self, holder: Holder[Searched], reopen: Callable[[], Searched] | None):
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(holder, reopen), name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops; does not wait for an index that is just being opened."""
        self._stopping.set()
        self._thread.join(1)

    def _watch(self, holder: Holder[Searched], reopen: Callable[[], Searched] | None) -> None:
        if reopen is None:
            return
        place = holder.index.url if isinstance(holder.index, RemoteIndex) else holder.index.path
        taken = failed = None
        missed = 0
        while not self._stopping.wait(REFRESH):
            stamp = _stamp(holder.index)
            missed = missed + 1 if stamp is None else 0
            if missed == 2 and isinstance(holder.index, Index):  # once may be between the old folder and the new one
                logger.warning("the index %s is no longer there: serving what it was", place)
            if stamp in (None, taken):
                continue
            try:
                # The first look finds out what has changed while the index was being opened.
                if _changed(holder.index, stamp):
                    holder.index = reopen()
                    logger.warning("the index %s has changed: serving its new state", place)
                taken = stamp
            except Exception as error:  # tried again until it can be opened: it may be on its way, file by file
                if stamp != failed:
                    logger.warning("the index %s has changed, but cannot be opened: serving the old (%s)", place, error)
                failed = stamp


def _stamp(index: Index | RemoteIndex) -> Any:
    """Changes when what can be opened there changes, of a folder its manifest; None while nothing can."""
    if isinstance(index, RemoteIndex):
        return index.served_now()
    try:
        status = (index.path / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _changed(index: Index | RemoteIndex, stamp: Any) -> bool:
    if isinstance(index, RemoteIndex):
        return stamp != index.served
    return read_manifest(index.path) != index.manifest
