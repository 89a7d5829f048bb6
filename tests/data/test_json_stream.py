"""A data set of gigabytes is one JSON array: it must stream, lose nothing, and name the line that is broken."""

import json
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.utils import json_stream
from raisf.utils.errors import InputError
from raisf.utils.json_stream import stream_array

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(VALUES, max_size=6),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
    wrapped=st.booleans(),
)
def test_it_reads_what_json_reads_wherever_the_chunks_end(
    tmp_path_factory: pytest.TempPathFactory,
    values: list,
    chunk: int,
    indent: int | None,
    ascii_only: bool,
    wrapped: bool,
):
    file = tmp_path_factory.mktemp("json") / "a.json"
    whole: Any = {"Version": 1.0, "other": [[1], {"Data": 2}], "Data": values, "tail": [3]} if wrapped else values
    file.write_text(json.dumps(whole, indent=indent, ensure_ascii=ascii_only), encoding="utf-8", errors="surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_CHUNK", chunk)
        assert list(stream_array(file, ("Data",))) == values


def test_memory_holds_an_element_and_not_the_file(tmp_path: Path):
    file, row = tmp_path / "big.json", json.dumps({"context": "x" * 10_000})
    file.write_text("[" + ",\n".join([row] * 4_000) + "]")
    tracemalloc.start()
    try:
        count = sum(1 for _ in stream_array(file))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 4_000
    assert peak < file.stat().st_size / 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[\n{"a": 1},\n{"a": }\n]', "line 3: not JSON (Expecting value)"),
        ('[\n{"a": 1},\n{"a": "cut', "line 3: not JSON (Unterminated string"),
        ('[\n{"a": 1}\n{"a": 2}]', "line 3: expected ',' or ']', found '{'"),
        ('[{"a": 1}', "found the end of the file"),
        ("", "expected a list, or one under 'Data' or 'examples', found 'an empty file'"),
        ("3", "expected a list"),
        ('{"name": "x", "rows": []}', "found an object with name, rows"),
        ("{}", "found an object with nothing"),
        ('{"name": "x", ', "line 1"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, message: str):
    file = tmp_path / "b.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        list(stream_array(file, ("Data", "examples")))
    assert f"{file}" in str(caught.value) and message in str(caught.value)


def test_what_stands_before_the_broken_place_has_been_given(tmp_path: Path):
    file = tmp_path / "b.json"
    file.write_text('[{"a": 1}, {"a": 2}, oops]')
    assert [row["a"] for row in islice(stream_array(file), 2)] == [1, 2]


def test_another_encoding_is_told(tmp_path: Path):
    file = tmp_path / "b.json"
    file.write_bytes('["là"]'.encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        list(stream_array(file))
    assert list(stream_array(file, encoding="latin-1")) == ["là"]


@pytest.mark.parametrize("behind", ["[3]", " oops", ", 3"])
def test_what_stands_behind_the_list_is_not_lost_in_silence(tmp_path: Path, behind: str):
    """Of two files in one, as pages of an API are put together, the first alone was read."""
    (tmp_path / "a.json").write_text(f"[1, 2]\n{behind}")
    with pytest.raises(InputError, match=r"line 2: expected nothing behind the list"):
        list(stream_array(tmp_path / "a.json"))
    (tmp_path / "b.json").write_text("[1, 2]\n\n")
    assert list(stream_array(tmp_path / "b.json")) == [1, 2]
