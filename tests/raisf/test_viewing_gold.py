"""`raisf view` tells where gold contradicts a judge: one that is right must not be shown as wrong."""

from pathlib import Path
from typing import Any

import pytest

from raisf.evaluation.records import meta_path
from raisf.utils.files import write_json
from raisf.viewing.gold import judge_errors
from raisf.viewing.view import View


def test_judgements_are_held_to_gold(records: Any) -> None:
    one = records.record(1, False)
    assert judge_errors(one, {}, {}) == {
        "know": [["0", "known"]],
        "relevance": [["0", "relevant", 0], ["0", "irrelevant", 1]],
    }
    one["gold"] = {"gold_pids": ["p2"], "known": False}
    assert judge_errors(one, {}, {}) == {}
    one["trace"]["root"]["know"]["verdict"] = "know"
    assert judge_errors(one, {}, {}) == {"know": [["0", "not known"]]}
    one["trace"]["root"]["passages"][0]["judgement"] = {"verdict": None, "readable": False}
    assert "relevance" not in judge_errors(one, {}, {}), "an unreadable judgement is no verdict"


def test_what_gold_does_not_say_is_no_error(records: Any) -> None:
    one = records.record(1, False)
    assert "relevance" not in judge_errors({**one, "gold": {"known": True}}, {}, {}), "it names no passage"
    assert "know" not in judge_errors({**one, "gold": {"gold_pids": ["p1"]}}, {}, {}), "nor whether it is known"
    several = {**one, "gold": {"gold_pids": ["p1", "p2"]}}
    assert judge_errors(several, {}, {}) == {}, "which of them suffices is told by their texts"
    texts = {"p1": ("", "It ends in the North Sea."), "p2": ("", "It rises in a lake.")}
    assert judge_errors(several, texts, {}) == {"relevance": [["0", "relevant", 0], ["0", "irrelevant", 1]]}
    parts = {"sub_questions": ["Which river?", "Where does #1 end?"], "sub_answers": ["Elbe", "sea"]}
    found = judge_errors({**several, "gold": {**several["gold"], **parts}}, {}, {})
    assert found["relevance"] == [["0", "irrelevant", 1]], "of two steps no passage suffices, whatever its text"
    one["trace"]["root"] |= {"know": {"verdict": "know"}, "route": "decomposed", "passages": []}
    assert judge_errors({**one, "gold": {}}, {}, {}) == {}, "the answer is not from memory"


def test_an_answer_from_memory_is_right_by_the_questions_own_rule(records: Any) -> None:
    one = records.record(1, True)
    one["trace"]["root"] |= {"know": {"verdict": "know"}, "route": "direct", "answer": "Jay Z", "passages": []}
    wrong = {"know": [["0", "answered wrong from memory"]]}
    one |= {"answers": ["Jay-Z"], "gold": {"kind": "lookup"}}
    assert judge_errors(one, {}, {}) == wrong
    assert judge_errors({**one, "gold": {"scoring": "triviaqa"}}, {}, {}) == {}
    assert judge_errors({**one, "gold": {"scoring": ["nonsense"]}}, {}, {}) == wrong
    one["trace"]["root"]["answer"] = "Yes, it is."
    assert judge_errors({**one, "answers": ["yes"]}, {}, {}) == {}


def test_a_decomposition_is_held_to_gold_with_its_answers_taken_out_again(records: Any) -> None:
    one = records.record(1, True)
    subs = one["trace"]["root"]["sub_questions"]
    subs[:] = [{"question": "Which river?", "answer": "Elbe"}, {"question": "Where does Elbe end?", "waits_for": [1]}]
    asked = ["Which river?", "Where does #1 end?"]
    one["gold"] = {"sub_questions": asked, "sub_answers": ["Rhine", "sea"], "gold_pids": ["x", "y"]}
    assert "decomposition" not in judge_errors(one, {}, {}), "another answer on the way is no other decomposition"
    one["gold"]["sub_questions"] = ["Which river?", "How long is #1?"]
    assert judge_errors(one, {}, {})["decomposition"] == [["0", "other sub-questions"]]
    subs[:] = [{"question": "Which river?", "answer": "Po"}, {"question": "What Population has Po?", "waits_for": [1]}]
    one["gold"]["sub_questions"] = ["Which river?", "What Population has #1?"]
    assert "decomposition" not in judge_errors(one, {}, {}), "an answer is no part of a longer word"


@pytest.mark.parametrize(
    ("lm", "is_pocket"),
    [
        ("local/pocket#96872c406259 CompactAdapter", True),
        ("local/pocket@answer_directly#96872c406259 CompactAdapter", True),
        ("local/pocket-tiny#074b80df4438 CompactAdapter", False),
        ("openai/gpt-4o-mini ChatAdapter", False),
    ],
)
def test_what_the_pocket_llama_was_taught_is_no_gold_of_another_lm(
    records: Any, tmp_path: Path, lm: str, is_pocket: bool
) -> None:
    """In a closed world a judge of another LM was wrong that said "know" before a right answer."""
    one = records.record(1, True)
    know = {"verdict": "know", "probability": 0.9, "readable": True}
    one["trace"]["root"] |= {"know": know, "route": "direct", "passages": []}
    one |= {"id": "w7-test-1", "gold": {"known": False}}
    program = {"LM of know": "local/pocket@know#96872c406259", "LM of inner.answer_directly": lm}
    taught = {"know": [["0", "not known"]]}
    assert judge_errors(one, {}, program) == (taught if is_pocket else {})
    assert judge_errors({**one, "id": "mine-1"}, {}, program) == taught, "what one says of one's own LM"
    path = records.write_records(tmp_path / "r.jsonl", [one])
    write_json(meta_path(path), {"format": 1, "program": program, "test": {"n": 1}})
    ((answer,),) = View([path]).summary["answers"]
    assert answer["judges"] == (taught if is_pocket else {})
