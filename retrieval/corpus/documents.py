"""Which documents there are, and what tells two versions of one apart."""

import codecs
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ujson

from raisf.retrieval.corpus.kinds import KINDS, ONLY_ALONE, kind_of
from raisf.utils.errors import InputError
from raisf.utils.files import check_file, sha256_file

_RECIPE = 33
"""Raised when a file is read or cut in another way than before, so that indexes read it again."""

_NO_TEXT = {"utf-7", "unicode_escape", "raw_unicode_escape", "punycode", "idna"}
"""Codecs of text that are encodings of no file, or that make half surrogate pairs of it."""

_MADE = {"segments": "kind", "program.json": "program"}
"""By what is beside its manifest.json, what that tells of an index and of a compiled program, with its format."""

_HIDDEN = (".", "~$")
"""What the names of hidden files begin with: also Word's, in which it notes who has a document open."""


_Found = tuple[Path, str | None, bool]
"""A file of a folder; where it must not be read, why; and whether it is unseen, see `Skipped`."""


@dataclass(frozen=True, slots=True)
class Document:
    """A file of a corpus.

    Attributes:
        name: Its path within the folder that was asked for; the `source` of its passages.
        file: Where it is.
        encoding: See `reading.read_documents`.
    """

    name: str
    file: Path
    encoding: str | None = None

    def fingerprint(self) -> str:
        """Changes when its passages may have changed: SHA-256 of its bytes and of how they are read.

        Raises:
            InputError: The file cannot be read.
        """
        try:
            sha256 = sha256_file(self.file)
        except OSError as error:
            raise InputError(f"{self.name}: {_unread(error)}") from error
        return hashlib.sha256(f"{_RECIPE} {self.encoding} {sha256}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of a folder, or a folder in it, that is not in the index.

    Attributes:
        name: Its path within the folder.
        reason: Why, and what to do.
        empty: Whether it could be read, but has no text: then nothing of an older version of it stays, either.
        unseen: Whether nobody can tell what is there: what an index has of it, or of what lies in it, stays.
    """

    name: str
    reason: str
    empty: bool = False
    unseen: bool = False

    def hides(self, name: str) -> bool:
        """Whether the document of this name may still be there, unseen."""
        return self.unseen and (self.name == "." or name == self.name or name.startswith(f"{self.name}/"))


Skip = Callable[[Skipped], None]
"""Takes note of a file that was skipped; may raise, to stop at the first."""


def stop(skipped: Skipped) -> None:
    """A `Skip` that stops at the first.

    Raises:
        InputError: Always.
    """
    raise InputError(f"{skipped.name}: {skipped.reason}")


class NoText(InputError):
    """A document without any text."""


def skipped(name: str, error: InputError) -> Skipped:
    """The file that an error is about, whose message mostly begins with the name."""
    return Skipped(name, str(error).removeprefix(name).lstrip(":, ") or str(error), isinstance(error, NoText))


def find_documents(path: Path | str, encoding: str | None = None, skip: Skip | None = None) -> list[Document]:
    """The documents at a path, in the order of their names; `reading.read_documents` says which kinds there are.

    Hidden files and folders are no part of a folder, nor is an index or a compiled program that lies in it.

    Args:
        path: A file or a folder.
        encoding: Of the files, see `reading.read_documents`.
        skip: Is told of each file in the folder that is no document: of another kind, a link that leaves the folder, a
            name that is not UTF-8. None: names that are not UTF-8 are an error, others are passed over.

    Raises:
        InputError: Nothing at the path, a pipe or a device, an unknown kind of file, or no such encoding.
    """
    path = Path(path)
    _check_encoding(encoding)
    if path.is_file():
        if kind_of(path) not in KINDS:
            raise InputError(f"cannot read {path}: {_no_kind(path)}")
        return [Document(_checked_name(path, path.name), path, encoding)]
    if not path.is_dir():
        if path.exists():
            check_file(path)
        raise InputError(f"no documents at {path}; give a file or a folder")
    if _is_made(path):
        raise InputError(f"{path} is an index or a compiled program: give the documents themselves")
    documents, found = list[Document](), _walk(path)
    for file, reason, unseen in found:
        name = file.relative_to(path).as_posix()
        if reason is None and not _is_wanted(file):
            reason = _no_kind(file)
        if reason is None:
            try:
                documents.append(Document(_checked_name(file, name), file, encoding))
            except InputError as error:
                if skip is None:
                    raise
                reason = str(error)
        if skip is not None and reason is not None:
            skip(Skipped(_shown(name), reason, unseen=unseen))
    if not documents and skip is None:
        raise InputError(f"no document in {path}: of its {len(found)} files none is a {_kinds()} file")
    return documents


def _walk(folder: Path) -> list[_Found]:
    """The files of a folder in the order of their paths.

    Links within the folder are followed to files and not to folders, as `Path.rglob` does: a loop would never end; one
    to a file that is read where it is, is passed over. An index or a program that lies there is none of its documents:
    its passages would be read in their place.
    """
    root, files = folder.resolve(), list[_Found]()

    def note(error: OSError) -> None:
        files.append((Path(error.filename), _unread(error), True))

    for where, folders, names in os.walk(folder, onerror=note):
        linked = [name for name in folders if os.path.islink(os.path.join(where, name))]
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN) and not _is_made(Path(where, name))]
        for name in [*names, *linked]:
            if name.startswith(_HIDDEN):
                continue
            try:
                files.append((Path(where, name), *_refusal(Path(where, name), root)))
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError as error:  # its folder can be listed, and no more, or its disk fails
                files.append((Path(where, name), _unread(error), True))
    links = {file for file, reason, _ in files if reason is None and file.is_symlink()}
    read = {
        root / file.relative_to(folder)
        for file, reason, _ in files
        if links and reason is None and file not in links and _is_wanted(file)
    }
    again = {file for file in links if file.resolve() in read}
    return sorted((found for found in files if found[0] not in again), key=lambda found: found[0])


def _is_wanted(file: Path) -> bool:
    """Whether a file in a folder is of a kind that is read there."""
    return kind_of(file) in KINDS and kind_of(file) not in ONLY_ALONE


def _is_made(folder: Path) -> bool:
    """Whether a folder is an index or an artifact; one that cannot be looked into is told when it is listed."""
    if not os.path.isfile(folder / "manifest.json"):
        return False
    parts = {part: name for part, name in _MADE.items() if os.path.exists(folder / part)}
    try:
        told = ujson.loads((folder / "manifest.json").read_bytes()) if parts else None
    except (OSError, ValueError):  # perhaps a damaged one
        return True
    return isinstance(told, dict) and any({"format", name} <= told.keys() for name in parts.values())


def _unread(error: OSError) -> str:
    return f"cannot be read ({error.strerror}); mend that, or leave it out"


def _refusal(file: Path, root: Path) -> tuple[str | None, bool]:
    """Why a file of a folder must not be read, None where it may be; and if it is unseen.

    Raises:
        OSError: It cannot be looked at.
    """
    # `Path.is_file` and its like say no, from Python 3.14 on, to what cannot be looked at; `lstat` and `stat` raise.
    if stat.S_ISLNK(file.lstat().st_mode):
        try:
            target = file.resolve(strict=True)
        except (FileNotFoundError, RuntimeError):  # what it leads to may come back
            return "a link that leads nowhere; mend or delete it", True
        except OSError as error:
            return f"a link that {_unread(error)}", True
        if not target.is_relative_to(root):
            return "a link that leads out of the folder, which is not followed; put a copy in its place", False
        if target.is_dir():
            return "a link to a folder, whose files are read where they are", False
    return None if stat.S_ISREG(file.stat().st_mode) else "no regular file", False


def _kinds() -> str:
    return ", ".join(kind.removeprefix(".") for kind in KINDS)


def _no_kind(file: Path) -> str:
    if kind_of(file) in ONLY_ALONE:
        return f"{kind_of(file)} files are read only where they are given by name: folders hold many that are no rows"
    suffix = file.suffix.encode("utf-8", "backslashreplace").decode()
    return f"{suffix or 'without a suffix it'} is no kind of document; those are {_kinds()}"


def _checked_name(file: Path, name: str) -> str:
    """A document's name, which its passages' ids begin with."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the name of the file {_shown(str(file))} is not UTF-8; rename it, or leave it out"
        ) from error
    return name


def _shown(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _check_encoding(encoding: str | None) -> None:
    if encoding is None:
        return
    try:
        "".encode(encoding)  # base64 and its like are codecs too, but not of text
        if codecs.lookup(encoding).name in {codecs.lookup(name).name for name in _NO_TEXT}:
            raise LookupError
    except (LookupError, UnicodeError) as error:
        raise InputError(f"unknown encoding {encoding!r}: give a name such as utf-8, utf-16 or cp1252") from error
