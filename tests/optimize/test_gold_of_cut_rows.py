"""A row that is too long for a passage is cut, and what gold calls by the row's id is still found."""

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.data.questions import load_questions
from raisf.evaluation.runner import evaluate
from raisf.optimize.judges.judge_data import relevance_examples
from raisf.programs.baselines.rag import RAG
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import called_by, row_of
from raisf.retrieval.training.triples import question_triples
from tests.scripted import ScriptedLM

ASKED = dspy.Example(
    id="q",
    question="By which river does the town of Oss7 lie?",
    answer="Elm7",
    answers=["Elm7"],
    gold_pids=["oss"],
    gold_titles=[],
).with_inputs("question")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("cut")
    told = {
        name: " ".join(f"The town of {name.title()}{n} lies by the river {river}{n}." for n in range(60))
        for name, river in (("oss", "Elm"), ("velm", "Yar"))
    }
    rows = [{"id": name, "title": name.title(), "text": text} for name, text in told.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = build_index(folder / "corpus.jsonl", folder / "index", "bm25", progress=False)
    assert {row_of(passage.pid) for passage in made.passages} == {"oss", "velm"} and len(made.passages) > 6
    return made


def test_the_part_with_the_answer_is_relevant(index: Any) -> None:
    """All of them were irrelevant, and the judge learnt to pass over what answers."""
    rows = relevance_examples([ASKED], index, 5)
    (relevant,) = [row.passage for row in rows if row.verdict == "relevant"]
    assert "river Elm7." in relevant and len(rows) == 5


def test_recall_knows_it(index: Any, tmp_path: Path) -> None:
    """It was 0, whatever was found."""
    program = RAG(index, k=1)
    program.set_lm(ScriptedLM(lambda fields: {"answer": "Elm7"}))
    report = evaluate(program, [ASKED], tmp_path / "records.jsonl", progress=False)
    assert report.recall is not None and report.precision is not None
    assert (report.recall.value, report.precision.value) == (1.0, 1.0)


def test_a_retriever_learns_it(index: Any) -> None:
    (triple,) = question_triples([ASKED], index, progress=False)
    assert "river Elm7." in triple.positive
    assert all(text.startswith("Velm | ") for text in triple.negatives)


def test_a_title_is_met_however_it_is_spaced(tmp_path: Path) -> None:
    """An index has titles with single spaces, and gold with others met none of them."""
    (tmp_path / "corpus.jsonl").write_text('{"title": " Oss  Town", "text": "Oss lies by the Elm."}\n')
    (tmp_path / "q.jsonl").write_text(json.dumps({**ASKED, "gold_pids": [], "gold_titles": ["Oss\u00a0Town "]}))
    index = build_index(tmp_path / "corpus.jsonl", tmp_path / "index", "bm25", progress=False)
    (row,) = relevance_examples(load_questions(tmp_path / "q.jsonl"), index, 5)
    assert row.verdict == "relevant"


def test_what_gold_calls_by_its_own_id_is_that_alone() -> None:
    assert called_by(["p1"], "p1#2") == "p1" and called_by(["a.pdf#3"], "a.pdf#3#1") == "a.pdf#3"
    assert called_by(["p1#2", "p1"], "p1#2") == "p1#2", "a part that gold names itself"
    assert called_by(["p1"], "p2#1") == "p2#1" and called_by(["C"], "C#") == "C#" and row_of("C#x") == "C#x"
