"""If these failed, answers would be taken for those of another program, or for others than they are."""

from pathlib import Path

import dspy
import pytest

from raisf.evaluation.examples import describe_test
from raisf.evaluation.identity import describe, digest
from raisf.evaluation.records import FORMAT
from raisf.evaluation.runner import evaluate
from raisf.experiments.comparing import records_file
from raisf.lm.connect import connect
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, read_jsonl, write_json, write_jsonl


class Says(dspy.Module):
    """A program whose answer is always the same, and one of its options."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=self.answer)


ASKED = [dspy.Example(id="1", question="One and one?", answer="two")]


def right(answer: str, out: Path, **options: bool) -> float:
    return evaluate(Says(answer), ASKED, out, progress=False, **options).em.value


def test_answers_stay_their_programs_whatever_their_files_are_called(tmp_path: Path) -> None:
    """`run.v1` and `run.v2` shared what says whose answers they hold, and were taken for each other's."""
    assert right("two", tmp_path / "run.v1") == 1.0
    assert right("three", tmp_path / "run.v2") == 0.0
    with pytest.raises(InputError, match=r"another program \(answer: \w+ there, \w+ here\)"):
        right("three", tmp_path / "run.v1")
    assert right("two", tmp_path / "run.v1") == 1.0


def test_a_record_that_lacks_what_is_not_scored_counts_as_without(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    assert right("two", out) == 1.0
    (record,) = read_jsonl(out)
    write_jsonl(out, [{name: record[name] for name in ("id", "question", "answers", "em", "f1")}])
    report = evaluate(Says("two"), ASKED, out, progress=False)
    assert (report.em.value, report.accuracy.value, report.errors) == (1.0, 0.0, 0)


def test_a_question_that_lost_a_call_by_an_earlier_version_is_asked_again(tmp_path: Path) -> None:
    """Its answer, without what that call would have said, stayed scored."""
    out = tmp_path / "r.jsonl"
    assert right("two", out) == 1.0
    (record,) = read_jsonl(out)
    write_jsonl(out, [{**record, "answer": "one", "em": 0.0, "trace": {"failed": 1}}])
    assert right("two", out) == 1.0 and len(list(read_jsonl(out))) == 2
    assert right("two", out) == 1.0 and len(list(read_jsonl(out))) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("em", 5.0), ("f1", -1), ("kind", ["x"]), ("route", {"a": 1}), ("cost", {"lm_calls": "x"}), ("read", "one")),
        *(("accuracy", 5.0), ("recall", "x"), ("unreadable", None), ("cost", None), ("precision", float("nan"))),
        *(("confidence", "high"), ("confidence", [1.0])),
    ],
)
def test_a_record_that_was_mended_badly_is_told_with_its_line(tmp_path: Path, field: str, value: object) -> None:
    """It went into the means, or ended in a traceback."""
    out = tmp_path / "r.jsonl"
    right("two", out)
    (record,) = read_jsonl(out)
    write_jsonl(out, [record | {field: value}])
    with pytest.raises(InputError, match=rf"line 1, is no record \('{field}' is "):
        right("two", out)


def test_a_record_of_another_question_is_in_no_mean(tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    right("two", out)
    (record,) = read_jsonl(out)
    write_jsonl(out, [record, record | {"id": "stranger"}])
    with pytest.raises(InputError, match="a record of 'stranger', which is none of the questions"):
        right("two", out)


def test_answers_out_of_a_cache_are_never_taken_for_others(tmp_path: Path) -> None:
    """Their cost and seconds are the cache's; what was answered without one keeps its file."""
    assert right("two", tmp_path / "asked.jsonl", cache=False) == 1.0
    assert right("two", tmp_path / "cached.jsonl", cache=True) == 1.0
    for file, cache in (("asked.jsonl", True), ("cached.jsonl", False)):
        with pytest.raises(InputError, match=r"cache: .* there, .* here"):
            right("two", tmp_path / file, cache=cache)
    files = [records_file(tmp_path, Says("two"), ASKED, cache=cache) for cache in (False, True)]
    before = digest([describe(Says("two")), describe_test(ASKED), FORMAT])[:8]
    assert files[0].name == f"says-{before}.jsonl" and files[1].name != files[0].name


@pytest.mark.parametrize("left", ["", "\0\0\0", '{"format": 1, "prog'])
def test_records_whose_owner_a_power_cut_has_damaged_are_dropped_by_fresh_alone(tmp_path: Path, left: str) -> None:
    """Nothing but another file helped."""
    out, meta = tmp_path / "r.jsonl", tmp_path / "r.meta.json"
    assert right("two", out) == 1.0
    meta.write_text(left)
    with pytest.raises(InputError, match=r"r\.meta\.json, .* is missing or damaged: delete both \(--fresh does"):
        right("two", out)
    assert len(list(read_jsonl(out))) == 1
    assert right("three", out, fresh=True) == 0.0 and right("three", out) == 0.0
    meta.unlink()
    meta.mkdir()
    with pytest.raises(InputError):
        right("two", out, fresh=True)
    meta.rmdir()
    assert len(list(read_jsonl(out))) == 1
    out.unlink()
    meta.write_text("")
    assert right("two", out) == 1.0, "it says nothing of nothing"
    out.write_text("mine")
    meta.write_text("")
    with pytest.raises(InputError, match="missing or damaged: give another file"):
        right("two", out, fresh=True)
    assert out.read_text() == "mine"


def test_answers_of_another_endpoint_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two servers that both call their model `llama` had each other's answers, and nobody said so."""

    def told(place: str | None, *, fresh: bool = False) -> int:
        program = Says("two")
        program.reads = dspy.Predict("question -> answer")
        program.reads.lm = connect("openai/llama", api_base=place)
        before = len(caplog.records)
        evaluate(program, ASKED, tmp_path / "r.jsonl", progress=False, fresh=fresh)
        return len(caplog.records) - before

    one, other = "http://127.0.0.1:8001/v1", "http://127.0.0.1:8002/v1"
    assert told(one) == told(one) == 0
    assert told(other) == 1 and f"its 1 answers are of {one}, and {other} is asked now" in caplog.text
    assert told(other) == 1, "no answer is its own yet"
    (record,) = read_jsonl(tmp_path / "r.jsonl")
    write_jsonl(tmp_path / "r.jsonl", [record | {"error": "down"}])
    assert told(other) == 1 and told(other) == told(one) == 0, "now one is"
    assert told(other, fresh=True) == 0 and told(one) == 1
    assert told(None) == 1 and "and its provider is asked now" in caplog.text


def test_answers_that_an_earlier_version_scored_are_not_gone_on_with(tmp_path: Path) -> None:
    """One reply to six equal questions was wrong four times, by the rules of then, and right twice."""
    out, meta = tmp_path / "r.jsonl", tmp_path / "r.meta.json"
    assert right("two", out) == 1.0
    write_json(meta, {**read_json(meta), "format": 1})
    with pytest.raises(InputError, match=r"not of format 2, the one this version writes: give another .*--fresh"):
        right("two", out)
    assert right("two", out, fresh=True) == 1.0


def test_two_files_never_share_what_says_whose_they_are(tmp_path: Path) -> None:
    """`run` and `run.jsonl` did: after one was begun anew, the other's answers were another program's."""
    assert right("two", tmp_path / "run.jsonl") == 1.0
    with pytest.raises(InputError, match=r"run\.jsonl, which is there, would share run\.meta\.json"):
        right("three", tmp_path / "run", fresh=True)
    assert right("two", tmp_path / "other") == 1.0
    with pytest.raises(InputError, match="would share other"):
        right("two", tmp_path / "other.jsonl")
    (tmp_path / "script").write_text("#!/bin/sh\n")
    assert right("two", tmp_path / "script.jsonl") == 1.0, "what holds no records may have the name"
    assert right("two", tmp_path / ".jsonl") == 1.0


def test_a_name_that_is_too_long_for_records_is_cut_or_refused_before_there_is_a_file(tmp_path: Path) -> None:
    out = records_file(tmp_path, Says("two"), ASKED, "ü" * 120)
    assert right("two", out) == 1.0 and out.name.startswith("ü" * 100)
    kept = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="is longer than 237 bytes: give a shorter name"):
        right("two", tmp_path / f"{'r' * 230}.jsonl")
    assert sorted(tmp_path.iterdir()) == kept


def test_records_go_where_a_link_leads_to_be_its_folder_there_or_not(tmp_path: Path) -> None:
    (tmp_path / "link.jsonl").symlink_to("runs/mine/r.jsonl")
    assert right("two", tmp_path / "link.jsonl") == 1.0
    assert (tmp_path / "runs/mine/r.jsonl").is_file() and (tmp_path / "link.jsonl").is_symlink()


def test_a_device_is_no_file_for_records(tmp_path: Path) -> None:
    """Beside /dev/null a file was made."""
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(InputError, match="null is a device or a pipe"):
        right("two", tmp_path / "null")
    assert [one.name for one in tmp_path.iterdir()] == ["null"]
