"""Where what is made once for all projects is kept: models, checkpoints, compiled extensions, indexes of texts."""

import os
from pathlib import Path

from raisf.utils.files import check_writable


def cache_folder() -> Path:
    """`$RAISF_CACHE`, or `~/.cache/raisf`."""
    return Path(os.environ.get("RAISF_CACHE") or "~/.cache/raisf").expanduser()


def check_cache(folder: Path) -> None:
    """Makes sure that something can be made in a folder of the cache.

    Raises:
        InputError: It cannot; the message says what to do.
    """
    check_writable(folder, "give a place that can be written as RAISF_CACHE")
