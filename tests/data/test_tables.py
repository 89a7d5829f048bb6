"""Questions in a table are read to their last cell, or the table is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raisf.data.questions import load_questions
from raisf.utils.errors import InputError


def test_a_table_whose_quotation_mark_is_never_closed_is_refused(tmp_path: Path):
    """All rows behind it became one question, and nobody was told."""
    file = tmp_path / "popQA.tsv"
    file.write_text('id\tquestion\tpossible_answers\n1\t"Who?\t["a"]\n2\tWhere?\t["b"]\n')
    with pytest.raises(InputError, match=r"popQA\.tsv is no table .* ends with one"):
        load_questions(file)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("question\tanswer\nWho?\tJohn\tSmith\n", "line 2: more cells than the 2 columns of line 1"),
        ("question\tanswer\tanswer\nWho?\tA\tB\n", "names the column 'answer' twice"),
    ],
)
def test_a_table_with_cells_that_no_column_holds_is_refused(table: str, message: str, tmp_path: Path):
    """Half of the answer was dropped, and nobody was told."""
    (tmp_path / "q.tsv").write_text(table)
    with pytest.raises(InputError, match=message):
        load_questions(tmp_path / "q.tsv")


def test_a_table_lists_answers_as_json(tmp_path: Path):
    """Else the list itself, brackets and all, was the one right answer."""
    file = tmp_path / "q.tsv"
    file.write_text('question\tgolden_answers\t\nWho?\t"[""A"", ""B""]"\t\nWhere?\t[sic]\t\n')
    assert [example.answers for example in load_questions(file)] == [["A", "B"], ["[sic]"]]


def test_a_table_in_another_encoding_says_so(tmp_path: Path):
    """Excel saves "Unicode text" as UTF-16, and was told to mend its quotation marks."""
    (tmp_path / "q.tsv").write_text("question\tanswer\nWho?\tAda\n", encoding="utf-16")
    with pytest.raises(InputError, match=r"q\.tsv: not UTF-8 \(.*\); save the file as UTF-8$"):
        load_questions(tmp_path / "q.tsv")


def test_a_table_tells_all_that_a_question_file_may(tmp_path: Path):
    """Hops in a table were "no whole number, found '2'", and gold passages no list, however they were written."""
    file = tmp_path / "q.tsv"
    file.write_text(
        "question\tanswer\thops\tknown\tgold_titles\tsub_titles\n"
        'Who?\t1961\t2\tTrue\t"[""A"", ""B""]"\t\n'
        "Where?\t[sic]\t\t\t\t\n"
    )
    first, second = load_questions(file)
    assert (first.hops, first.known, first.gold_titles, first.answers) == (2, True, ["A", "B"], ["1961"])
    assert (second.hops, second.known, second.gold_titles, second.answers) == (None, None, [], ["[sic]"])
    file.write_text("question\tanswer\tgold_titles\nWho?\tAda\tA; B\n")
    with pytest.raises(InputError, match=r"question 1: gold_titles must be a list of texts, found 'A; B'"):
        load_questions(file)


def test_a_column_of_whole_numbers_with_gaps_is_read_as_pandas_writes_it(tmp_path: Path):
    """2.0 was "no whole number", and a gap in parquet is no number."""
    rows = [{"question": "Who?", "answer": "A", "hops": 2.0}, {"question": "Where?", "answer": "Ulm", "hops": math.nan}]
    (tmp_path / "q.tsv").write_text("question\tanswer\thops\tknown\nWho?\tAda\t2.0\t\nWhere?\tUlm\tnan\tNaN\n")
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "q.parquet")
    for kind in ("tsv", "jsonl", "parquet"):
        read = [(example.hops, example.known) for example in load_questions(tmp_path / f"q.{kind}")]
        assert read == [(2, None), (None, None)] and type(read[0][0]) is int, kind
    (tmp_path / "q.jsonl").write_text(json.dumps({**rows[0], "hops": 2.5}))
    with pytest.raises(InputError, match=r"question 1: hops must be a whole number, found 2\.5"):
        load_questions(tmp_path / "q.jsonl")


@pytest.mark.parametrize("column", [list, lambda values: dict(enumerate(values))], ids=["lists", "as pandas"])
def test_a_json_file_of_columns_is_told_as_such(tmp_path: Path, column: Any):
    """Of HotpotQA's it was TypeError("unhashable type: 'list'"), else all questions as one text that is none."""
    plain = {"question": column(["Who?", "Where?"]), "answer": column(["Ada", "Ulm"])}
    facts = {"supporting_facts": column([[["Ada", 0]], [["Ulm", 1]]]), "type": column(["bridge", "bridge"])}
    for table in (plain, {**plain, **facts}):
        (tmp_path / "q.json").write_text(json.dumps(table))
        with pytest.raises(InputError, match=r"q\.json, question 1: 2 questions in one row, .*records"):
            load_questions(tmp_path / "q.json")
