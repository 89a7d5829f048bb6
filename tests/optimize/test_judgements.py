"""If these failed, the figures of a judge would be those of other questions, other labels or another program."""

from dataclasses import replace
from typing import Any

import dspy
import pytest
from dspy.lm15 import Message, Request, Response, Usage

import raisf
from raisf.lm.adapter import CompactAdapter
from raisf.optimize.judges.answer_likelihood import baselines
from raisf.optimize.judges.judgements import (
    Judged,
    Judgements,
    decomposition_report,
    decompositions_of,
    judgements_of,
)
from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError, LMError
from raisf.utils.journal import Journal
from tests.scripted import ScriptedLM


def asked(program: RAISF, judge: Any, examples: list[dspy.Example], **options: Any) -> Any:
    return judgements_of(program, judge, examples, progress=False, **options)


def test_a_judge_is_compared_with_gold_and_without_probabilities_nothing_is_said_of_them(program: RAISF, world) -> None:
    program.relevant.lm = ScriptedLM(lambda fields: {"verdict": "relevant"})
    judged = asked(program, "relevance", world.test)
    report = judged.report()
    share = sum(row.gold for row in judged.rows) / len(judged.rows)
    assert 0 < share < 1 and report.scores["recall"].value == 1
    assert report.scores["accuracy"].value == report.scores["precision"].value == share
    assert report.scores["accuracy"].n == len(judged.rows) > len(world.test)
    assert not {"auroc", "ece"} & report.scores.keys() and not report.bins and not judged.scored


def test_risk_is_told_of_what_is_known_alone() -> None:
    rows = [Judged(f"{n}?", None, n % 2 == 0, True, 0.5 + n / 10) for n in range(4)]
    of_know, of_passages = Judgements(rows).report(), Judgements([replace(row, passage="P") for row in rows]).report()
    assert "aurc" in of_know.scores and of_know.risk is not None
    assert "auroc" in of_passages.scores and "aurc" not in of_passages.scores and of_passages.risk is None


def test_judges_within_a_module_of_ones_own_keep_their_thresholds_and_their_passages(program: RAISF, world) -> None:
    class Mine(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = program

    program.relevant.lm, program.relevance_threshold = raisf.connect("pocket"), 1.0
    inside, alone = (asked(of, "relevance", world.test) for of in (Mine(), program))
    assert inside.rows == alone.rows and not any(row.said for row in inside.scored)
    assert any(row.probability >= 0.5 for row in inside.scored)


def test_rows_come_in_the_order_of_the_questions_however_fast_they_are(program: RAISF, world) -> None:
    first, second = (asked(program, "know", world.test, threads=threads) for threads in (1, 8))
    assert first.rows == second.rows
    assert first.rows[0].question == world.test[0].question


def test_what_cannot_be_read_is_counted_and_is_no_evidence_of_the_judge(program: RAISF, world) -> None:
    program.know.lm = ScriptedLM(lambda fields: "mumble")
    judged = asked(program, "know", world.test)
    assert all(not row.said and not row.readable for row in judged.rows)
    assert judged.unreadable == len(judged.rows) and not judged.report().scores
    gold = {row.question: "know" if row.gold else "unknown" for row in judged.rows}
    mute = {row.question for row in judged.rows[::3]}
    program.know.lm = ScriptedLM(
        lambda fields: "mumble" if fields["question"] in mute else {"verdict": gold[fields["question"]]}
    )
    judged = asked(program, "know", world.test)
    accuracy = judged.report().scores["accuracy"]
    assert judged.unreadable == len(mute) and (accuracy.value, accuracy.n) == (1.0, len(judged.rows) - len(mute))


def test_a_call_that_fails_is_left_out_and_counted_and_a_dead_endpoint_is_an_error(program: RAISF, world) -> None:
    def sometimes(fields: dict[str, Any]) -> dict[str, Any]:
        if fields["question"] == world.test[0].question:
            raise LMError("busy")
        return {"verdict": "know"}

    program.know.lm = ScriptedLM(sometimes)
    judged = asked(program, "know", world.test)
    assert judged.errors == 1
    assert world.test[0].question not in {row.question for row in judged.rows}

    def never(fields: dict[str, Any]) -> str:
        raise LMError("cannot be reached")

    program.know.lm = ScriptedLM(never)
    with pytest.raises(LMError, match="cannot be reached"):
        asked(program, "know", world.test)


def test_a_list_s_judge_is_measured_passage_by_passage(world, oracle) -> None:
    program = RAISF(BM25.load(world.index), k=3, relevance="listwise")
    lm = oracle()
    program.set_lm(lm)
    program.relevant.lm = ScriptedLM(lambda fields: {"relevant_ids": [1]})
    judged = asked(program, "relevance", world.test)
    assert len(judged.rows) == 3 * len({row.question for row in judged.rows})
    assert [row.said for row in judged.rows] == [True, False, False] * (len(judged.rows) // 3)


def test_decompositions_are_compared_with_gold(program: RAISF, world) -> None:
    rows, errors = decompositions_of(program, world.test, progress=False)
    assert errors == 0 and rows
    assert {name: score.value for name, score in decomposition_report(rows).scores.items()} == {
        "exact_match": 1,
        "right_number": 1,
        "token_f1": 1,
    }
    program.decompose.lm = ScriptedLM(lambda fields: {"sub_questions": [fields["question"]]})
    rows, _ = decompositions_of(program, world.test, progress=False)
    report = decomposition_report(rows)
    assert report.scores["exact_match"].value == report.scores["right_number"].value == 0
    assert 0 < report.scores["token_f1"].value < 1


def test_what_one_judge_said_of_a_question_is_not_taken_for_what_another_says(program: RAISF, world, tmp_path) -> None:
    alone = decompositions_of(program, world.test, progress=False)
    journal = Journal(tmp_path / "journal.jsonl")
    judgements_of(program, "know", world.test, progress=False, journal=journal)
    assert decompositions_of(program, world.test, progress=False, journal=journal) == alone


def test_what_cannot_be_measured_says_what_to_do(program: RAISF, world, oracle) -> None:
    rag = RAG(BM25.load(world.index))
    rag.set_lm(oracle())
    with pytest.raises(InputError, match="rag has no predictor of SelfKnowledge: take a program that has"):
        asked(rag, "know", world.test)  # type: ignore[arg-type]
    bare = [dspy.Example(question="Q?", answer="A")]
    with pytest.raises(InputError, match="gold_pids"):
        asked(program, "relevance", bare)
    with pytest.raises(InputError, match="sub_questions"):
        decompositions_of(program, bare, progress=False)
    program.retriever = None
    with pytest.raises(InputError, match="--index"):
        asked(program, "relevance", world.test)
    with pytest.raises(InputError, match="scripted/lm gives no log-probability"):
        baselines(program, ["Q?"], [True], progress=False)


class Sure(ScriptedLM):
    """A local LM as far as the baseline is concerned: the longer its answer, the less likely."""

    def __init__(self) -> None:
        super().__init__(lambda fields: "")
        self.adapter = CompactAdapter()
        self.engine.complete = self._complete  # type: ignore[union-attr]

    def _complete(self, request: Request) -> Response:
        text = "yes" if "known" in (request.messages[-1].text or "") else "a long guess"
        return Response(None, request.model, Message.assistant(text), "stop", Usage(1, 1))

    def logprob(self, prompt: str, completion: str) -> tuple[float, int]:
        assert prompt.endswith("answer:") and completion.startswith(" ")
        return -float(len(completion)), len(completion)


def test_the_baseline_s_threshold_comes_from_the_training_questions_alone(program: RAISF) -> None:
    lm = Sure()
    program.answer_directly.lm = lm
    trainset = [dspy.Example(question=f"{'known' if i % 2 else 'new'} {i}?", answer="yes") for i in range(6)]
    questions, gold = ["known a?", "new b?", "known c?"], [True, False, False]
    found = baselines(program, questions, gold, trainset, progress=False)
    for baseline in found.values():
        assert baseline.fitted_on == 6 and baseline.threshold is not None
        assert baseline.report.scores["auroc"].n == 3 and "ece" not in baseline.report.scores
    assert found["sum"].report.scores["accuracy"].value == pytest.approx(2 / 3)
    assert found["sum"].report.scores["auroc"].value == pytest.approx(0.75)
    assert baselines(program, questions, gold, progress=False)["sum"].threshold is None
    with pytest.raises(InputError, match="all 3 training questions are known"):
        baselines(program, questions, gold, trainset[1::2], progress=False)
