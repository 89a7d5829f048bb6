"""What is asked of a training in vain is told before it costs anything."""

from pathlib import Path
from typing import Any

import pytest

from raisf import cli


def test_a_folder_that_cannot_be_replaced_is_told_before_an_index_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It ended in a traceback."""
    monkeypatch.chdir(tmp_path)
    files = ["--train", "t.jsonl", "--dev", "d.jsonl", "--index", "i"]
    assert cli.main(["dense", "tune", *files, "--out", ".", "--lm", "pocket-tiny"]) == 2
    assert "give a folder in it" in capsys.readouterr().err


def test_names_are_one_at_least(capsys: Any) -> None:
    """The error ended at its colon."""
    argv = ["compile", "--train-predictors", ",", "--how", "weights", "--train", "t", "--dev", "d", "--out", "o"]
    assert cli.main(argv) == 2
    assert "expected names, with commas between them; found ','" in capsys.readouterr().err


def test_only_a_pocket_model_is_reported_on(tmp_path: Path, capsys: Any) -> None:
    """Any folder with a manifest was called damaged."""
    for content in ("{}", "[1]"):
        (tmp_path / "manifest.json").write_text(content)
        assert cli.main(["pocket", "report", "--weights", str(tmp_path)]) == 2
        assert "holds no pocket model: give pocket" in capsys.readouterr().err


def test_facts_of_a_checkpoint_are_an_object(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "facts.json").write_text("[1]")
    argv = ["colbert", "delta", "minilm", "--facts", str(tmp_path / "facts.json"), "--out", str(tmp_path / "d")]
    assert cli.main(argv) == 2
    assert "facts.json holds no JSON object" in capsys.readouterr().err


def test_a_command_to_go_on_with_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    none = ["--train", "0", "--dev", "0", "--test", "1"]
    assert cli.main(["world", *none, "--entities", "300", "--out", "a world"]) == 0
    assert "next: raisf index 'a world/corpus.jsonl' --out 'indexes/a world'" in capsys.readouterr().out
