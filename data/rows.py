"""The rows of a question file as they stand there, whatever kind of file it is."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raisf.data.tables import parquet_rows, tsv_rows
from raisf.utils.errors import InputError
from raisf.utils.files import check_file, read_jsonl
from raisf.utils.json_stream import stream_array

_ARRAYS = ("Data", "examples")  # where TriviaQA's and BIG-bench's files keep their questions

_LINE = 1 << 24  # the longest first line, in bytes, that is looked at to tell JSON Lines from one JSON value

_OTHERS = {  # by their first bytes
    b"\x1f\x8b": "packed with gzip; unpack it first",
    b"BZh": "packed with bzip2; unpack it first",
    b"PK\x03\x04": "packed with zip, or a spreadsheet; unpack it first, or save it as .tsv",
    b"PAR1": "a parquet file; give it a name that ends in .parquet",
}


def read_rows(path: Path | str) -> Iterator[dict[str, Any]]:
    """The rows of a question file as they stand there, streamed.

    Args:
        path: JSON Lines, also under the name .json; .json with a list of rows, or with one under `Data` (TriviaQA) or
            `examples` (BIG-bench); .tsv with a line of names (PopQA); or .parquet, as the hub keeps its data sets.

    Raises:
        InputError: The file is missing or broken or of another kind, or a row is no object; the message says which.
    """
    path = Path(path)
    if (kind := path.suffix.lower()) == ".parquet":
        yield from parquet_rows(path)
        return
    _check_kind(path, kind)
    if kind == ".tsv":
        yield from tsv_rows(path)
    elif kind != ".json" or _is_json_lines(path):
        yield from read_jsonl(path)
    else:
        for number, row in enumerate(stream_array(path, _ARRAYS), start=1):
            if not isinstance(row, dict):
                raise InputError(f"{path}, question {number}: expected an object {{...}}, found {type(row).__name__}")
            yield row


def _check_kind(path: Path, kind: str) -> None:
    """Raise InputError for a file whose first bytes or name show a kind that is not read here."""
    check_file(path)
    with path.open("rb") as file:
        start = file.read(64)
    if other := next((told for first, told in _OTHERS.items() if start.startswith(first)), None):
        raise InputError(f"{path} is {other}")
    if kind == ".csv":
        raise InputError(f"{path}: questions are not read from .csv; save it as .tsv, parted by tabs, or as .jsonl")
    if kind not in (".json", ".tsv") and start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
        raise InputError(
            f"{path}, line 1: expected an object {{...}}, found a list; "
            "a file that is one list of questions has a name that ends in .json"
        )


def _is_json_lines(path: Path) -> bool:
    """Whether a file named .json holds one object per line: several, or a single question without a list of them."""
    with path.open("rb") as file:
        lines = (line for line in iter(lambda: file.readline(_LINE), b"") if line.strip())
        try:
            found = json.loads(next(lines, b""))
        except (ValueError, RecursionError):  # looked at first: a file of one line would be read whole
            return False
        more = next(lines, None) is not None
    return isinstance(found, dict) and (more or not any(isinstance(found.get(name), list) for name in _ARRAYS))
