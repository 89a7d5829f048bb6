"""The lines of text files: unpacked, decoded, and no more of them than a file of its size can hold."""

import bz2
import codecs
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from raisf.utils.errors import InputError

PACKED: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open}

LONGEST_LINE = 1 << 26
"""Characters of a line: more is no row of a table but a file that fills the memory."""

LONGEST_TEXT = 1 << 28
"""Characters of a text that is read as one, a txt or md file's: it lies in memory."""

GROWTH = 30
"""Characters that a packed file may hold for each of its bytes, beyond `FREE`. Text is packed to a third or a tenth."""

FREE = 1 << 22
"""Characters that any file may hold, however small."""

_CONTROL, _BINARY = re.compile(rb"[\x01-\x06\x0e-\x1a\x1c-\x1f]"), 0.02
"""Bytes that stand in no text, and their share from which on a file is none: of random bytes they are 8%."""

_CHUNK = 1 << 20

_SURE = 8
"""Characters of two bytes in UTF-8 from which on a text is in no encoding that has two bytes a character, too."""

_NAMES = (
    "its NAME may be cp1252 where it was written in Western Europe, cp1250, cp1251, cp1256, gbk, euc-kr or shift-jis "
    "elsewhere, and a wrong one gives garbled words"
)

_BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def read_lines(file: Path, name: str, encoding: str | None) -> Iterator[str]:
    """The lines of a file, unpacked and decoded, with their line ends.

    Raises:
        InputError: It is in another encoding, packed wrongly, or holds more than its size allows.
    """
    unpack = PACKED.get(file.suffix.lower())
    if unpack is None:
        yield from _decoded(file.open("rb"), name, encoding)
        return
    room = FREE + GROWTH * file.stat().st_size
    try:
        for line in _decoded(unpack(file), name, encoding):
            room -= len(line)
            if room < 0:
                raise InputError(f"{name}: unpacked it is over {GROWTH} times as large; unpack it, if that is right")
            yield line
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name}: cannot be unpacked to its end ({error}); fetch or pack it again") from error


def joined(lines: Iterable[str], name: str) -> str:
    """A text out of its lines.

    Raises:
        InputError: It is too long to lie in memory.
    """
    kept, room = list[str](), LONGEST_TEXT
    for line in lines:
        kept.append(line)
        room -= len(line)
        if room < 0:
            raise InputError(f"{name}: a text of over {LONGEST_TEXT:,} characters; break it into several files")
    return "".join(kept)


def marked_encoding(start: bytes) -> str | None:
    """The encoding that a byte order mark tells; None where there is none."""
    return next((encoding for mark, encoding in _BOMS.items() if start.startswith(mark)), None)


def told_encoding(raw: BinaryIO, given: str | None) -> str | None:
    """The encoding of a file: what its byte order mark tells, UTF-8 where it is that, else the given one.

    Args:
        raw: The file at its beginning, where it then stands again.
        given: That of the files that are not UTF-8; None: nobody says.
    """
    marked = marked_encoding(raw.read(4))
    raw.seek(0)
    if marked or given is None or codecs.lookup(given).name.startswith("utf"):
        return marked or given
    return "utf-8" if _is_utf8(raw, given) else given


def wrong_encoding(place: str, encoding: str, error: UnicodeError) -> InputError:
    """The error for text that is not in the encoding it should be in, or no text at all."""
    if isinstance(error, UnicodeDecodeError) and len(_CONTROL.findall(error.object)) > _BINARY * len(error.object):
        return InputError(
            f"{place}: no text, but binary data; give it the suffix of its kind, or leave it out (text in an encoding "
            "of its own: save it as UTF-8)"
        )
    return InputError(f"{place}: not {encoding} ({getattr(error, 'reason', error)}); {_mended('NAME')}; {_NAMES}")


def _mended(encoding: str) -> str:
    """What to do with a file in such an encoding: one that is named goes for all files."""
    return (
        f"save it as UTF-8 (iconv -f {encoding} -t UTF-8), or name the encoding if every file that is given has it, "
        f"or is UTF-8 (encoding='{encoding}', on the command line --encoding {encoding})"
    )


def _is_utf8(raw: BinaryIO, encoding: str) -> bool:
    """Whether a file that is said to be in another encoding is UTF-8; it stands at its beginning again.

    Two bytes may be a character in both, as of Chinese: a few such tell nothing.
    """
    needed = _SURE if len(b"\xc3\xa9".decode(encoding, "replace")) == 1 else 1
    decoder, told = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        while chunk := raw.read(_CHUNK):
            text = decoder.decode(chunk)
            if told < needed and not text.isascii():
                told += sum(needed if char > "\u07ff" else 1 for char in text if char > "\x7f")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        told = 0
    raw.seek(0)
    return told >= needed


def _decoded(raw: BinaryIO, name: str, encoding: str | None) -> Iterator[str]:
    encoding = told_encoding(raw, encoding) or "utf-8"
    number = 0
    with io.TextIOWrapper(raw, encoding=encoding, newline="") as lines:
        try:
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE), ""), start=1):
                if "\0" in line:
                    raise InputError(
                        f"{name}, line {number}: zero bytes: no text, or UTF-16 without its mark; "
                        f"{_mended('utf-16-le')}"
                    )
                if "\x1b$" in line:
                    raise InputError(f"{name}, line {number}: marks of ISO-2022; {_mended('iso-2022-jp')}")
                if len(line) == LONGEST_LINE:
                    raise InputError(f"{name}, line {number}: over {LONGEST_LINE:,} characters; break it into more")
                # Only the decoders that look for a byte order mark (utf-8-sig, utf-16, utf-32) take it away.
                yield line.removeprefix("\ufeff") if number == 1 else line
        except UnicodeError as error:
            raise wrong_encoding(f"{name}, after line {number}" if number else name, encoding, error) from error
