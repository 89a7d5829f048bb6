"""`raisf view` beside reports that change, and files that stand in them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from raisf.utils.files import read_json, write_json
from raisf.viewing.view import View


@pytest.fixture
def report(records: Any, tmp_path: Path) -> Path:
    runs = {name: [records.record(number, right) for number in range(3)] for name, right in (("A", True), ("B", False))}
    return records.write_report(tmp_path / "report", runs)


@pytest.mark.parametrize(
    "changed", [{"records": {"C": "records/run-0.jsonl"}}, {"facts": {"language model": "another"}}]
)
def test_a_report_that_says_something_else_by_now_is_shown(changed: dict[str, Any], report: Path) -> None:
    view, results = View([report]), read_json(report / "results.json")
    write_json(report / "results.json", {**results})
    assert not view.stale
    write_json(report / "results.json", {**results, **changed})
    assert view.stale


def test_a_record_that_comes_within_the_clocks_last_step_is_shown(records: Any, report: Path) -> None:
    """Some disks tell the time of a change in steps of two seconds."""
    view, file = View([report]), report / "records" / "run-0.jsonl"
    told = file.stat()
    with file.open("a") as lines:
        lines.write(json.dumps(records.record(9, True)) + "\n")
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert view.stale


def test_a_file_that_a_report_before_it_holds_is_shown_once_and_called_as_there(report: Path) -> None:
    view = View([report, report / "records" / "run-1.jsonl"])
    assert [run["label"] for run in view.summary["runs"]] == ["A", "B"]


def test_a_folders_own_report_says_what_its_runs_were_made_from(records: Any, report: Path) -> None:
    within = records.write_report(report / "a", {"A": [records.record(0, True)]})
    write_json(within / "results.json", {**read_json(within / "results.json"), "facts": {"language model": "another"}})
    assert View([report]).summary["facts"] == {"language model": "pocket"}


def test_only_runs_that_searched_lack_the_texts_of_passages(records: Any, tmp_path: Path) -> None:
    rows = [records.record(0, True), records.record(0, True)]
    rows[1]["trace"]["root"]["passages"] = []
    files = [records.write_records(tmp_path / f"{n}.jsonl", [row]) for n, row in enumerate(rows)]
    assert [View([file]).lacks_texts for file in files] == [True, False]
