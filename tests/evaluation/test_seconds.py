"""If these failed, the program that came first would seem slow: a model is read at its first call."""

import time
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.evaluation import cluster
from raisf.evaluation.runner import evaluate
from raisf.lm.local import engine
from raisf.lm.local.model import LocalLM

READING = 1.5
ASKED = [dspy.Example(id=str(number), question=f"What is {number}?", answer="1") for number in range(3)]


class Asks(dspy.Module):
    """A program that takes whatever a model writes."""

    def __init__(self, lm: LocalLM) -> None:
        super().__init__()
        self.ask = dspy.Predict("question -> answer")
        self.set_lm(lm)

    def forward(self, question: str) -> dspy.Prediction:
        assert self.ask.lm is not None
        return dspy.Prediction(answer=self.ask.lm(question)[0])


def slowly_read(makers: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> LocalLM:
    """A model that takes long to read."""
    read = engine.load_model

    def slowly(*given: Any) -> Any:
        time.sleep(READING)
        return read(*given)

    monkeypatch.setattr(engine, "load_model", slowly)
    makers.make_llama(folder / "llama")
    return LocalLM(f"local/{folder / 'llama'}", max_tokens=2, cache=False)


@pytest.fixture
def slow(makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asks:
    """A program whose model takes long to read."""
    return Asks(slowly_read(makers, tmp_path, monkeypatch))


def test_no_question_waits_for_a_model_to_be_read(slow: Asks) -> None:
    start = time.perf_counter()
    report = evaluate(slow, ASKED, progress=False)
    assert report.errors == 0 and report.cost["seconds"] < READING < time.perf_counter() - start


def test_nor_on_a_node_of_a_cluster(slow: Asks) -> None:
    rows = [(at, {"question": example.question}) for at, example in enumerate(ASKED)]
    found, error = cluster.answer(cluster.Work(slow, {}, None), rows, threads=3)
    assert error is None and len(found) == len(ASKED)
    assert all(failure is None and seconds < READING for _, _, failure, seconds, _ in found)
