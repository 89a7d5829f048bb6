"""Reading a long JSON array element by element, so that memory holds one element and not the file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from raisf.utils.errors import InputError
from raisf.utils.files import check_file

_CHUNK = 1 << 20
# The longest piece of JSON that a cut in the wrong place makes an error of: a cut "\u12ab\u34" or "-Infinity".
_CUT = 16
_DECODER = json.JSONDecoder()
# White space, and the byte order mark that a file may begin with.
_BETWEEN = " \t\r\n\ufeff"


def stream_array(path: Path | str, names: tuple[str, ...] = (), encoding: str | None = None) -> Iterator[Any]:
    """The elements of a JSON file's array, streamed; of an object what follows the array in it is not read.

    Args:
        path: A file that holds an array, or an object with an array in it.
        names: The keys of such an object under which the array may be; the first that comes is taken.
        encoding: How it is encoded; None: UTF-8.

    Raises:
        InputError: The file is missing, differently encoded, broken, or holds no such array; the message has the line.
    """
    path = Path(path)
    check_file(path)
    with path.open(encoding=encoding or "utf-8") as file:
        text = _Text(path, file)
        if whole := text.peek() == "{":
            _enter(text, names)
        elif text.peek() != "[":
            raise text.wrong(f"expected a list{_under(names)}, found {text.peek() or 'an empty file'!r}")
        yield from _elements(text)
        if not whole and text.peek():  # two files in one, whose second would be lost
            raise text.wrong(f"expected nothing behind the list, found {text.peek()!r}: put all into one list")


class _Text:
    """What is read of a file and not yet used, with the number of the line where that begins."""

    def __init__(self, path: Path, file: TextIO):
        self._path, self._file = path, file
        self._buffer, self._at, self._line = "", 0, 1

    def peek(self) -> str:
        """The next character that is not white space; empty at the end of the file."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in _BETWEEN:
                self._at += 1
            if self._at < len(self._buffer) or not self._more():
                return self._buffer[self._at : self._at + 1]

    def skip(self, expected: str) -> str:
        """Takes one of the characters."""
        found = self.peek()
        if not found or found not in expected:
            shown = repr(found) if found else "the end of the file"
            raise self.wrong(f"expected {' or '.join(map(repr, expected))}, found {shown}")
        self._at += 1
        return found

    def value(self) -> Any:
        """Takes one value."""
        self.peek()
        while True:
            start = self._at
            try:
                found, end = _DECODER.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos > len(self._buffer) - _CUT
                within = error.pos - start
                if not (cut and self._more()):
                    raise self.wrong(f"not JSON ({error.msg})", within) from error
                continue
            except RecursionError as error:
                raise self.wrong("nested deeper than any data set is") from error
            # A number may go on in what is not read yet: 1 with .5, or with e-3.
            if end + 2 < len(self._buffer) or not self._more():
                self._at += end - start
                return found

    def wrong(self, what: str, within: int = 0) -> InputError:
        """The error for what comes next, or so many characters after."""
        line = self._line + self._buffer.count("\n", 0, self._at + within)
        return InputError(f"{self._path}, line {line}: {what}; mend the file or give another")

    def _more(self) -> bool:
        self._line += self._buffer.count("\n", 0, self._at)
        self._buffer, self._at = self._buffer[self._at :], 0
        try:
            # At least as much as waits already: what is longer than a chunk is then tried a few times only.
            chunk = self._file.read(max(_CHUNK, len(self._buffer)))
        except UnicodeError as error:
            reason, encoding = getattr(error, "reason", error), self._file.encoding.upper()
            raise InputError(f"{self._path}: not {encoding} ({reason}); save it as UTF-8") from error
        self._buffer += chunk
        return bool(chunk)


def _enter(text: _Text, names: tuple[str, ...]) -> None:
    """Goes to the array within an object."""
    text.skip("{")
    passed = []
    while text.peek() == '"':
        name = text.value()
        text.skip(":")
        if name in names and text.peek() == "[":
            return
        passed.append(name)
        text.value()
        if text.skip(",}") == "}":
            break
    if passed and text.peek() == "{":
        remedy = "put them in [ ], with commas between, or each on one line of a file named .jsonl"
        raise text.wrong(f"expected a list{_under(names)}, found one object after another: {remedy}")
    alone = "one row alone stands on one line, or in [ ]" if names else "one row alone stands in [ ]"
    raise text.wrong(f"expected a list{_under(names)}, found an object with {', '.join(passed) or 'nothing'}: {alone}")


def _elements(text: _Text) -> Iterator[Any]:
    text.skip("[")
    if text.peek() == "]":
        text.skip("]")
        return
    while True:
        yield text.value()
        if text.skip(",]") == "]":
            return


def _under(names: tuple[str, ...]) -> str:
    return f", or one under {' or '.join(map(repr, names))}" if names else ""
