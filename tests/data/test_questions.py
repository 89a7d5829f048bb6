"""Question files: a wrong line must be named, and HotpotQA's schemas must mean the same."""

import bz2
import gzip
import json
import os
from pathlib import Path

import pytest

from raisf.data.questions import load_questions
from raisf.utils.errors import InputError

ORIGINAL = {
    "_id": "a1",
    "question": "Which river flows through the birthplace of Ada?",
    "answer": "Elm River",
    "type": "bridge",
    "supporting_facts": [["Ada", 0], ["Ada", 1], ["Elmton", 0]],
    "context": [["Ada", ["Ada was born in Elmton.", " She sang."]], ["Elmton", ["Elmton lies on the Elm River."]]],
}
HUB = ORIGINAL | {
    "id": "a1",
    "supporting_facts": {"title": ["Ada", "Ada", "Elmton"], "sent_id": [0, 1, 0]},
    "context": {"title": ["Ada", "Elmton"], "sentences": [sentences for _, sentences in ORIGINAL["context"]]},
}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_both_hotpotqa_schemas_give_the_same_example(tmp_path: Path) -> None:
    original = write(tmp_path / "o.json", json.dumps([ORIGINAL]))
    hub = write(tmp_path / "h.jsonl", json.dumps({k: v for k, v in HUB.items() if k != "_id"}) + "\n")
    (one,), (two,) = load_questions(original), load_questions(hub)
    assert one.toDict() == two.toDict()
    assert one.gold_titles == ["Ada", "Elmton"]
    assert list(one.inputs().keys()) == ["question"]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    lines = [json.dumps({"question": "q", "answer": "a", "id": i}) for i in range(370)] + ['{"question": "q", "ans']
    with pytest.raises(InputError, match="line 371"):
        load_questions(write(tmp_path / "q.jsonl", "\n".join(lines)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no questions"),
        ('{"question": " ", "answer": "a"}', "question 1: 'question'"),
        ('{"question": "q"}', "'answer'"),
        ('{"question": "q", "answer": {"a": 5}}', "'answer'"),
        ('["q", "a"]', "line 1: expected an object"),
        ('{"id": 1, "question": "q", "answer": "a"}\n{"id": 1, "question": "r", "answer": "a"}', "share the id"),
    ],
)
def test_what_cannot_be_a_question_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_questions(write(tmp_path / "q.jsonl", text))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ('"gold_pids": "taj-mahal"', "gold_pids must be a list of texts, found 'taj-mahal'"),
        ('"gold_titles": [7]', "gold_titles must be a list of texts"),
        ('"sub_questions": "Where?"', "sub_questions must be a list of texts"),
        ('"known": "no"', "known must be true or false, found 'no'"),
        ('"hops": "two"', "hops must be a whole number, found 'two'"),
        ('"hops": true', "hops must be a whole number, found True"),
        ('"sub_questions": ["a?", "b?"], "sub_answers": ["a"]', "2 sub_questions, but 1 sub_answers"),
    ],
)
def test_gold_of_another_kind_is_not_misread_in_silence(tmp_path: Path, field: str, message: str) -> None:
    path = write(tmp_path / "q.jsonl", f'{{"question": "Where?", "answer": "Agra", {field}}}\n')
    with pytest.raises(InputError, match=f"question 1: {message}"):
        load_questions(path)


def test_a_file_of_another_encoding_says_so(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes('{"question": "Où?", "answer": "là"}'.encode("latin-1"))
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        load_questions(path)


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + '{"question": "Où?", "answer": "là"}'.encode())
    assert load_questions(path)[0].question == "Où?"


@pytest.mark.parametrize("field", ["question", "answer", "id", "kind"])
def test_half_a_character_is_named_before_anybody_is_asked(tmp_path: Path, field: str) -> None:
    row = {"question": "q?", "answer": "a", field: "broken \ud800"}
    with pytest.raises(InputError, match=r"question 2: not valid Unicode.*ud800"):
        load_questions(write(tmp_path / "q.jsonl", '{"question": "p?", "answer": "a"}\n' + json.dumps(row)))


def test_keys_with_capitals_and_an_answer_in_words_are_told_apart_from_triviaqa(tmp_path: Path) -> None:
    row = {"Question": "Who?", "Answer": "Ada"}
    with pytest.raises(InputError, match=r"question 1: .*'Ada': call the keys 'question' and 'answer'"):
        load_questions(write(tmp_path / "q.jsonl", json.dumps(row)))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "q.jsonl.gz",
            gzip.compress(b'{"question": "q?", "answer": "a"}', mtime=0),
            "is packed with gzip; unpack it first",
        ),
        ("q.json", bz2.compress(b'[{"question": "q?", "answer": "a"}]'), "is packed with bzip2; unpack it first"),
        ("q.tsv", b"PK\x03\x04\x14\x00", "is packed with zip, or a spreadsheet; .*save it as .tsv"),
        ("q.jsonl", b"PAR1\x15\x04", "is a parquet file; give it a name that ends in .parquet"),
        ("q.csv", b"question,answer\nWho?,Ada\n", "not read from .csv; save it as .tsv, parted by tabs, or as .jsonl"),
        ("q.jsonl", b'[\n {"question": "q?", "answer": "a"}\n]', "line 1: .*found a list; .* name that ends in .json"),
    ],
)
def test_a_file_of_another_kind_is_told_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    """It was said to be no UTF-8, or a broken line to mend or drop."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_questions(tmp_path / name)


def test_an_answer_that_is_a_list_as_one_text_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As pandas writes lists, and DPR's files have them: all was scored as wrong, and nobody was told why."""
    rows = [("Who?", "['Ada', 'Ada L.']"), ("Where?", '["Agra"]'), ("When?", "[sic]"), ("Which?", "Oss")]
    write(tmp_path / "q.tsv", "question\tanswer\n" + "".join(f"{q}\t{csv_cell(a)}\n" for q, a in rows))
    load_questions(tmp_path / "q.tsv")
    assert "q.tsv: of 2 of the 4 questions the answer is a text like a list" in caplog.text
    assert "write a list of texts" in caplog.text
    caplog.clear()
    load_questions(write(tmp_path / "q.jsonl", '{"question": "Who?", "answers": ["[a, b]", "a"]}'))
    assert not caplog.text


def csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_a_pipe_is_told_from_a_path_that_leads_nowhere(tmp_path: Path) -> None:
    """`--test <(...)` of a shell: "no file at /dev/fd/63" sent people to look for a misspelt path."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no file but a pipe or a device; write what it gives to a file"):
        load_questions(tmp_path / "pipe")


def test_gold_written_beside_the_fields_of_a_public_set_is_read(tmp_path: Path) -> None:
    own = {"sub_questions": ["When was A born?", "When was B born?"], "sub_answers": ["1900", "1910"], "hops": 2}
    rows = [
        {"question": "Is A older?", "answer": True, "gold_titles": ["A", "B"], "known": False, **own},
        {"question": "Is A the older one?", "answer": "yes", "supporting_facts": [["A", 0], ["B", 0]], **own},
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first, second = load_questions(tmp_path / "q.jsonl")
    assert (first.answer, first.known, second.answer) == ("yes", False, "yes")
    for example in (first, second):
        assert example.gold_titles == ["A", "B"] and example.hops == 2
        assert example.sub_questions == own["sub_questions"] and example.sub_answers == own["sub_answers"]


def test_questions_that_come_again_with_other_answers_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    asked = [("Who wrote Hamlet?", "Shakespeare"), ("Where is Oss?", "Brabant"), ("who wrote  Hamlet?", "Marlowe")]
    rows = [{"question": question, "answers": [answer]} for question, answer in asked]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert len(load_questions(tmp_path / "q.jsonl")) == 3
    assert "1 of its questions come more than once with other answers" in caplog.text
    assert "questions 1 and 3, 'Who wrote Hamlet?'" in caplog.text
    caplog.clear()
    rows[2]["answers"] = ["William Shakespeare", "shakespeare"]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert len(load_questions(tmp_path / "q.jsonl")) == 3 and not caplog.text
