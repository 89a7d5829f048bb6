"""Gold of another corpus: recall was 0, and every passage was taught as irrelevant, without a word."""

import logging
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.evaluation.gold import outside
from raisf.evaluation.runner import evaluate
from raisf.optimize.judges.collect import collect
from raisf.optimize.judges.judge_data import relevance_examples
from raisf.optimize.remembering import remembering
from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from tests.optimize.test_calibrate import calibrated, scoring
from tests.scripted import ScriptedLM
from tests.shelf import Shelf


@pytest.fixture
def index(tmp_path: Path) -> Any:
    name = tmp_path.name  # another corpus for each test
    texts = {f"p{n}": f"The town {town} of {name} lies by the Elm." for n, town in enumerate(("Oss", "Velm", "Ulm"))}
    passages = [Passage(pid, text, text.split()[2]) for pid, text in texts.items()]
    return build_index(passages, tmp_path / "index", "bm25", progress=False)


def asked(number: int, **gold: Any) -> dspy.Example:
    fields: dict[str, Any] = {"id": str(number), "question": f"By what lies Oss, for the {number}th time?"}
    return dspy.Example(**fields, answer="Elm", **gold).with_inputs("question")


OF_HERE = [asked(1, gold_pids=["p0"]), asked(2, gold_titles=["Velm"]), asked(3, gold_pids=[""]), asked(4)]
OF_ELSEWHERE = [asked(5, gold_pids=["doc-7"]), asked(6, gold_titles=["Bergen", "Oslo"])]


def test_an_evaluation_says_it_once(index: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    programs = [RAG(index, k=k) for k in (1, 2)]
    with caplog.at_level(logging.WARNING):
        for number, program in enumerate(programs):
            program.set_lm(ScriptedLM(lambda fields: {"answer": "Elm"}))
            evaluate(program, [*OF_HERE, *OF_ELSEWHERE], tmp_path / f"{number}.jsonl", progress=False)
    (told,) = [record.getMessage() for record in caplog.records if "nowhere in the index" in record.getMessage()]
    assert told.startswith("of 4 questions that name gold passages, those of 2 are nowhere in the index, such as 'doc-")
    assert "recall is 0" in told and "in gold_pids what its passages are called, such as 'p0'" in told
    caplog.clear()
    evaluate(programs[0], OF_HERE, progress=False)
    assert not caplog.records


def test_its_passages_are_not_taught(index: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chunks = [asked(n, gold_pids=[f"doc-{n}"]) for n in range(100, 160)]  # more than are labelled at a time
    program = RAISF(index, k=3)
    program.set_lm(ScriptedLM(lambda fields: {"answer": "Elm"}))
    with caplog.at_level(logging.WARNING):
        found = collect(program, [*OF_HERE, *OF_ELSEWHERE, *chunks], tmp_path / "rows", threads=2, progress=False)
    (told,) = [record.getMessage() for record in caplog.records if "nowhere in the index" in record.getMessage()]
    assert "those of 62 " in told and "learn nothing of passages from them" in told
    assert found["rows"]["relevance"] == {"irrelevant": 7, "relevant": 2}
    assert not relevance_examples(OF_ELSEWHERE, index, 3)


def test_what_is_asked_in_the_same_words_of_gold_that_is_there_is_taught(index: Any) -> None:
    of_here = relevance_examples(OF_HERE[:1], index, 3)
    assert relevance_examples([asked(1, gold_pids=["doc-7"]), *OF_HERE[:1]], index, 3) == of_here != []


def test_no_threshold_is_fitted_on_them(index: Any) -> None:
    """What is tried again and again searches a copy that remembers, and that did not tell what it holds."""

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        return {"verdict": "relevant", "probability": "0.8"} if "passage" in fields else {"answer": "Elm"}

    program = RAISF(index, k=3, use_know=False, use_decomposition=False)
    program.set_lm(scoring(answer))
    _, report = calibrated(program, valset=[*OF_HERE, *OF_ELSEWHERE])
    assert report["judges"]["relevance"]["before"]["scores"]["accuracy"]["n"] == 9


def test_who_cannot_tell_is_not_asked(index: Any) -> None:
    wanted = [("Who?", ["doc-7"], True)]
    assert outside(index, wanted) == wanted and outside(index.where("id = 'p0'"), wanted) == wanted
    for bare in (lambda query, k: [], remembering(RAISF(Shelf(lambda query: []))).retriever):
        assert not outside(bare, wanted) and not hasattr(bare, "passages")
