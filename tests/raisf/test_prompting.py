"""`raisf compile --how prompts` and its options, as a person uses them."""

import json
import shutil

import pytest

from raisf import cli
from raisf.experiments.opening import open_program
from raisf.lm.connect import connect
from raisf.lm.pocket import path
from raisf.optimize.artifact import save
from raisf.programs.ra_isf import RAISF
from raisf.reports.report import last_go_line
from raisf.retrieval.engines.bm25 import BM25


@pytest.fixture(scope="module")
def home(make_home):
    """A folder with a small world and its index."""
    return make_home(train=30, dev=6, test=6)


@pytest.fixture
def argv(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = ["--train", str(home / "world/train.jsonl"), "--dev", str(home / "world/dev.jsonl")]
    return ["compile", *files, "--index", str(home / "index"), "--out", str(tmp_path / "artifact")]


WRONG = {
    "trials of another strategy": (["--trials", "3"], "--trials is for --strategy mipro and gepa"),
    "an LM that writes nothing": (["--reflection-lm", "pocket"], "--reflection-lm is for --strategy mipro and gepa"),
    "weights": (["--how", "weights", "--strategy", "gepa", "--trials", "3"], "--strategy) is for how='prompts'"),
    "an endpoint of no LM": (
        ["--strategy", "gepa", "--reflection-api-base", "http://127.0.0.1:1"],
        "--reflection-api-base without --reflection-lm",
    ),
    "no instructions": (["--strategy", "gepa"], "rewrites instructions, and the format"),
    "a price without its aim": (["--calibrate", "--call-price", "0.1"], "--call-price is for --calibrate cost"),
    "what the judges learn in": (["--how", "both", "--by", "prompts"], "--by is for --how outcome"),
    "steps": (["--how", "outcome", "--sequence", "p"], "--sequence is for --how both"),
    "epochs of prompts": (["--how", "outcome", "--by", "prompts", "--epochs", "2"], "--epochs is for --how weights"),
    "rows of one's own": (["--how", "outcome", "--rows-from", "."], "--how outcome makes its own: leave them out"),
    "no thresholds": (["--program", "rag", "--strategy", "bootstrap", "--calibrate"], "RAG has no thresholds"),
}


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_told_before_anything_is_compiled(argv, options, message, capsys, tmp_path):
    assert cli.main([*argv, *options]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", ["runs", "runs/compile", "runs/../runs"])
def test_a_folder_that_holds_the_work_is_refused_before_it(argv, out, capsys, tmp_path):
    """All was learnt, and then it could not be written."""
    assert cli.main([*argv, "--lm", "pocket", "--out", out]) == 2
    assert f"{out} is where compiling keeps what it finds on its way (runs/compile)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["weights", "probe", "outcome", "both"])
def test_a_folder_that_holds_the_model_to_train_on_is_refused_before_it(argv, how, capsys, tmp_path):
    """All was trained, and then it could not be written."""
    base = tmp_path / "artifact/adapters/know"  # a model of which all weights were trained
    shutil.copytree(path("pocket-tiny"), base)
    (tmp_path / "artifact/manifest.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    assert cli.main([*argv, "--lm", "pocket", "--how", how, "--base", f"local/{base}"]) == 2
    assert "artifact holds the model that 'know' was trained on, which would be replaced" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert cli.main([*argv, "--lm", f"local/{base}", "--how", how]) == 2
    assert "which would be replaced: give another folder" in capsys.readouterr().err


def test_thresholds_of_the_judges_before_are_told_where_none_are_fitted_again(argv, tmp_path, caplog, monkeypatch):
    """They decided for the new judges without a word."""
    fitted = {"relevance_threshold": 0.9, "confidence_slope": 2.0}
    calibrated = RAISF(BM25.load(argv[argv.index("--index") + 1]), **fitted)
    calibrated.set_lm(connect("pocket"))
    calibrated.compile_report = {"how": "prompts", "earlier": [{"calibration": {}, "confidence": {}}]}
    save(calibrated, tmp_path / "before")
    monkeypatch.setattr("raisf.optimize.confidence.check_enough", lambda _: None)
    monkeypatch.setattr("raisf.optimize.optimizers.base.Optimizer.compile", _stopped)

    def told(*options):
        caplog.clear()
        assert cli.main([*argv, "--program", str(tmp_path / "before"), *options]) == 130
        return [what for what in ("thresholds", "confidence") if f"{what} were fitted to what it was" in caplog.text]

    assert told() == ["thresholds", "confidence"]
    assert told("--calibrate") == ["confidence"] and told("--calibrate-confidence") == ["thresholds"]
    assert told("--relevance-threshold", "0.8") == ["confidence"], "they do not stay"
    assert told("--relevance", "score") == [], "the confidence was fitted to the other judge, too"
    assert told("--set", "confidence_slope=3") == ["thresholds"]


def _stopped(*_, **__):
    raise KeyboardInterrupt


def test_too_few_questions_to_calibrate_the_confidence_on_are_told_at_once(argv, capsys, tmp_path):
    assert cli.main([*argv, "--lm", "pocket", "--calibrate-confidence"]) == 2
    assert "calibrated on 10 answers or more, not 6" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_was_compiled_is_kept_where_the_confidence_cannot_be_calibrated(argv, capsys, tmp_path, monkeypatch):
    """All that was paid for was thrown away, for the want of six more questions."""
    monkeypatch.setattr("raisf.commands.calibrating.CalibrationChoice.check_confidence", lambda *_: None)
    monkeypatch.setattr("raisf.optimize.confidence.LEAST", 6)
    monkeypatch.setattr("raisf.optimize.confidence.results", lambda *_, **__: [])
    assert cli.main([*argv, "--lm", "pocket", "--calibrate-confidence"]) == 1
    told = capsys.readouterr().err
    assert "artifact holds the program as it was compiled, but its confidence is not calibrated" in told
    assert "0 of 6 answers have a confidence, and 6 are needed" in told
    report = json.loads((tmp_path / "artifact/manifest.json").read_text())["compile"]
    assert report["lm_calls"] > 0 and "confidence" not in report
    assert cli.main(["ask", "Who founded Velm?", "--program", str(tmp_path / "artifact")]) == 0


def test_a_failure_after_the_compiling_costs_none_of_it(argv, monkeypatch, tmp_path, capsys):
    """What was found had been forgotten before the artifact was written; its cost is told to be of the rest alone."""
    from raisf.optimize import artifact

    class Full(Exception):
        pass

    def full(*_):
        raise Full

    with monkeypatch.context() as broken, pytest.raises(Full):
        broken.setattr(artifact, "save", full)
        cli.main([*argv, "--lm", "pocket"])
    assert cli.main([*argv, "--lm", "pocket"]) == 0
    report = json.loads((tmp_path / "artifact/manifest.json").read_text())["compile"]
    assert report["resumed"] and not list((tmp_path / "runs/compile").glob("*.jsonl"))
    assert "the rest alone: an earlier run had made a part of it" in capsys.readouterr().out
    assert last_go_line({"a": report, "b": report | {"resumed": False}}).endswith("is counted: a.")
    opened = open_program(str(tmp_path / "artifact"), max_calls=3)
    assert opened.max_calls == 3 and opened.compile_report == report


@pytest.mark.slow
def test_both_ways_in_turn_show_each_step_and_which_was_kept(argv, capsys, tmp_path):
    options = ["--how", "both", "--sequence", "p -> w", "--rows", "8", "--epochs", "1", "--rank", "2", "--lm", "pocket"]
    assert cli.main([*argv, *options]) == 0
    shown = capsys.readouterr()
    assert "selected:" in shown.out and "trained weights" in shown.out and "against as given" in shown.out
    assert "BETTERTOGETHER" not in shown.err
    report = json.loads((tmp_path / "artifact/manifest.json").read_text())["compile"]
    assert report["how"] == "both" and [step["name"] for step in report["steps"]] == ["p", "p -> w"]


@pytest.mark.slow
def test_outcomes_are_shown_by_judge(argv, capsys, tmp_path):
    options = ["--how", "outcome", "--by", "prompts", "--rows", "8", "--call-price", "0.02", "--lm", "pocket"]
    assert cli.main([*argv, *options]) == 0
    shown = capsys.readouterr().out
    assert "verdicts tried on 16 questions" in shown and "selected:" in shown
    report = json.loads((tmp_path / "artifact/manifest.json").read_text())["compile"]
    assert report["outcomes"]["call_price"] == 0.02 and report["by"] == "prompts"


def test_splits_that_overlap_are_refused(argv, home, capsys):
    argv[argv.index("--dev") + 1] = str(home / "world/train.jsonl")
    assert cli.main(argv) == 2
    shown = capsys.readouterr().err
    assert "30 of the 30 training questions are in the validation split too" in shown


@pytest.mark.slow
def test_every_candidate_is_shown_beside_the_first(argv, capsys, tmp_path):
    assert cli.main([*argv, "--strategy", "mipro", "--trials", "3", "--candidates", "2", "--k", "2"]) == 0
    shown = capsys.readouterr().out
    assert "against zero-shot" in shown and "n=6" in shown
    report = json.loads((tmp_path / "artifact/manifest.json").read_text())["compile"]
    assert all(candidate["name"] in shown for candidate in report["candidates"])
    assert not list((tmp_path / "runs/compile").glob("*.jsonl"))


@pytest.mark.slow
def test_skr_knn_is_compiled_like_any_other_program(argv, capsys, tmp_path):
    assert cli.main([*argv, "--program", "skr-knn"]) == 0
    cases = json.loads((tmp_path / "artifact/manifest.json").read_text())["options"]["cases"]
    assert cases and {type(case["helped"]) for case in cases} == {bool}
    assert cli.main(["ask", "Who?", "--program", str(tmp_path / "artifact")]) == 0
