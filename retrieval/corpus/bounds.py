"""What a document may become, and what its reader may raise."""

import time
from collections.abc import Iterator
from pathlib import Path

from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError, RaisfError

SECONDS, SECONDS_PER_MB = 5, 30
"""Processor time that reading a file may take, and for each megabyte of it.

Text and pdf take about a second a MB, a list in Markdown up to ten."""

GROWTH = 50
"""Characters of passages that a file may become for each of its bytes, beyond `FREE`: a packed one becomes some ten."""

FREE = 1 << 22
"""Characters of passages that any file may become."""

_EACH = 80
"""Characters that a passage counts for besides its texts: one of a letter takes as long to make as one of words."""


def seconds_for(size: int) -> int:
    """Processor time that reading a file of so many bytes may take."""
    return SECONDS + SECONDS_PER_MB * size // (1 << 20)


def bounded(passages: Iterator[Passage], file: Path, name: str) -> Iterator[Passage]:
    """The passages of a file, with one kind of error whatever its reader raises.

    Raises:
        InputError: It cannot be read, or becomes far more than a file of its size does: each passage repeats the title
            and the other columns of its row.
        RaisfError: It is not the file that is at fault.
    """
    try:
        size = file.stat().st_size
        room, seconds = FREE + GROWTH * size, seconds_for(size)
        while True:
            start = time.thread_time()
            if (passage := next(passages, None)) is None:
                return
            seconds -= time.thread_time() - start
            if seconds < 0:
                raise InputError(
                    f"{name}: reading it takes over {seconds_for(size)} seconds; break it into smaller files"
                )
            room -= _EACH + len(passage.text) + len(passage.title)
            room -= sum(len(key) + len(str(value)) for key, value in passage.metadata.items())
            if room < 0:
                raise InputError(f"{name}: its passages are over {GROWTH} times as large; break it into smaller files")
            yield passage
    except RaisfError:
        raise
    except MemoryError as error:
        raise InputError(f"{name}: needs more memory than a file of its size may; leave it out") from error
    except OSError as error:
        raise InputError(f"{name}: cannot be read ({error.strerror or error}); mend that, or leave it out") from error
    except Exception as error:  # whatever a library makes of it: the file is at fault, and the others are not
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
        raise InputError(f"{name}: cannot be read ({told}); save it anew, or leave it out") from error
