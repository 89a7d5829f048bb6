"""Rows for the judges that somebody wrote herself: what no judge can learn from is told, with its place."""

import json
from pathlib import Path

import dspy
import pytest

from raisf.optimize.judges.judge_rows import JudgeRows
from raisf.programs.ra_isf import RAISF
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


@pytest.mark.parametrize("told", ['{"made": "x"}', '{"made": "x", "format": 2}'])
def test_rows_that_an_earlier_version_labelled_by_other_rules_are_not_learnt(told, tmp_path):
    """`raisf collect` refused their folder, and `raisf compile --rows-from` trained on it without a word."""
    (tmp_path / "collected.json").write_text(told)
    with pytest.raises(InputError, match=r"by an earlier version, .* otherwise: collect them anew, into a new folder"):
        read(tmp_path, "know")
    (tmp_path / "collected.json").write_text("")
    assert read(tmp_path, "know").of["know"], "a power cut's says nothing"


def test_rows_of_ones_own_are_read(tmp_path):
    rows = read(tmp_path, "relevance", **LISTED, passage=None, verdict=None, weight=2, source={"by": ["mine"]}).of
    assert [len(found) for found in rows.values()] == [2, 2, 2]
    assert rows["relevance"][1].verdict == "relevant" and "source" not in rows["relevance"][1]
    assert rows["know"][0].inputs().keys() == ["question"]


@pytest.mark.parametrize(
    ("judge", "changed", "told"),
    [
        ("know", {"question": 7}, "'question' must be a text; found 7"),
        ("know", {"origin": ["Where?"]}, "'origin' must be a text, or left out; found ['Where?']"),
        ("know", {"verdict": "Know"}, "'verdict' must be 'know' or 'unknown'; found 'Know'"),
        ("know", {"verdict": True}, "'verdict' must be 'know' or 'unknown'; found True"),
        ("know", {"verdict": None}, "'verdict' must be 'know' or 'unknown'; found no 'verdict' in it"),
        ("relevance", {"verdict": "know"}, "'verdict' must be 'relevant' or 'irrelevant'; found 'know'"),
        ("relevance", {"passage": None}, "'passage' must be a text; found no 'passage' in it"),
        ("relevance", {"passage": ["a"]}, "'passage' must be a text; found ['a']"),
        ("relevance", {"relevant_ids": [1]}, "'passages' must be a list of texts; found no 'passages' in it"),
        ("relevance", {**LISTED, "relevant_ids": [0]}, "a list of the passages' numbers, from 1; found [0]"),
        ("relevance", {**LISTED, "relevant_ids": [2, 3]}, "a list of the passages' numbers, from 1; found [2, 3]"),
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


def test_what_two_folders_say_is_learnt_once_and_what_they_contradict_is_told(tmp_path, caplog):
    """Questions of --train and of --dev share sub-questions: these rows weighed twice, or taught both verdicts."""
    for name in "ab":
        (tmp_path / name).mkdir()
    whole = read(tmp_path / "a", "know", question="When?").of
    again = JudgeRows.read(tmp_path / "a", tmp_path / "a")
    assert again.of == whole and not caplog.messages
    read(tmp_path / "b", "know", verdict="know")
    caplog.clear()
    both = JudgeRows.read(tmp_path / "a", tmp_path / "b").of
    assert both == whole
    assert caplog.messages == ["1 rows say something else than rows before them: what the first one says is learnt"]


def test_a_folder_that_contradicts_an_earlier_one_with_one_voice_is_told_too(tmp_path, caplog):
    for name in "ab":
        (tmp_path / name).mkdir()
        read(tmp_path / name, "know")
    (tmp_path / "b" / "know.jsonl").write_text(json.dumps({**ROWS["know"], "verdict": "know"}) + "\n")
    rows = JudgeRows.read(tmp_path / "a", tmp_path / "b").of["know"]
    assert {row.verdict for row in rows} == {"unknown"}
    assert caplog.messages == ["1 rows say something else than rows before them: what the first one says is learnt"]


def test_rows_of_one_file_that_contradict_each_other_are_told(tmp_path, caplog):
    """A text with both verdicts taught both; several decompositions of a question are no contradiction."""
    rows = read(tmp_path, "relevance", verdict="irrelevant").of
    assert [len(found) for found in rows.values()] == [2, 1, 2] and rows["relevance"][0].verdict == "relevant"
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("1 rows say something else")
    caplog.clear()
    assert len(read(tmp_path, "decomposition", sub_questions=["Who?", "When?"]).of["decomposition"]) == 2
    assert not caplog.messages


def test_only_rows_of_what_is_known_tell_whose_knowledge_it_is(tmp_path):
    read(tmp_path, "relevance", source={"by": "openai/teacher"})
    (tmp_path / "know.jsonl").write_text(json.dumps({**ROWS["know"], "source": {"by": "local/small#1"}}) + "\n")
    assert JudgeRows.read(tmp_path).report["known_by"] == ["local/small#1"]


def test_a_row_about_words_of_an_lms_own_is_of_the_split_whose_question_led_to_them():
    train, dev = ([dspy.Example(question=one).with_inputs("question")] for one in ("Who is Ada?", "Who is Bo?"))
    led = {"Her mother?": train[0].question, "His mother?": dev[0].question}
    rows = {"know": [dspy.Example(question=one, verdict="know", origin=first) for one, first in led.items()]}
    parts = JudgeRows(rows, {}).parts(train, dev)
    assert [[row.question for row in part["know"]] for part in parts] == [["Her mother?"], ["His mother?"]]


def test_no_row_is_validated_on_that_is_learnt_though_no_other_is_of_a_validation_question():
    train = [dspy.Example(question=f"Who is {name}?").with_inputs("question") for name in "ab"]
    chain = {"question": "Where is a?", "sub_questions": ["Who is a?", "Where is #1?"], "sub_answers": ["x", "y"]}
    rows = JudgeRows({"know": [dspy.Example(one, verdict="know") for one in train]}, {})
    parts = rows.parts(train, [dspy.Example(chain).with_inputs("question")])
    learnt, held = ([row.question for row in part["know"]] for part in parts)
    assert len(learnt) == len(held) == 1 and learnt != held


def test_rows_that_are_mostly_of_other_questions_are_refused():
    asked = [dspy.Example(question=f"Who is {n}?").with_inputs("question") for n in range(10)]
    rows = JudgeRows({"know": [dspy.Example(one, verdict="know") for one in asked]}, {"folders": ["mine"]})
    with pytest.raises(InputError, match="most of the rows in mine are of questions that the training file does not"):
        rows.parts(asked[:3], asked[3:4])
    assert sum(len(part["know"]) for part in rows.parts(asked[:3], asked[3:5])) == 5


def test_rows_of_questions_in_neither_split_are_told(caplog):
    """Of rows with sub-questions that a later file does not have, up to half were left out without a word."""
    asked = [dspy.Example(question=f"Who is {n}?").with_inputs("question") for n in range(12)]
    rows = JudgeRows({"know": [dspy.Example(one, verdict="know") for one in asked]}, {"folders": ["mine"]})
    rows.tell_of_others(RAISF(None), asked[:8], asked[8:])
    assert not caplog.messages
    rows.tell_of_others(RAISF(None), asked[:8], asked[8:9])
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("3 of the 12 rows in mine are about questions")


def test_rows_are_of_no_question_of_a_module_that_is_asked_something_else() -> None:
    """What was told was that an Example has no attribute 'question'."""
    rows = JudgeRows({"know": [dspy.Example(question="Who?", verdict="know").with_inputs("question")]}, {})
    asked = [dspy.Example(topic=topic, answer="a").with_inputs("topic") for topic in ("tea", "rice")]
    with pytest.raises(InputError, match="of questions that the training file does not hold"):
        rows.parts(asked[:1], asked[1:])
