"""Prompts that are too long cost their questions. Who went on asked such alone, ten in a row, and was always ended."""

from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.lm15 import AuthError, ContextLengthError, InvalidRequestError, UnsupportedModelError

from raisf.evaluation.runner import evaluate
from raisf.optimize.judges.collect import collect
from raisf.optimize.runs import results
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import LMError
from raisf.utils.journal import Journal
from tests.evaluation.test_cluster import Ray, over
from tests.optimize.test_calibrate import calibrated, of_its_own, questions, scoring, timid
from tests.scripted import ScriptedLM
from tests.shelf import Shelf

TOO_LONG = ContextLengthError("5000 tokens are too many")


def number_in(question: str) -> int:
    return int(question.split()[1])


def refusing(error: Exception, every: int = 3) -> RAISF:
    """Knows every other question; each third (or as many) its LM refuses."""

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        number = number_in(fields["question"])
        if number % every == 0:
            raise error
        return {"verdict": "know", "answer": f"right {number}" if number % 2 else "wrong"}

    program = RAISF(use_relevance=False, use_decomposition=False)
    program.set_lm(ScriptedLM(answer))
    return program


def test_an_evaluation_goes_on_to_its_end(tmp_path: Path) -> None:
    program, asked = refusing(TOO_LONG), questions(36)
    for _ in range(2):
        report = evaluate(program, asked, tmp_path / "r.jsonl", progress=False)
        assert (report.errors, report.em.value) == (12, pytest.approx(1 / 3))


def test_so_does_one_of_any_module_and_on_a_cluster(tmp_path: Path) -> None:
    class Plain(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            if number_in(question) % 3 == 0:
                raise dspy.ContextWindowExceededError(message="5000 tokens are too many")
            return dspy.Prediction(answer="")

    for nodes in (0, 2):
        for _ in range(2):
            with over(Ray(nodes, {})) if nodes else dspy.context():
                out = tmp_path / f"{nodes}.jsonl"
                assert evaluate(Plain(), questions(36), out, progress=False, threads=1).errors == 12


def test_a_collection_and_a_compilation_go_on_to_their_end(tmp_path: Path) -> None:
    program, asked = refusing(TOO_LONG), questions(36)
    for _ in range(2):
        assert collect(program, asked, tmp_path / "rows", progress=False)["unfinished"] == 12
    journal = Journal(tmp_path / "compilation.jsonl")
    for _ in range(2):
        assert results(program, asked, lambda *_: 1.0, threads=2, journal=journal).count(None) == 12


@pytest.mark.parametrize(
    "error",
    [AuthError("no", status=401), UnsupportedModelError("no", status=400), InvalidRequestError("no", status=400)],
)
def test_an_endpoint_that_takes_no_prompt_at_all_ends_a_run(error: Exception) -> None:
    with pytest.raises(LMError, match="10 questions in a row"):
        evaluate(refusing(error, every=1), questions(36), progress=False)


def test_questions_that_fail_each_time_for_whatever_reason_end_no_calibration() -> None:
    def failing(fields: dict[str, Any]) -> dict[str, Any]:
        if number_in(fields["question"]) % 3 == 0:
            raise LMError("the server's fault")
        return timid(fields)

    program = RAISF(Shelf(of_its_own), k=1, use_know=False, use_decomposition=False)
    program.set_lm(scoring(failing))
    assert calibrated(program, n=30, threads=1, aim="answer")[1]["failed"] == 10
