"""`raisf eval --module` and `raisf compile --calibrate`, as a person uses them, with the pocket Llama."""

import json

import dspy
import pytest

from raisf import cli
from raisf.data.questions import load_questions
from raisf.evaluation.intervals import Score
from raisf.experiments.comparing import judge_all
from raisf.experiments.judging import judge_alone
from raisf.optimize.judges.judgements import Judged, Judgements
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.index import open_index
from raisf.utils.files import read_jsonl
from tests.raisf.conftest import run_json
from tests.scripted import ScriptedLM


@pytest.fixture(scope="module")
def home(make_home):
    """A folder with a small world and its index."""
    return make_home(train=20, dev=12, test=16)


def test_the_know_judge_is_measured_beside_its_baselines_on_the_same_questions(home, capsys):
    files = ["--test", home / "world/test.jsonl", "--train", home / "world/train.jsonl"]
    found = run_json(capsys, "eval", "--module", "know", *files)
    assert {"accuracy", "precision", "recall", "f1", "auroc", "ece", "aurc"} == set(found["judge"]["scores"])
    assert sum(one["n"] for one in found["judge"]["bins"]) == found["rows"] and found["judge"]["threshold"] == 0.5
    assert set(found["baselines"]) == {"baseline, sum", "baseline, mean"}
    for measured in (found["judge"], *found["baselines"].values()):
        assert measured["scores"]["accuracy"]["n"] == measured["scores"]["auroc"]["n"] == found["rows"] >= 16
        assert measured["scores"]["recall"]["n"] == found["positive"]
    assert any("fitted on" in note and "train.jsonl" in note for note in found["notes"])


def test_without_training_questions_the_baseline_has_its_auroc_alone(home, capsys):
    found = run_json(capsys, "eval", "--module", "know", "--test", home / "world/test.jsonl", "--know-threshold", "0")
    assert [set(measured["scores"]) for measured in found["baselines"].values()] == [{"auroc"}, {"auroc"}]
    assert found["judge"]["scores"]["precision"]["n"] == found["rows"], "from 0 on everything counts as known"


def test_the_relevance_judge_needs_the_index_and_keeps_its_verdicts(home, capsys, tmp_path):
    argv = ["eval", "--module", "relevance", "--test", home / "world/test.jsonl", "--limit", "8"]
    assert cli.main([str(word) for word in argv]) == 2
    assert "--index" in capsys.readouterr().err
    found = run_json(capsys, *argv, "--index", home / "index", "--k", "3", "--out", tmp_path / "rows.jsonl")
    rows = list(read_jsonl(tmp_path / "rows.jsonl"))
    assert len(rows) == found["rows"] and sum(row["gold"] for row in rows) == found["positive"]
    right = sum(row["gold"] == row["said"] for row in rows) / len(rows)
    assert found["judge"]["scores"]["accuracy"]["value"] == pytest.approx(right)
    assert all(row["said"] == (row["probability"] >= 0.5) for row in rows)


def test_the_decomposition_judge_is_measured_and_all_of_it_is_shown(home, capsys):
    argv = ["eval", "--module", "decomposition", "--test", str(home / "world/test.jsonl")]
    found = run_json(capsys, *argv)
    assert cli.main(argv) == 0
    shown = capsys.readouterr().out
    for name in ("exact_match", "right_number", "token_f1"):
        assert name.replace("_", " ") in shown
        assert str(Score(**found["judge"]["scores"][name])) in shown


def test_questions_that_the_lm_gave_no_label_are_counted_as_missing(monkeypatch):
    """A report without them would be kept for good."""
    said = Judgements([Judged("A?", None, True, True, 0.9)])
    monkeypatch.setattr("raisf.optimize.judges.judgements.judgements_of", lambda *_, **__: said)
    examples = [dspy.Example(question=question, answer="Ada") for question in ("A?", "B?", "A?")]
    assert [judge_alone(dspy.Module(), judge, examples)[2] for judge in ("know", "relevance")] == [1, 0]


def test_training_questions_for_another_judge_are_a_mistake(home, capsys):
    files = ["--test", str(home / "world/test.jsonl"), "--train", str(home / "world/train.jsonl")]
    assert cli.main(["eval", "--module", "decomposition", *files]) == 2
    assert "--module know" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--labels", "gold"], ["--module", "know", "--cache"]], ids=" ".join)
def test_an_option_that_would_do_nothing_is_refused(home, capsys, options):
    assert cli.main(["eval", *options, "--test", str(home / "world/test.jsonl")]) == 2
    assert "leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["know", "decomposition"])
def test_verdicts_replace_verdicts_and_nothing_else(home, capsys, tmp_path, monkeypatch, module):
    """A test file given as --out by mistake would be lost; and a folder would be found out after all the work."""
    test, out = home / "world/test.jsonl", tmp_path / "rows.jsonl"
    argv = ["eval", "--module", module, "--test", str(test), "--limit", "3", "--out"]
    run_json(capsys, *argv, out)
    run_json(capsys, *argv, out)
    (tmp_path / "notes.txt").write_text("mine")
    answer = {"id": "1", "question": "Who?", "gold": {}, "readable": True, "em": 1.0}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")  # which were paid for
    files = {file: file.read_bytes() for file in (test, tmp_path / "notes.txt", tmp_path / "answers.jsonl")}
    monkeypatch.setattr("raisf.programs.calls.Run.ask", None)  # any call of an LM would fail
    for file in files:
        assert cli.main([*argv, str(file)]) == 2
        assert f"{file} holds something else than verdicts" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in files} == files
    relevance = ["eval", "--module", "relevance", "--index", str(home / "index"), "--test", str(test)]
    assert cli.main([*relevance, "--out", str(out)]) == 2
    assert f"{out} holds verdicts of the {module} judge" in capsys.readouterr().err
    assert cli.main([*argv, str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_verdicts_on_passages_say_which_judge_gave_them(home, capsys, tmp_path):
    """Those that passages suffice took the place of those that each is relevant: the rows look alike."""
    argv = ["eval", "--index", home / "index", "--test", home / "world/test.jsonl", "--limit", "3"]
    argv = [*map(str, argv), "--sufficiency", "--out", str(tmp_path / "rows.jsonl"), "--module"]
    run_json(capsys, *argv, "relevance")
    assert cli.main([*argv, "sufficiency"]) == 2
    assert "holds verdicts of the relevance judge" in capsys.readouterr().err
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row.pop("judge") for row in rows} == {"relevance"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))  # as earlier versions wrote
    run_json(capsys, *argv, "relevance")


def test_a_baseline_is_not_fitted_on_the_test(home, capsys):
    test = str(home / "world/test.jsonl")
    assert cli.main(["eval", "--module", "know", "--train", test, "--test", test, "--limit", "3"]) == 2
    assert "in the test split too" in capsys.readouterr().err


@pytest.mark.slow
def test_a_compiled_program_is_calibrated_and_remembers_it(home, capsys):
    files = ["--train", home / "world/train.jsonl", "--dev", home / "world/dev.jsonl", "--index", home / "index"]
    made = run_json(capsys, "compile", *files, "--calibrate", "balanced", "--out", home / "calibrated")
    assert made["calibration"]["aim"] == "balanced" and set(made["calibration"]["judges"]) == {"know", "relevance"}
    kept = json.loads((home / "calibrated/manifest.json").read_text())["options"]
    for judge, found in made["calibration"]["judges"].items():
        assert kept[f"{judge}_threshold"] == found.get("threshold", {"after": 0.5})["after"]
    argv = ["eval", "--module", "know", "--program", home / "calibrated", "--test", home / "world/test.jsonl"]
    assert run_json(capsys, *argv)["judge"]["threshold"] == kept["know_threshold"]


@pytest.mark.slow
def test_the_dev_split_decides_between_the_verdict_and_the_answers_probability(home, capsys):
    """Where `--know` says nothing; who names a kind has it."""
    world = ["--train", home / "world/train.jsonl", "--dev", home / "world/dev.jsonl", "--index", home / "index"]
    made = run_json(capsys, "compile", *world, "--strategy", "labeled", "--calibrate", "--out", home / "either")
    kinds = made["calibration"]["know"]
    assert set(kinds["tried"]) == {"verbal", "confidence"} and kinds["chosen"] in kinds["tried"]
    assert made["lm_calls"] > made["calibration"]["lm_calls"] > 0
    assert json.loads((home / "either/manifest.json").read_text())["options"].get("know", "verbal") == kinds["chosen"]
    made = run_json(capsys, "compile", *world, "--calibrate", "--know", "verbal", "--out", home / "verbal")
    assert "know" not in made["calibration"]


@pytest.mark.parametrize("relevance", ["pointwise", "listwise"])
def test_reports_say_whether_passages_were_judged_as_a_set(relevance, home, tmp_path):
    """Whatever the program is called: Table 5 had held such an artifact against what people say of each passage."""
    program = RAISF(open_index(home / "index"), k=2, relevance=relevance)
    program.set_lm(ScriptedLM(lambda fields: {"verdict": "irrelevant", "answer": "x", "relevant_ids": [1]}))
    found = judge_all({"x": program}, load_questions(home / "world/test.jsonl")[:2], tmp_path)["x"]
    assert found["relevance"]["as_a_set"] is (relevance == "listwise") and "as_a_set" not in found["know"]
