"""If these failed, the program that came first would seem slow: a model is read at its first call."""

import time
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.evaluation import cluster
from raisf.evaluation.records import read_records
from raisf.evaluation.report import Report, summarise
from raisf.evaluation.runner import evaluate
from raisf.lm.local import engine
from raisf.lm.local.model import LocalLM
from raisf.programs.baselines import skr
from raisf.programs.baselines.rag import RAG
from raisf.reports import plots
from raisf.reports.report import cost_section
from raisf.retrieval.engines import dense
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage

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


@pytest.mark.slow
def test_nor_on_a_node_of_a_cluster(slow: Asks) -> None:
    rows = [(at, example.question) for at, example in enumerate(ASKED)]
    found, error = cluster.answer(cluster.Work(slow, {}, None), rows, threads=3)
    assert error is None and len(found) == len(ASKED)
    assert all(failure is None and seconds < READING for _, _, failure, seconds, _ in found)


@pytest.mark.slow
def test_nor_for_the_model_by_which_skr_compares_questions(
    makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = dense.find_model
    monkeypatch.setattr(dense, "find_model", lambda name: time.sleep(READING) or found(name))
    skr._encoder.cache_clear()
    skr._case_vectors.cache_clear()
    cases: list[skr.Case] = [{"question": f"Is {number} even?", "helped": bool(number % 2)} for number in range(4)]
    program = skr.SKR(lambda query, k: [Passage("p", "One is 1.")], cases=cases)
    makers.make_llama(tmp_path / "llama")
    program.set_lm(LocalLM(f"local/{tmp_path / 'llama'}", max_tokens=2, cache=False))
    start = time.perf_counter()
    report = evaluate(program, ASKED, progress=False)
    assert report.errors == 0 and report.cost["seconds"] < READING < time.perf_counter() - start


@pytest.mark.parametrize("where", [None, "length > 0"])
def test_what_one_program_has_searched_for_is_searched_for_again_by_the_next(
    makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str | None
) -> None:
    passages = [Passage(str(number), f"{number} is a number.", metadata={"length": 1}) for number in range(3)]
    index = build_index(passages, tmp_path / "index", progress=False)
    searches, encoded = [], []
    search, query = index._searchers[0].search, index._encoder._checkpoint.query
    monkeypatch.setattr(index._searchers[0], "search", lambda q, *rest: searches.extend(q) or search(q, *rest))
    monkeypatch.setattr(
        index._encoder._checkpoint, "query", lambda *a, **o: encoded.append(len(a[0])) or query(*a, **o)
    )
    makers.make_llama(tmp_path / "llama")
    lm = LocalLM(f"local/{tmp_path / 'llama'}", max_tokens=2, cache=False)
    for k in (2, 2):
        program = RAG(index if where is None else index.where(where), k=k)
        program.set_lm(lm)
        evaluate(program, ASKED, progress=False)
    assert len(searches) == sum(encoded) == 2 * len(ASKED)


class Answers(dspy.Module):
    """A program that asks nobody."""

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Prediction(answer=question)


def test_how_many_questions_were_asked_at_a_time_is_told_with_their_seconds(tmp_path: Path) -> None:
    """A question's seconds were told bare: with 32 at a time they are some fifteen times those of one by itself."""
    report = evaluate(Answers(), ASKED, tmp_path / "r.jsonl", threads=2, progress=False)
    assert report.as_dict()["threads"] == [2] and "seconds: from asking to answer, 2 questions at a" in caption(report)
    shown = evaluate(Answers(), ASKED, tmp_path / "r.jsonl", threads=8, progress=False)
    assert shown.threads == (2,), "nothing was asked again"
    records = list(read_records(tmp_path / "r.jsonl", ""))
    alone = [record | {"id": f"alone {record['id']}", "threads": 1} for record in records]
    assert "1 or 2 questions at a time" in cost_section({"both": summarise(records + alone)}).text
    assert "1 question at a time" in cost_section({"alone": summarise(alone)}).text
    (_, seconds) = plots.accuracy_against_cost({"a": report, "b": summarise(alone)})
    assert seconds.axes[0].get_xlabel() == "seconds from asking to answer, 1 or 2 questions at a time"
    seconds.draw_without_rendering()
    assert seconds.axes[0].xaxis.label.get_window_extent().x1 <= seconds.bbox.width
    mixed = [{name: value for name, value in record.items() if name != "threads"} for record in records]
    assert "waiting for other questions included" in caption(summarise([*mixed[:1], *records[1:]]))
    assert "waiting for other questions included" in cost_section({"a": report, "b": summarise(mixed)}).text
    older = summarise({name: value for name, value in one.items() if name != "threads"} for one in records)
    assert "waiting for other questions included" in caption(older)


def caption(report: Report) -> str:
    return str(report.table().caption)
