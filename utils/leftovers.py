"""Files and folders on their way: who owns them, and sweeping up those whose process was killed.

What is written for `path` stands beside it as `.NAME.xxxxxxxx.partial`, and what it replaces as `.NAME.xxxxxxxx.old`.
Its owner holds a lock (flock) on it, which the system takes away when the process ends, however it ends. So what
nobody has locked is a leftover, however young, and what somebody has locked is none, however old.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

PARTIAL, REPLACED = ".partial", ".old"
_STRAY = (f".*{PARTIAL}", ".DS_Store", ".nfs*")  # a killed process's, a Mac's, and a network disk's
_RANDOM = "[a-z0-9_]{8}"  # what `tempfile` puts between prefix and suffix
_reading = threading.Lock()


def sweep(path: Path) -> bool:
    """Removes what killed processes have left beside `path`, and puts back a folder that one was just replacing.

    What cannot be removed, in a folder that only others may write for one, stays.

    Returns:
        Whether another process, or thread, is writing for `path` right now.
    """
    ends = f"({re.escape(PARTIAL)}|{re.escape(REPLACED)})"
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{_RANDOM}{ends}")
    try:
        found = [entry.name for entry in os.scandir(path.parent) if pattern.fullmatch(entry.name)]
    except OSError:
        return False
    busy = False
    for leftover in map(path.with_name, found):
        with own(leftover) as owned, contextlib.suppress(OSError):
            if not owned:  # where there are no locks, nobody can tell, and a leftover would keep everybody out for ever
                busy = busy or (leftover.exists() and (owned is False or not os.access(leftover, os.R_OK)))
                continue
            if leftover.suffix == REPLACED and not path.exists():
                leftover.rename(path)
            elif leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
    return busy


def strangers(folder: Path, *known: str) -> list[str]:
    """The names of what a folder holds, in order, besides what is known and what any folder may hold.

    Args:
        folder: It.
        known: Names of files and folders, with the wildcards of a shell.
    """
    return sorted(n for n in os.listdir(folder) if not any(fnmatchcase(n, one) for one in (*known, *_STRAY)))


def make_partial_folder(path: Path) -> "contextlib.AbstractContextManager[Path]":
    """A new folder to be filled for `path`, which no other process sweeps while the block runs."""
    return _made(lambda: tempfile.mkdtemp(**_names(path)))


def make_partial_file(path: Path) -> "contextlib.AbstractContextManager[Path]":
    """A new, empty file to be written for `path`, which no other process sweeps while the block runs."""

    def make() -> str:
        descriptor, name = tempfile.mkstemp(**_names(path))
        os.fchmod(descriptor, 0o666 & ~umask())  # it was made private to the user
        os.close(descriptor)
        return name

    return _made(make)


def umask() -> int:
    """The process's mask of permissions, as it stands.

    Only Linux tells it. Elsewhere it must be set to be read, and what another thread makes meanwhile is private.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    with _reading:  # of two that did so at once, one would put back what the other had set
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


@contextlib.contextmanager
def own(path: Path) -> Iterator[bool | None]:
    """Locks a file or folder, until the block ends or the process; says whether it did.

    False where another has it, or nothing is there. None where that cannot be told, as the file system knows no locks
    or it cannot be opened: such a thing is never swept.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        yield False if error.errno == errno.ENOENT else None
        return
    try:
        yield _lock(descriptor) and _leads_to(descriptor, path)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Waits until no other process, and no other thread, has the file; it is made where there is none, and stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        with contextlib.suppress(OSError):  # a file system that knows no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _made(make: Callable[[], str]) -> Iterator[Path]:
    while True:
        made = Path(make())
        with own(made) as owned:
            # Until it was locked it looked like a leftover: another may have swept it, or be about to.
            if owned is not False:
                yield made
                return


def _names(path: Path) -> dict[str, Any]:
    return {"prefix": f".{path.name}.", "suffix": PARTIAL, "dir": path.parent}


def _lock(descriptor: int) -> bool | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _leads_to(descriptor: int, path: Path) -> bool:
    """Whether `path` still leads to what was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False
