"""Reading plain text: txt, md, jsonl, json, csv and tsv. Each reader streams a file's passages."""

import bz2
import codecs
import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import ujson

from raisf.data.schemas import joined_sentences
from raisf.retrieval.corpus.splitting import clean, split_text
from raisf.retrieval.passage import Passage, Value
from raisf.utils.errors import InputError
from raisf.utils.json_stream import stream_array

BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

_UNPACK: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_PACKABLE = (".txt", ".md", ".jsonl", ".csv", ".tsv")

_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*#*\s*$")
_COLLECTION = re.compile(r"\d+\t[^\t]*(\t[^\t]*)?$")
_FENCE = re.compile(r"\s*(```|~~~)")

Section = tuple[str, str, dict[str, Value], str]
"""The title of a document, the heading of a section, where it stands, and its text."""


def kind_of(file: Path) -> str:
    """The suffix that tells how a file is written: .tsv for psgs_w100.tsv.gz, and .jsonl for wiki_00.bz2.

    The latter is how the programs that extract Wikipedia name their files.
    """
    suffix = file.suffix.lower()
    if suffix not in _UNPACK:
        return suffix
    inner = Path(file.stem).suffix.lower()
    return inner if inner in _PACKABLE else suffix if inner else ".jsonl"


def read_text(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a txt file."""
    return passages_of(name, [(title_of(file), "", {}, "".join(_lines(file, name, encoding)))])


def read_markdown(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of an md file, none across a heading."""
    return passages_of(name, _sections(_lines(file, name, encoding), title_of(file)))


def read_jsonl_rows(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a jsonl file's rows."""
    for number, line in enumerate(_lines(file, name, encoding), start=1):
        if not line.strip():
            continue
        try:
            row = ujson.loads(line)
        except ValueError as error:
            shown = line[:60].strip()
            raise InputError(f"{name}, line {number}: not JSON ({error}): {shown!r}; mend or drop the line") from error
        if not isinstance(row, dict):
            raise InputError(f'{name}, line {number}: expected {{"text": ...}}, found {type(row).__name__}')
        yield from _row_passages(row, name, number)


def read_json_rows(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of the rows in a json file's list."""
    with file.open("rb") as raw:
        marked = marked_encoding(raw.read(4))
    for number, row in enumerate(stream_array(file, encoding=encoding or marked), start=1):
        if not isinstance(row, dict):
            raise InputError(f'{name}, row {number}: expected {{"text": ...}}, found {type(row).__name__}')
        yield from _row_passages(row, name, number, "row")


def read_table(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a csv or tsv file's rows."""
    csv.field_size_limit(1 << 30)  # the library's own limit of 128 kB a field is below a long document
    lines = _lines(file, name, encoding)
    delimiter = "\t" if kind_of(file) == ".tsv" else ","
    first = next(lines, "")
    lines = itertools.chain([first], lines)
    if delimiter == "\t" and _COLLECTION.match(first):
        yield from _collection_passages(lines, name)
        return
    rows = csv.DictReader(lines, delimiter=delimiter, strict=True)
    try:
        columns = [column.strip().lower() for column in rows.fieldnames or []]
        if "text" not in columns:
            raise InputError(
                f"{name}: its first line must name a column 'text'; found {', '.join(columns) or 'nothing'}"
            )
        rows.fieldnames = columns
        for row in rows:
            if None in row or None in row.values():
                state = "more" if None in row else "fewer"
                raise InputError(f"{name}, line {rows.line_num}: {state} than the {len(columns)} columns of line 1")
            yield from _row_passages(row, name, rows.line_num)
    except csv.Error as error:
        raise InputError(f"{name}, line {rows.line_num}: not a table ({error}); check its quotes") from error


def passages_of(name: str, sections: Iterable[Section]) -> Iterator[Passage]:
    """The passages of a document's sections, numbered through; none spans two sections."""
    number = 0
    for title, heading, place, text in sections:
        metadata = {**place, "section": heading} if heading else place
        for piece in split_text(text):
            number += 1
            shown = f"{title}: {heading}" if heading else title
            yield Passage(f"{name}#{number}", piece, shown, source=name, metadata=metadata)


def title_of(file: Path) -> str:
    """A title for a document that has none: its file's name as words."""
    stem = Path(file.stem).stem if file.suffix.lower() in _UNPACK else file.stem
    return clean(re.sub(r"[_-]+", " ", stem))


def _lines(file: Path, name: str, encoding: str | None) -> Iterator[str]:
    """The lines of a file, unpacked and decoded, with their line ends."""
    unpack = _UNPACK.get(file.suffix.lower())
    if unpack is None:
        yield from _decoded(file.open("rb"), name, encoding)
        return
    try:
        yield from _decoded(unpack(file), name, encoding)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name}: cannot be unpacked to its end ({error}); fetch or pack it again") from error


def _decoded(raw: BinaryIO, name: str, encoding: str | None) -> Iterator[str]:
    if encoding is None:
        encoding = marked_encoding(raw.read(4)) or "utf-8"
        raw.seek(0)
    number = 0
    with io.TextIOWrapper(raw, encoding=encoding, newline="") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if "\0" in line:
                    raise InputError(
                        f"{name}, line {number}: zero bytes: no text, or UTF-16 without its mark; save it as UTF-8, or "
                        "name its encoding (encoding='utf-16-le', on the command line --encoding utf-16-le)"
                    )
                # Only the decoders that look for a byte order mark (utf-8-sig, utf-16, utf-32) take it away.
                yield line.removeprefix("\ufeff") if number == 1 else line
        except UnicodeError as error:
            raise wrong_encoding(f"{name}, after line {number}", encoding, error) from error


def marked_encoding(start: bytes) -> str | None:
    """The encoding that a byte order mark tells; None where there is none."""
    return next((encoding for mark, encoding in BOMS.items() if start.startswith(mark)), None)


def wrong_encoding(place: str, encoding: str, error: UnicodeError) -> InputError:
    """The error for text that is not in the encoding it should be in."""
    return InputError(
        f"{place}: not {encoding} ({getattr(error, 'reason', error)}); save it as UTF-8, "
        "or name its encoding (encoding='cp1252', on the command line --encoding cp1252)"
    )


def _sections(lines: Iterable[str], title: str) -> Iterator[Section]:
    """A markdown file's sections, each with the number of its first line."""
    heading, first, body, in_code = "", 1, [], False
    for number, line in enumerate(lines, start=1):
        in_code ^= bool(_FENCE.match(line))
        match = None if in_code else _HEADING.match(line)
        if match is None:
            body.append(line)
            continue
        yield title, heading, {"line": first}, "".join(body)
        first, body = number, []
        if line.startswith("# "):
            title, heading = match[1], ""
        else:
            heading = match[1]
    yield title, heading, {"line": first}, "".join(body)


def _collection_passages(lines: Iterable[str], name: str) -> Iterator[Passage]:
    """The passages of ColBERT's collection.tsv: id, text or `title | text`, maybe title; quotes are only quotes.

    Source: colbert-ai, `colbert/evaluation/loaders.py`.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        pid, *cells = line.rstrip("\r\n").split("\t")
        if len(cells) not in (1, 2):
            raise InputError(
                f"{name}, line {number}: expected an id, a text and maybe a title, found {1 + len(cells)} columns"
            )
        text, title = (
            cells if len(cells) == 2 else cells[0].split(" | ", 1)[::-1] if " | " in cells[0] else (cells[0], "")
        )
        yield from _row_passages({"id": pid, "text": text, "title": title}, name, number)


def _row_passages(row: Mapping[str, Any], name: str, number: int, unit: str = "line") -> Iterator[Passage]:
    text, title, pid = (row.get(key) for key in ("text", "title", "id"))
    if isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
        text = joined_sentences(text)
    if not isinstance(text, str):
        raise InputError(
            f"{name}, {unit} {number}: no 'text' of type string; found the keys {', '.join(map(str, row)) or '(none)'}"
        )
    pid = f"{name}#{number}" if pid is None or pid == "" else str(pid)
    try:
        pid.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name}, {unit} {number}: the id {pid!r} has half a surrogate pair, which no file can hold; mend it, or "
            "leave the ids out and they are numbered"
        ) from error
    title = clean(str(title or ""))
    metadata: dict[str, Value] = {unit: number}
    for column, value in row.items():
        # Lists and objects, an embedding say, are nothing to filter by; empty cells are nothing at all.
        if column not in ("text", "title", "id") and isinstance(value, Value) and value != "":
            metadata[clean(column)] = clean(value) if isinstance(value, str) else value
    pieces = split_text(text)
    for i, piece in enumerate(pieces, start=1):
        yield Passage(pid if len(pieces) == 1 else f"{pid}#{i}", piece, title, source=name, metadata=metadata)
