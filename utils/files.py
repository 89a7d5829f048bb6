"""Reading and writing the project's files: JSON and JSON Lines, atomically, with errors that name the line."""

import contextlib
import errno
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import ujson

from raisf.utils.errors import InputError
from raisf.utils.leftovers import (
    PARTIAL,
    REPLACED,
    make_partial_file,
    make_partial_folder,
    own,
    strangers,
    sweep,
    umask,
)
from raisf.utils.space import naming_full_disk
from raisf.utils.text import text_of

LONGEST_NAME = 237
"""Bytes of a name, so that the half-made file's beside it, 18 longer, has 255, the most that file systems take."""
LOCK = ".lock"
"""The file in a folder by which its writer keeps a second one out, see `locked`; it stays there, empty."""
_NO_LOCKS = (None, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
"""How a file system that knows no locks says so: nobody is kept out there. None: by filelock's own error."""


def expanded(path: Path | str, remedy: str = "write it out") -> Path:
    """A path with a user's home in the place of ~.

    Raises:
        InputError: There is no such user, or no path can be so; the message ends with the remedy.
    """
    try:
        whole = Path(path).expanduser()
        with contextlib.suppress(PermissionError):  # which whoever opens it tells
            whole.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{path!s:.200}: this is no path ({error}): {remedy}") from None
    return whole


def check_file(path: Path) -> None:
    """Raises an InputError where a path leads to no file."""
    if not path.is_file():
        if path.is_dir():
            raise InputError(f"{path} is a folder; give a file in it")
        if path.exists():  # a file is read more than once, and told by its name
            raise InputError(f"{path} is no file but a pipe or a device; write what it gives to a file, and give that")
        raise InputError(f"no file at {path}; check the path")


def is_installed(file: Path) -> bool:
    """Whether a file is an installed package's, a library's, which changes with its version alone."""
    return not {"site-packages", "dist-packages"}.isdisjoint(file.parts)  # the second is Debian's


def read_json(path: Path | str) -> Any:
    """The value in a JSON file.

    Raises:
        InputError: The file is missing, is not UTF-8, or is not JSON.
    """
    path = Path(path)
    check_file(path)
    try:
        return ujson.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error.reason}); save it as UTF-8") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}); make it again or give another file") from error


def read_jsonl(path: Path | str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON Lines file, streamed; blank lines are skipped.

    Raises:
        InputError: The file is missing or a line is broken; the message gives the line's number.
    """
    path = Path(path)
    check_file(path)
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            if not raw.strip():
                continue
            try:
                row = ujson.loads(raw.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}, line {number}: not UTF-8 ({error.reason}); save the file as UTF-8"
                ) from error
            except ValueError as error:
                shown = raw[:60].decode("utf-8", "replace").strip()
                raise InputError(
                    f"{path}, line {number}: not JSON ({error}): {shown!r}; mend or drop the line"
                ) from error
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: expected an object {{...}}, found {type(row).__name__}")
            yield row


def dump_line(row: dict[str, Any]) -> str:
    """A row as one JSON line, newline included; non-ASCII text stays readable, half a surrogate pair becomes "?"."""
    return text_of(ujson.dumps(row, ensure_ascii=False, escape_forward_slashes=False)) + "\n"


def write_jsonl(path: Path | str, rows: Iterable[dict[str, Any]]) -> int:
    """Writes rows as JSON Lines, atomically and streamed; returns how many."""
    count = 0
    with replacing(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(dump_line(row))
            count += 1
    return count


def append_line(file: IO[Any], line: str) -> None:
    """Appends a line to a file that is open for appending; when it returns, a kill can no longer lose it.

    Raises:
        RaisfError: The disk is full. What it took of the line is cut off again: half a line would spoil the next one.
    """
    descriptor, data = file.fileno(), line.encode()
    before = os.fstat(descriptor).st_size
    with naming_full_disk(file.name):
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(descriptor, before)
            raise


def write_json(path: Path | str, value: Any) -> None:
    """Writes a JSON file atomically: readers see the old file or the whole new one."""
    write_text(path, ujson.dumps(value, ensure_ascii=False, escape_forward_slashes=False, indent=2) + "\n")


def write_text(path: Path | str, text: str) -> None:
    """Writes a text file in UTF-8 atomically, as `write_json` does; what is none, in a path, as JSON escapes it."""
    with replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def link_or_copy(file: Path, place: Path) -> None:
    """Puts a file that nobody changes at another place too: as a hard link, else as a copy."""
    try:
        os.link(file, place)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, place)


@contextlib.contextmanager
def atomic_folder(path: Path | str, marker: str, *names: str) -> Iterator[Path]:
    """A new folder to fill that takes `path`'s place only when the block ends well.

    On any exception until then, Ctrl-C included, what stood at `path` stays there as it was, or is put back, and the
    half-made folder goes away. What a killed process leaves beside `path` is swept by the next one that writes there,
    see `raisf.utils.leftovers`; were it killed between the two renames that replace one folder by another, the old
    folder is put back then. Where `path` is a link, the folder that it leads to is replaced, and the link stays.

    Args:
        path: Where the folder is to stand.
        marker: A file that every folder of this sort holds: only such a folder is replaced.
        names: What else one may hold, see `check_replaceable`.

    Raises:
        InputError: See `check_replaceable`.
        RaisfError: The disk is full.
    """
    path = Path(os.path.realpath(path)) if os.path.islink(path) else Path(path)
    sweep(path)
    check_replaceable(path, marker, *names)
    path.parent.mkdir(parents=True, exist_ok=True)
    with naming_full_disk(path), make_partial_folder(path) as temporary:
        old = temporary.with_name(temporary.name.removesuffix(PARTIAL) + REPLACED)
        try:
            # It was made private to the user; what is published has the permissions any new folder would have.
            temporary.chmod(temporary.stat().st_mode & ~0o777 | 0o777 & ~umask())
            yield temporary
            with own(path):  # nobody else may sweep what stood there before this process has done so
                _take_place(temporary, path, old)
        except BaseException:
            if old.exists() and not path.exists():
                old.rename(path)
            elif not temporary.exists():  # the new folder has taken its place
                shutil.rmtree(old, ignore_errors=True)
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _take_place(new: Path, path: Path, old: Path) -> None:
    """Puts a folder in the place of another, which is moved aside and deleted: of two that do so at once, the last."""
    while True:
        with contextlib.suppress(FileNotFoundError):
            if path.exists():  # a link to itself stays, and is told below
                path.rename(old)
        try:
            new.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        shutil.rmtree(old, ignore_errors=True)
        if not new.exists():
            return


def check_replaceable(path: Path | str, marker: str, *names: str) -> None:
    """Makes sure that writing a folder would not cost the user another; long work asks before it begins.

    Args:
        path: Where the folder is to stand.
        marker: A file that every folder of this sort holds.
        names: What else one may hold: names of files and folders, with the wildcards of a shell.

    Raises:
        InputError: `path` is a file, a folder with other things in it or without the `marker`, one that cannot be
            replaced (the current one, or where a disk is mounted), or where nothing can be written.
    """
    path = Path(path)
    check_name(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; give a folder")
    held = path.is_dir() and os.listdir(path) not in ([], [LOCK])  # a command that was refused leaves its lock
    others = strangers(path, marker, *names) if held else []
    if others or (held and not (path / marker).is_file()):
        told = ", ".join(others[:3]) or f"no {marker}"
        raise InputError(f"{path} holds other things ({told}), which would be replaced: give a new folder")
    whole = Path(os.path.realpath(path))
    within = False
    with contextlib.suppress(FileNotFoundError):  # the folder that one is in may have been deleted
        within = Path.cwd().is_relative_to(whole)
    if whole.is_mount() or within:
        where = "the folder that you are in" if within else "where a disk is mounted"
        raise InputError(f"{path} is {where}, which cannot be replaced by a new one: give a folder in it")
    check_writable(path.parent)


def check_name(path: Path) -> None:
    """Raise InputError for a name that leaves no room for that of the half-made file beside it."""
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise InputError(f"{path.name:.40}... is longer than {LONGEST_NAME} bytes: give a shorter name")


def check_writable(folder: Path | str, remedy: str = "give another folder") -> None:
    """Makes sure that files can be made in a folder, or where it would be made; long work asks before it begins.

    Raises:
        InputError: They cannot; the message ends with the remedy.
    """
    try:
        whole = Path(folder).absolute()
        there = next(parent for parent in (whole, *whole.parents) if parent.exists())
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}): {remedy}") from error


@contextlib.contextmanager
def locked(path: Path | str, taken: str) -> Iterator[None]:
    """Keeps other processes, and other threads, out until the block ends, or the process, however it ends.

    Args:
        path: The lock file; it stays there, empty.
        taken: What to say where another holds the lock.

    Raises:
        InputError: Another holds it, or it is another user's.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=0, mode=0o666 & ~umask(), is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(taken) from None
    except (OSError, NotImplementedError) as error:
        number = getattr(error, "errno", None)
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise InputError(
                f"{path} cannot be written ({os.strerror(number)}): ask whose it is, or work on a copy"
            ) from error
        if number not in _NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


def relative_path(path: Path | str, start: Path | str) -> str:
    """Where `path` lies from the folder `start`: it still holds when both are moved together, or another user's."""
    return Path(os.path.relpath(Path(path).resolve(), Path(start).resolve())).as_posix()


def sha256_file(path: Path | str) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_large(path: Path | str) -> str:
    """The same, computed once a process for a file that stays as it is, by its time and size."""
    path = Path(path).resolve()
    stat = path.stat()
    return _sha256_at(path, stat.st_mtime_ns, stat.st_size)


@functools.cache
def _sha256_at(path: Path, modified: int, size: int) -> str:
    return sha256_file(path)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file to write that takes `path`'s place when the block ends well, and goes away when it does not.

    Where `path` is a link, the file that it leads to is replaced, and the link stays. After a power cut, too, there is
    the old file or the whole new one.

    Raises:
        InputError: `path` is no file: a folder, a pipe or a device, such as /dev/null.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is {'a folder' if path.is_dir() else 'a device or a pipe'}; give a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    with naming_full_disk(path), make_partial_file(path) as temporary:
        try:
            yield temporary
            with temporary.open("r+b") as written:  # else some file systems rename it before its bytes are on the disk
                os.fsync(written.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
