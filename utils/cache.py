"""Where what is made once for all projects is kept: models, checkpoints, compiled extensions, indexes of texts."""

import os
from pathlib import Path

from raisf.utils.files import check_writable, expanded

_REMEDY = "give a place that can be written as RAISF_CACHE"


def cache_folder() -> Path:
    """`$RAISF_CACHE`, or `~/.cache/raisf`.

    Raises:
        InputError: There is no home that it could be in.
    """
    return expanded(os.environ.get("RAISF_CACHE") or "~/.cache/raisf", _REMEDY)


def check_cache(folder: Path) -> None:
    """Makes sure that something can be made in a folder of the cache.

    Raises:
        InputError: It cannot; the message says what to do.
    """
    check_writable(folder, _REMEDY)
