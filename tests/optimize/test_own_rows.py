"""Rows for the judges that somebody wrote herself: what no judge can learn from is told, with its place."""

import json
from pathlib import Path

import pytest

from raisf.optimize.judges.judge_rows import JudgeRows
from raisf.utils.errors import InputError

ROWS = {
    "know": {"question": "Who?", "verdict": "unknown"},
    "relevance": {"question": "Who?", "passage": "Ada | Ada was born.", "verdict": "relevant"},
    "decomposition": {"question": "Who?", "sub_questions": ["Who is Bo?", "Where is #1?"]},
}
LISTED = {"question": "Who?", "passages": ["a", "b"], "relevant_ids": [2]}


def read(folder: Path, judge: str, **changed: object) -> JudgeRows:
    """The rows of a folder in which the second row of a judge is changed."""
    for name, row in ROWS.items():
        second = {**row, **changed} if name == judge else row
        second = {field: value for field, value in second.items() if value is not None}
        (folder / f"{name}.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(second) + "\n")
    return JudgeRows.read(folder)


def test_rows_of_ones_own_are_read(tmp_path):
    rows = read(tmp_path, "relevance", **LISTED, passage=None, verdict=None, weight=2, source={"id": "mine"}).of
    assert [len(found) for found in rows.values()] == [2, 2, 2]
    assert rows["relevance"][1].verdict == "relevant" and "source" not in rows["relevance"][1]
    assert rows["know"][0].inputs().keys() == ["question"]


@pytest.mark.parametrize(
    ("judge", "changed", "told"),
    [
        ("know", {"question": 7}, "'question' must be a text; found 7"),
        ("know", {"verdict": "Know"}, "'verdict' must be 'know' or 'unknown'; found 'Know'"),
        ("know", {"verdict": True}, "'verdict' must be 'know' or 'unknown'; found True"),
        ("know", {"verdict": None}, "'verdict' must be 'know' or 'unknown'; found no 'verdict' in it"),
        ("relevance", {"verdict": "know"}, "'verdict' must be 'relevant' or 'irrelevant'; found 'know'"),
        ("relevance", {"passage": None}, "'passage' must be a text; found no 'passage' in it"),
        ("relevance", {"passage": ["a"]}, "'passage' must be a text; found ['a']"),
        ("relevance", {"relevant_ids": [1]}, "'passages' must be a list of texts; found no 'passages' in it"),
        ("relevance", {**LISTED, "relevant_ids": [0]}, "a list of the passages' numbers, from 1; found [0]"),
        ("relevance", {**LISTED, "relevant_ids": ["a"]}, "a list of the passages' numbers, from 1; found ['a']"),
        ("decomposition", {"sub_questions": "Who? Where?"}, "'sub_questions' must be a list of texts; found 'Who?"),
        ("decomposition", {"sub_questions": []}, "'sub_questions' must be a list of texts; found []"),
        ("decomposition", {"sub_questions": ["Who?", 1]}, "'sub_questions' must be a list of texts; found ['Who?', 1]"),
    ],
)
def test_a_row_that_its_judge_cannot_learn_from_is_told(tmp_path, judge, changed, told):
    """They were left out, or learnt as they stood, and nobody heard of it."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, judge, **changed)
    assert str(caught.value).startswith(f"{tmp_path / judge}.jsonl, row 2: ") and told in str(caught.value)
