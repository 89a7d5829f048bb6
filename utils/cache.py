"""Where what is made once for all projects is kept: converted models and checkpoints."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$RAISF_CACHE`, or `~/.cache/raisf`."""
    return Path(os.environ.get("RAISF_CACHE") or "~/.cache/raisf").expanduser()
