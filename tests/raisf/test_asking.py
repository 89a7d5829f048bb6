"""If these failed, `raisf ask` would end in a traceback, or as a success, where the LM's outputs cannot be read."""

import sys
from pathlib import Path
from typing import Any

import pytest

from raisf import cli

OWN = """
import dspy

class Own(dspy.Module):
    def __init__(self):
        super().__init__()
        self.ask = dspy.Predict("question -> verdict: bool")

    def forward(self, question):
        return dspy.Prediction(answer=str(self.ask(question=question).verdict))
"""


@pytest.fixture
def mumbling(faulty: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The options of an LM whose replies have no form that can be read."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with faulty.serve(answer=lambda fields: "") as endpoint:
        yield ["--lm", "openai/x", "--api-base", endpoint.url, "--adapter", "compact"]


def test_a_module_whose_lm_cannot_be_read_is_told_in_a_line(
    mumbling: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_asking.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert cli.main(["ask", "Is it?", "--program", "own_asking:Own", *mumbling]) == 1
    told = capsys.readouterr()
    assert "could not be read" in told.err and "--adapter" in told.err and "Traceback" not in told.err


def test_an_answer_of_which_nothing_could_be_read_is_no_success(
    mumbling: list[str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert cli.main(["ask", "Who?", "--program", "direct", *mumbling]) == 1
    assert "unknown" in capsys.readouterr().out
    assert "no output of the LM could be read: try another format" in caplog.text


def test_a_long_question_is_no_path(mumbling: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """The system refuses to look for a file of such a name."""
    assert cli.main(["ask", f"Who, {'of all ' * 100}?", "--program", "direct", *mumbling]) == 1
    assert "no output of the LM could be read" in caplog.text


def test_several_questions_at_once_are_told_to_be_one(caplog: pytest.LogCaptureFixture) -> None:
    cli.main(["ask", "Who founded Velm?\nWhere is it?", "--program", "direct", "--lm", "pocket"])
    assert "these 2 lines are asked as one question; raisf chat < FILE" in caplog.text
