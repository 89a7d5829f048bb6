"""Which questions are drawn: none that is trained or selected on is, or nearly is, one that is tested."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from raisf.data.datasets.catalog import BENCHMARKS, _names
from raisf.data.datasets.draws import Asked, draw_splits
from raisf.data.datasets.files import write_dataset
from raisf.data.questions import load_questions
from raisf.utils.files import write_jsonl


def asked(*questions: str) -> list[Asked]:
    return [Asked(number, question) for number, question in enumerate(questions, start=1)]


def alike(ours: Sequence[str], theirs: Sequence[str]) -> set[str]:
    """The questions that differ in capitals alone."""
    known = {question.casefold() for question in theirs}
    return {question for question in ours if question.casefold() in known}


def test_a_dev_file_gives_up_what_test_holds_and_does_not_draw():
    tested = [f"test {number}" for number in range(8)]
    for seed in range(5):
        draws = draw_splits({"dev": asked(*tested, "own"), "test": asked(*tested)}, ["dev", "test"], 1, seed)
        assert [one.question for one in draws["dev"].questions] == ["own"] and len(draws["test"].questions) == 1


def test_nothing_that_is_nearly_a_drawn_dev_question_is_trained_on():
    both = [question for number in range(20) for question in (f"what {number}", f"What {number}")]
    draws = draw_splits({"train": asked(*both)}, ["train", "dev"], None, 0, alike)
    train, dev = ([one.question for one in draws[split].questions] for split in ("train", "dev"))
    assert len(dev) == 4 and not alike(train, dev) and len(train) + draws["train"].alike == 36


@pytest.mark.parametrize(
    ("name", "splits", "test"),
    [
        ("hotpotqa", ["train", "validation", "test"], "validation"),
        ("popqa", ["validation", "test"], "test"),
        ("nq", ["train", "test"], "test"),
    ],
)
def test_tested_on_is_what_papers_report_on(name: str, splits: list[str], test: str):
    """Of another split the answers may be public too, and no published figure is of it."""
    builder = SimpleNamespace(info=SimpleNamespace(splits=splits))
    assert _names(builder, BENCHMARKS[name])["test"] == test


def test_answers_of_a_copy_are_compared_as_its_data_set_says(tmp_path: Path):
    """A copy in another schema than TriviaQA's own does not say by which rule."""
    write_jsonl(tmp_path / "dev.jsonl", [{"question": "Who sang?", "golden_answers": ["Jay-Z"]}])
    for name, scoring in (("triviaqa", "triviaqa"), ("nq", None)):
        write_dataset(name, tmp_path / name, files={"test": tmp_path / "dev.jsonl"}, progress=False)
        assert load_questions(tmp_path / name / "test.jsonl")[0].get("scoring") == scoring
