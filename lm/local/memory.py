"""Freed memory that the C library holds on to."""

import ctypes
import functools
import sys
import time
from collections.abc import Callable

# It takes some milliseconds, and what was given back must be fetched again.
SECONDS = 10.0


class FreedMemory:
    """Memory of freed tensors that glibc's malloc keeps, as it lies between tensors that stay; it grows over hours.

    Mapping each large tensor anew would keep nothing, and costs a fifth of the time (see `raisf.lm.pocket.trainer`).
    """

    def __init__(self) -> None:
        self._last = time.monotonic()

    def give_back(self) -> None:
        """Gives it back to the system, where some time has passed since it last did."""
        if time.monotonic() - self._last >= SECONDS:
            if trim := c_function("malloc_trim"):
                trim(0)
            self._last = time.monotonic()


@functools.cache
def c_function(name: str) -> Callable[..., int] | None:
    """One of glibc's functions; None elsewhere: musl has not all of them."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
