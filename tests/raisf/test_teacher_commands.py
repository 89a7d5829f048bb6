"""`--teacher` and `--rows-from` on the command line, with the pocket Llama as its own teacher."""

import json

import pytest

from raisf import cli


@pytest.fixture
def home(make_home, tmp_path, monkeypatch):
    """A small world with its index; compiling keeps its work below an empty folder."""
    monkeypatch.chdir(tmp_path)
    return make_home(train=12, dev=6, test=4)


def _files(home, *splits):
    given = [part for split in splits for part in (f"--{split}", str(home / f"world/{split}.jsonl"))]
    return [*given, "--index", str(home / "index")]


def test_collected_rows_show_agreement_and_cost_and_compile_learns_from_them(home, tmp_path, capsys):
    rows = str(tmp_path / "rows")
    assert cli.main(["collect", *_files(home, "train"), "--teacher", "pocket", "--out", rows]) == 0
    shown = capsys.readouterr().out
    assert "agrees with gold" in shown and "kappa" in shown and "teacher: " in shown and "calls" in shown
    argv = [
        "compile",
        *_files(home, "train", "dev"),
        "--rows-from",
        rows,
        "--out",
        str(tmp_path / "artifact"),
        "--json",
    ]
    assert cli.main(argv) == 0
    assert json.loads(capsys.readouterr().out)["judge_rows"]["folders"] == [rows]
    assert cli.main([*argv, "--teacher", "pocket"]) == 2
    assert "leave one out" in capsys.readouterr().err
    assert cli.main(["compile", *_files(home, "train", "dev"), "--rows-from", str(home), "--out", "a"]) == 2
    assert "raisf collect" in capsys.readouterr().err
    told = ["--program", "rag", "--strategy", "bootstrap", "--rows-from", rows, "--out", "a"]
    assert cli.main(["compile", *_files(home, "train", "dev"), *told]) == 2
    assert "RAG has no judges of RA-ISF to teach" in capsys.readouterr().err
    told = ["--how", "weights", "--train-predictors", "answer_from", "--rows-from", rows, "--out", "a"]
    assert cli.main(["compile", *_files(home, "train", "dev"), *told]) == 2, "it learnt from gold, and named the rows"
    assert "the judges' rows say nothing of answer_from" in capsys.readouterr().err


@pytest.mark.slow
def test_what_rows_were_validated_on_is_told_and_whose_knowledge_they_tell(
    make_home, tmp_path, monkeypatch, capsys, caplog
):
    """The figures were "on the dev split", of which the rows had no question; and nobody asked who knows."""
    monkeypatch.chdir(tmp_path)
    home, rows = make_home(train=40, dev=6, test=4), str(tmp_path / "rows")
    assert cli.main(["collect", *_files(home, "train"), "--lm", "pocket", "--out", rows]) == 0
    argv = ["compile", *_files(home, "train", "dev"), "--rows-from", rows, "--how", "probe", "--out", "a"]
    capsys.readouterr()
    assert cli.main([*argv, "--train-predictors", "relevant", "--lm", "pocket"]) == 0
    shown = capsys.readouterr().out
    assert "log loss on 10% of the training questions, as no collected row is of a dev" in " ".join(shown.split())
    assert json.loads((tmp_path / "a/manifest.json").read_text())["compile"]["judge_rows"]["held_out"] == ["relevant"]
    assert "which may know other things" not in caplog.text
    assert cli.main([*argv[:-1], "b", "--train-predictors", "relevant", "--lm", "pocket-tiny"]) == 0
    told = caplog.text
    assert "say what local/pocket#" in told and "knows, and local/pocket-tiny#" in told and "raisf collect --lm" in told


@pytest.mark.slow
def test_compile_asks_a_teacher_and_tells_what_it_cost(home, tmp_path, capsys):
    argv = ["compile", *_files(home, "train", "dev"), "--teacher", "pocket", "--out", str(tmp_path / "artifact")]
    assert cli.main(argv) == 0
    shown = capsys.readouterr().out
    assert "rows of the train split, by teacher: " in shown and "agrees with gold" in shown
    assert cli.main([*argv[:-4], "--teacher-api-base", "http://127.0.0.1:9/v1", "--out", "b"]) == 2
    assert "--teacher-api-base without --teacher" in capsys.readouterr().err
