"""A full disk, told with the file that could not be written and with what to do."""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path

from raisf.utils.errors import RaisfError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Libraries that write by themselves tell it in words only: NumPy counts items, safetensors quotes the system.
_TOLD = re.compile(r"\d+ requested and \d+ written|os error (28|27|122)\b|No space left|quota exceeded", re.IGNORECASE)


@contextlib.contextmanager
def naming_full_disk(path: Path | str) -> Iterator[None]:
    """Tells a full disk as a RaisfError with the file, or else `path`.

    Raises:
        RaisfError: The disk is full, the user's share of it is used up, or the file is larger than it may be.
    """
    try:
        yield
    except RaisfError:
        raise
    except Exception as error:
        number = getattr(error, "errno", None)
        if number not in _FULL and not (number is None and _TOLD.search(str(error))):
            raise
        where = getattr(error, "filename2", None) or getattr(error, "filename", None) or path  # of a copy, its end
        reason = getattr(error, "strerror", None) or str(error)
        raise RaisfError(
            f"cannot write {where} ({reason}): free some space on its disk, or choose a place on another; nothing was "
            "replaced"
        ) from error
