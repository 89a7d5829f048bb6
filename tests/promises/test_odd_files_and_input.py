"""Files that are damaged, or grow while they are read, and input that is no text: told, and nothing else is lost."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf import cli
from raisf.evaluation.runner import evaluate
from raisf.retrieval.corpus import reading
from raisf.retrieval.corpus.documents import find_documents
from raisf.retrieval.corpus.ids import SeenIds
from raisf.retrieval.corpus.reading import read_whole
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.journal import Journal


class Echo(dspy.Module):
    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


def test_a_damaged_line_of_records_is_named(tmp_path: Path):
    examples = [dspy.Example(id=str(n), question=f"q{n}", answer="a").with_inputs("question") for n in range(3)]
    evaluate(Echo(), examples, out=tmp_path / "r.jsonl", progress=False)
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    lines[1:2] = ["", '{"a": 1}']  # an empty line counts, though it holds nothing
    (tmp_path / "r.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"r.jsonl, line 3, is no record .*mend or drop the line"):
        evaluate(Echo(), examples, out=tmp_path / "r.jsonl", progress=False)


def test_a_journal_outlives_a_full_disk_and_a_damaged_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Half a line was appended to, and nothing could go on until somebody found the file."""
    journal = Journal(tmp_path / "j.jsonl")
    journal.add("a", 1)
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        write(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RaisfError, match=r"j\.jsonl \(No space"):
        journal.add("b", 2)
    monkeypatch.undo()
    journal.add("c", 3)
    with (tmp_path / "j.jsonl").open("ab") as file:
        file.write(b'{"key": "d", "va{"key": "e", "value": 5}\n')
    journal.add("f", 6)
    again = Journal(tmp_path / "j.jsonl")
    assert [again.get(key) for key in "abcdef"] == [1, None, 3, None, None, 6]


def test_a_file_that_grows_while_it_is_read_is_read_as_far_as_it_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It ended the whole run."""
    monkeypatch.setattr(reading, "HELD", 2)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(5)))
    whole, passages = reading._passages, 0

    def growing(parser: Any, document: Any) -> Any:
        nonlocal passages
        passages += 1
        if passages == 2:
            with file.open("a") as more:
                more.write('{"text": "half a ro')
        return whole(parser, document)

    monkeypatch.setattr(reading, "_passages", growing)
    found = read_whole(find_documents(file), lambda one: pytest.fail(one.reason), SeenIds())
    assert [passage.text for passage in found] == [f"text {n}" for n in range(5)]
    assert passages == 2


@pytest.mark.parametrize("value", ["1e10", "0", "inf", "nan"])
def test_seconds_that_no_clock_has_are_refused(value: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["ask", "Who?", "--program", "direct", "--lm", "pocket", "--max-seconds", value]) == 2
    assert "--max-seconds" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["ask", "-"], ["chat"]])
def test_input_that_is_no_utf8_is_told_and_a_byte_order_mark_is_none_of_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    stdin = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfcaf\xe9?\n"), "utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    assert cli.main([*command, "--program", "direct", "--lm", "pocket"]) == (2 if command[0] == "ask" else 1)
    assert "not valid Unicode at character 4" in capsys.readouterr().err


def test_a_folder_of_documents_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["serve", "direct", "--lm", "pocket", "--documents", str(tmp_path / "nope")]) == 2
    assert "no folder of documents at" in capsys.readouterr().err
