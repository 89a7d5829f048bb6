"""What has been computed is kept, up to so many bytes: the least recently used goes first."""

from collections.abc import Hashable
from operator import itemgetter
from typing import Generic, TypeVar

from cachetools import LRUCache

V = TypeVar("V")


class Kept(Generic[V]):
    """Values by their keys. Not safe to change from several threads at once.

    Args:
        most: Bytes that are kept; a value that is larger never is.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: LRUCache[Hashable, tuple[V, int]] = LRUCache(most, getsizeof=itemgetter(1))

    def get(self, key: Hashable) -> V | None:
        """A value; None where it is not kept."""
        found = self._values.get(key)
        return None if found is None else found[0]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Keeps a value, which takes so many bytes with its key."""
        if size <= self._most:
            self._values[key] = value, size

    def clear(self) -> None:
        """Keeps nothing any more."""
        self._values.clear()
