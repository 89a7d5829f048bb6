"""If these failed, the kinds of self-knowledge and confidence could not be had from the command line together."""

import json
from typing import Any

import pytest

from raisf import cli
from tests.raisf.conftest import run_json


@pytest.fixture(scope="module")
def home(make_home: Any) -> Any:
    """A folder with a world and its index: in a smaller one too few answers have a confidence."""
    return make_home(train=16, dev=12, test=4, entities=2100)


def test_a_program_is_compiled_calibrated_and_asked_with_a_confidence_of_its_own(
    home: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(home)
    files = ["--train", "world/train.jsonl", "--dev", "world/dev.jsonl", "--index", "index", "--out", "a"]
    ways = ["--know", "confidence", "--confidence", "path", "--know-threshold", "0.9", "--max-depth", 1]
    made = run_json(capsys, "compile", *files, *ways, "--calibrate", "accuracy", "--calibrate-confidence")
    assert made["confidence"]["slope"] > 0 and "threshold" in made["calibration"]["judges"]["know"]
    manifest = json.loads((home / "a/manifest.json").read_text())
    assert manifest["options"]["know"] == "confidence" and manifest["options"]["confidence"] == "path"
    question = json.loads((home / "world/test.jsonl").read_text().splitlines()[0])["question"]
    answered = run_json(capsys, "ask", question, "--program", "a")
    kept = run_json(capsys, "ask", question, "--program", "a", "--min-confidence", 1)
    assert kept["answer"] == "unknown"
    if answered["answer"] != "unknown":
        assert 0 < answered["confidence"] < 1 and kept["trace"]["root"]["route"] == "withheld"
    measured = run_json(capsys, "eval", "--program", "a", "--test", "world/test.jsonl")
    assert measured["risk"]["right"]["1"] == pytest.approx(measured["em"]["value"])


@pytest.mark.slow
def test_each_kind_of_self_knowledge_is_measured_alone(home: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(home)
    for kind in ("verbal", "confidence"):
        given = ["--test", "world/test.jsonl", "--lm", "pocket", "--program", "ra-isf", "--labels", "gold"]
        found = run_json(capsys, "eval", "--module", "know", "--know", kind, *given)
        assert {"auroc", "ece", "aurc"} <= found["judge"]["scores"].keys() and found["judge"]["risk"]["coverage"]


def test_a_kind_that_a_program_was_not_compiled_for_is_refused_and_a_judge_more_is_asked_of_the_base(
    home: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(home)
    assert cli.main(["ask", "Who founded Velm?", "--program", "a", "--know", "truth"]) != 0
    assert "--know" in capsys.readouterr().err
    asked = run_json(capsys, "ask", "Who founded Velm?", "--program", "a", "--sufficiency", "--no-know")
    assert asked["answer"]


@pytest.mark.slow
def test_the_kind_of_self_knowledge_is_chosen_on_the_dev_split_and_stands_in_the_artifact(
    home: Any, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(home)
    files = ["--train", "world/train.jsonl", "--dev", "world/dev.jsonl", "--index", "index", "--out", "chosen"]
    made = run_json(capsys, "compile", *files, "--max-depth", 1, "--choose-know", "verbal,confidence")
    found = made["calibration"]["know"]
    assert found["tried"].keys() == {"verbal", "confidence"} and made["calibration"]["aim"] == "answer"
    best = max(found["tried"].values(), key=lambda one: (one["score"]["value"], -one["lm_calls"]))
    assert found["tried"][found["chosen"]] == best
    options = json.loads((home / "chosen/manifest.json").read_text())["options"]
    assert options.get("know", "verbal") == found["chosen"]
    assert options["know_threshold"] == best["thresholds"]["know"]
    assert run_json(capsys, "ask", "Who founded Velm?", "--program", "chosen")["answer"]
    assert cli.main(["compile", *files, "--choose-know", "luck"]) != 0
    assert "choose verbal, confidence, truth, consistency" in capsys.readouterr().err


def test_the_judge_of_sufficiency_is_measured_alone(home: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(home)
    asked = ["eval", "--module", "sufficiency", "--test", "world/test.jsonl", "--index", "index", "--lm", "pocket"]
    found = run_json(capsys, *asked, "--program", "ra-isf", "--sufficiency")
    assert {"accuracy", "auroc", "ece"} <= found["judge"]["scores"].keys() and 0 < found["positive"] < found["rows"]
    assert cli.main([*asked, "--program", "ra-isf"]) != 0
    assert "--sufficiency" in capsys.readouterr().err
