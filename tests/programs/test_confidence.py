"""If these failed, answers would be kept back that are sure, or given that are not, and nobody would be told why."""

import math
from typing import Any

import dspy
import pytest

import raisf
from raisf.evaluation.confidence import of_record
from raisf.evaluation.report import summarise
from raisf.evaluation.runner import evaluate
from raisf.programs.calls import Run
from raisf.programs.confidence import Confidence
from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import JudgedPassage, Judgement, Node
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

QUESTION = "Who founded Velm?"


def memory(**options: Any) -> RAISF:
    made = RAISF(use_relevance=False, use_decomposition=False, **options)
    made.set_lm(raisf.connect("pocket"))
    return made


def known(probability: float, **given: Any) -> Node:
    node = Node(question="q", know=Judgement(verdict="know", probability=probability), **given)
    return node.end("direct", "from memory", "Rome")


def read(*probabilities: float, **given: Any) -> Node:
    passages = [
        JudgedPassage(pid=f"p{place}", title="", text="", judgement=Judgement(verdict="relevant", probability=one))
        for place, one in enumerate(probabilities)
    ]
    return Node(question="q", passages=passages, **given).end("passages", "from passages", "Rome")


def test_an_answer_that_is_not_sure_enough_is_kept_back_and_the_reason_tells_it() -> None:
    plain = memory()(question=QUESTION).trace.root
    assert plain.confidence and plain.answer != "unknown"
    kept = memory(min_confidence=plain.confidence + 0.01)(question=QUESTION)
    assert (kept.answer, kept.trace.root.route) == ("unknown", "withheld")
    assert repr(plain.answer) in kept.trace.root.reason and f"{plain.confidence:.2f}" in kept.trace.root.reason
    assert memory(min_confidence=plain.confidence - 0.01)(question=QUESTION).answer == plain.answer


def test_a_confidence_that_nobody_knows_keeps_nothing_back(ask: Any, scripted: Any, plan: Any, shelf: Any) -> None:
    trace = ask(RAISF(shelf, min_confidence=0.9), scripted(root=plan(know=True)))
    assert trace.root.answer == "A(root)" and trace.root.confidence is None


def test_a_judgement_that_failed_does_not_make_an_error_of_what_is_kept_back(ask: Any, shelf: Any) -> None:
    class Scoring(dspy.ChatAdapter):
        def _call_postprocess(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
            values = super()._call_postprocess(*args, **kwargs)
            sure = {"probabilities": {"relevant": 0.6, "irrelevant": 0.4}}
            return [{**value, **sure} if value.get("verdict") == "relevant" else value for value in values]

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("passage", "").endswith("2"):
            raise dspy.LMServerError("busy")
        verdict = "relevant" if "passage" in fields else "unknown"
        return {"verdict": verdict, "evidence": "passage 1", "answer": "passage 1"}

    lm = ScriptedLM(answer)
    lm.adapter = Scoring(use_json_adapter_fallback=False)
    trace = ask(RAISF(shelf, k=2, min_confidence=0.9), lm)
    assert (trace.root.route, trace.failed) == ("withheld", 1)


def test_only_the_question_that_was_asked_is_kept_back() -> None:
    for depth, answer in ((0, "unknown"), (1, "Rome")):
        run = Run(None, None, None)
        run.confidence = Confidence(least=0.9)
        with run.work(Node(question="q", depth=depth)) as node:
            node.know = Judgement(verdict="know", probability=0.8)
            node.end("direct", "from memory", "Rome")
        assert node.answer == answer


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ({"grounded": True, "cited": "p1"}, 0.6),
        ({"grounded": True, "cited": "p9"}, 0.9),  # nobody judged it
        ({"cited": "p1"}, 0.9),  # yes or no: that passage is but the nearest to the question
    ],
)
def test_the_passage_that_holds_the_answer_counts_and_not_the_surest(where: dict[str, Any], wanted: float) -> None:
    node = read(0.9, 0.6, 0.3, **where)
    record = {"trace": {"root": node.model_dump(mode="json")}}
    assert node.confidence == of_record(record) == wanted


def test_the_path_s_confidence_is_the_product_of_what_is_on_it() -> None:
    def path(node: Node) -> float | None:
        Confidence("path").conclude(node)
        return node.confidence

    assert path(known(0.8, likelihood=0.5)) == pytest.approx(0.4)
    assert path(read(0.9, 0.6, likelihood=0.5)) == pytest.approx(0.45)
    assert path(read(0.9, grounded=False, likelihood=0.5)) == 0
    assert path(Node(question="q").end("passages", "read", "Rome")) is None
    below = [known(0.8, likelihood=0.5), read(0.9, likelihood=0.5), Node(question="r").end("depth", "deep")]
    made = Node(question="q", sub_questions=below, likelihood=0.5).end("decomposed", "from 2", "Rome")
    assert path(made) == pytest.approx(0.4 * 0.45 * 0.5)
    twice = Node(question="q", sub_questions=[*below, *below], likelihood=0.5).end("decomposed", "from 4", "Rome")
    assert path(twice) == path(made), "who lists a sub-question twice asks it once"
    judged = Node(question="q", sub_questions=below).end("decomposed", "from 2", "Rome")
    assert judged.confidence == 0.8  # as it always was


def test_a_sub_question_that_was_answered_before_takes_nothing_from_the_confidence() -> None:
    again = Node(question="q").end("duplicate", "as above", "Rome")
    assert Node(question="Q", sub_questions=[read(0.8), again]).end("decomposed", "", "Rome").confidence == 0.8


@pytest.mark.parametrize("source", ["judges", "path"])
def test_an_answer_composed_of_nothing_that_was_found_has_no_support(source: Any) -> None:
    """The judges were sure on the way; the guess at its end must not pass for one whose confidence nobody knows."""
    lost = [Node(question="r").end("depth", "deep"), Node(question="s").end("reference", "no answer for #1")]
    made = Node(question="q", sub_questions=lost, likelihood=0.9).end("decomposed", "from 0 of 2", "Rome")
    beside = read(0.8, likelihood=0.5, sub_questions=lost).end("decomposed", "from 0 of 2", "Rome")
    for node, wanted in ((made, 0.0), (beside, 0.8 * (0.5 if source == "path" else 1))):
        Confidence(source).conclude(node)
        assert node.confidence == pytest.approx(wanted)
    Confidence(source, least=0.1).conclude(made)
    assert (made.answer, made.route) == ("unknown", "withheld")


def test_the_reader_is_asked_for_its_own_probability_with_no_further_call() -> None:
    for kind in ("verbal", "confidence", "consistency", "truth"):
        options = {"know": kind, "know_threshold": 0.0}
        plain, path = (memory(**options, confidence=of)(question=QUESTION).trace for of in ("judges", "path"))
        assert plain.cost.lm_calls == path.cost.lm_calls and plain.root.answer == path.root.answer
        assert "likelihood" not in plain.root.model_dump() and plain.root.know and path.root.know
        wanted = plain.root.know.probability
        if kind != "confidence":  # that is the likelihood already
            wanted *= path.root.likelihood
        assert path.root.confidence == pytest.approx(wanted, abs=1e-5)


def test_scaling_keeps_the_order_and_0_and_1_stay_finite() -> None:
    told = [Confidence(slope=0.5, offset=-1.0).scaled(one) for one in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert told == sorted(told) and all(0 < one < 1 for one in told) and told[2] == pytest.approx(1 / (1 + math.e))
    steep = Confidence(slope=200.0)  # what a fit to answers of nearly equal confidence gives; must not end the question
    assert steep.scaled(0.01) == pytest.approx(0.0) and steep.scaled(0.99) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("option", "value"), [("confidence", "guess"), ("confidence_slope", 0.0), ("min_confidence", 1.5)]
)
def test_an_option_that_cannot_be_used_is_named(option: str, value: Any) -> None:
    with pytest.raises(InputError, match=option):
        RAISF(**{option: value})


def test_a_report_tells_risk_and_coverage_of_any_record_with_probabilities(tmp_path: Any) -> None:
    questions = [f"Who founded {name}?" for name in ("Velm", "Oss", "Belrin", "Kastrel", "Ulm", "Oran")]
    made = memory()
    said = {question: made(question=question) for question in questions}
    examples = [
        dspy.Example(question=question, answer=said[question].answer if number % 2 else "nobody")
        for number, question in enumerate(questions)
    ]
    report = evaluate(made, examples, tmp_path / "records.jsonl", progress=False)
    assert report.risk and report.risk.right[1.0] == pytest.approx(report.em.value)
    assert "risk" in report.as_dict()
    from raisf.utils.files import read_jsonl

    records = list(read_jsonl(tmp_path / "records.jsonl"))
    for record in records:
        assert of_record(record) == pytest.approx(said[record["question"]].trace.root.confidence)
        assert not {"likelihood", "computed_confidence"} & record["trace"]["root"].keys()
    assert summarise([{**record, "trace": None} for record in records]).risk is None
