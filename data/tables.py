"""Question files that are tables: tab-separated texts, as PopQA comes, and parquet, as the hub keeps its data sets."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raisf.utils.errors import InputError
from raisf.utils.files import check_file

LISTS = ("gold_titles", "gold_pids", "gold_sentences", "sub_questions", "sub_answers", "sub_titles")
"""The fields of a question that are lists of texts."""


def tsv_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a table of tab-separated texts whose first line names the columns.

    Raises:
        InputError: There is none, or a row has more cells than there are columns.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", strict=True)
            names = [name for name in rows.fieldnames or [] if name]
            if double := next((name for name in names if names.count(name) > 1), None):
                raise InputError(f"{path}: its first line names the column {double!r} twice; rename one")
            for row in rows:
                if None in row:
                    raise InputError(
                        f"{path}, line {rows.line_num}: more cells than the {len(rows.fieldnames or [])} columns of "
                        "line 1; quote a text that holds a tab"
                    )
                yield {name: _cell(name, value) for name, value in row.items() if name}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); save the file as UTF-8") from error
    except csv.Error as error:
        remedy = "a text that begins with a quotation mark ends with one, and those within are doubled"
        raise InputError(f"{path} is no table of tab-separated texts ({error}): {remedy}") from error


def parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file, streamed.

    Raises:
        InputError: There is none, or it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_file(path)
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise InputError(f"{path} is not a parquet file that can be read ({error}); fetch it again") from error


def _cell(name: str, value: str | None) -> Any:
    """A cell of a table: a list, a number or a truth as JSON where one may stand. `possible_answers` must be a list."""
    if name in ("hops", "known"):
        value = (value or "null").lower()
        value = "null" if value == "nan" else value
    elif name not in ("answers", "golden_answers", *LISTS) or not (value or "").startswith("["):
        return None if name in LISTS and not value else value
    try:
        return json.loads(value or "")
    except ValueError:
        return value  # an answer may begin with a bracket
