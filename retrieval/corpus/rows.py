"""Reading jsonl and json: rows that have a text, as those of csv and tsv may."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ujson

from raisf.data.schemas import joined_sentences
from raisf.retrieval.corpus.lines import read_lines, told_encoding
from raisf.retrieval.corpus.texts import cut
from raisf.retrieval.passage import Passage, cell, columns_of
from raisf.utils.errors import InputError
from raisf.utils.json_stream import stream_array
from raisf.utils.text import clean, composed


def read_jsonl_rows(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of a jsonl file's rows."""
    for number, line in enumerate(read_lines(file, name, encoding), start=1):
        if not line.strip():
            continue
        try:
            row = ujson.loads(line)
        except ValueError as error:
            shown = line[:60].strip()
            raise InputError(f"{name}, line {number}: not JSON ({error}): {shown!r}; mend or drop the line") from error
        if not isinstance(row, dict):
            raise InputError(f'{name}, line {number}: expected {{"text": ...}}, found {type(row).__name__}')
        yield from row_passages(row, name, number)


def read_json_rows(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """The passages of the rows in a json file's list."""
    with file.open("rb") as raw:
        encoding = told_encoding(raw, encoding)
    for number, row in enumerate(stream_array(file, encoding=encoding), start=1):
        if not isinstance(row, dict):
            raise InputError(f'{name}, row {number}: expected {{"text": ...}}, found {type(row).__name__}')
        yield from row_passages(row, name, number, "row")


def row_passages(row: Mapping[str, Any], name: str, number: int, unit: str = "line") -> Iterator[Passage]:
    """The passages of a row that has a text.

    Raises:
        InputError: It has none, or an id that no file can hold.
    """
    text, title, pid = (cell(row, field) for field in ("text", "title", "id"))
    if text is None and "text" in row:
        return
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
    title = clean(composed(str(title or "")))
    columns = {key: clean(told) if isinstance(told, str) else told for key, told in columns_of(row).items()}
    metadata = {f"file {unit}" if unit in columns else unit: number, **columns}  # first comes what is cited
    yield from cut(pid, text, title, name, metadata)
