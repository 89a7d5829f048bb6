"""Taking up the new state of an index's folder while it is served."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from raisf.retrieval.engines.base import Index
from raisf.retrieval.store.manifest import MANIFEST, read_manifest

logger = logging.getLogger(__name__)

REFRESH = 1.0
"""Seconds between two looks at whether the index has changed on the disk."""


class Holder(Protocol):
    """What searches an index; another may be put in its place at any time."""

    @property
    def index(self) -> Index:
        """The index."""
        ...

    @index.setter
    def index(self, fresh: Index) -> None: ...


class Watcher:
    """Gives a holder the index anew whenever its folder has changed.

    Args:
        holder: What searches.
        reopen: Opens the index again; None: nothing is watched.
    """

    def __init__(self, holder: Holder, reopen: Callable[[], Index] | None):
        self._holder, self._reopen = holder, reopen
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops; does not wait for an index that is just being opened."""
        self._stopping.set()
        self._thread.join(1)

    def _watch(self) -> None:
        path = self._holder.index.path
        if self._reopen is None or path is None:
            return
        served = failed = None
        while not self._stopping.wait(REFRESH):
            stamp = _stamp(path)
            if stamp in (None, served):
                continue
            try:
                # The first look finds out what has changed while the index was being opened.
                if read_manifest(path) != self._holder.index.manifest:
                    self._holder.index = self._reopen()
                    logger.warning("the index %s has changed: serving its new state", path)
                served = stamp
            except Exception as error:  # tried again until it can be opened: it may be on its way, file by file
                if stamp != failed:
                    logger.warning("the index %s has changed, but cannot be opened: serving the old (%s)", path, error)
                failed = stamp


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes when the manifest of an index is replaced; None while there is none."""
    try:
        status = (path / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
