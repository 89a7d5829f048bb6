"""What an experiment's folder keeps to make it once, and can make again."""

import logging
from pathlib import Path
from typing import Any

from raisf.utils.errors import InputError
from raisf.utils.files import read_json

logger = logging.getLogger(__name__)


def read_kept(path: Path, instead: str) -> Any:
    """The value in a JSON file that can be made again; None where there is none, or, which is told, it is unreadable.

    Args:
        path: The file.
        instead: What holds without it.
    """
    if not path.is_file():
        return None
    try:
        return read_json(path)
    except InputError:
        logger.warning("%s cannot be read: %s", path, instead)
        return None


def read_stamp(path: Path, when: str) -> Any:
    """The value in a JSON file that says what a folder was made of.

    Args:
        path: The file.
        when: When a user may delete it, and go on without.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return read_json(path)
    except InputError as error:
        raise InputError(f"{path} cannot be read: delete it {when}, or give a new folder") from error
