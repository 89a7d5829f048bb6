"""If these failed, a program that judges by drafts could not be measured, calibrated or compiled like any other."""

from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.optimize.demonstrations import collect_rows, judges
from raisf.optimize.judges.judgements import judgements_of
from raisf.optimize.optimizers.calibrate import calibrate
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

KINDS = ("confidence", "consistency", "truth")


def of_kind(know: Any, world: Any, lm: Any, **given: Any) -> RAISF:
    made = RAISF(BM25.load(world.index), k=3, know=know, **given)
    made.set_lm(lm)
    return made


@pytest.mark.parametrize("know", KINDS)
def test_each_kind_is_measured_and_calibrated_by_its_own_probabilities(know: str, world: Any) -> None:
    program = of_kind(know, world, raisf.connect("pocket"), use_relevance=False, use_decomposition=False)
    judged = judgements_of(program, "know", world.dev[:10], labels="model", progress=False)
    scored = judged.report()
    assert len(judged.scored) == len(judged.rows) and {"auroc", "ece", "aurc"} <= scored.scores.keys()
    assert scored.risk and scored.risk.right[1.0] == pytest.approx(
        sum(row.gold for row in judged.rows) / len(judged.rows)
    )
    if know == "truth":  # one is enough: the others differ in what gives the probability
        return
    fitted = calibrate(program, valset=world.dev, aim="accuracy", labels="gold", progress=False)
    report = fitted.compile_report["calibration"]["judges"]["know"]
    assert "skipped" not in report and fitted.self_knowledge == know
    assert report["after"]["scores"]["accuracy"]["value"] >= report["before"]["scores"]["accuracy"]["value"]


@pytest.mark.parametrize("know", ["confidence", "consistency"])
def test_where_drafts_say_what_is_known_no_judge_learns_it(know: str, world: Any, oracle: Any) -> None:
    program = of_kind(know, world, oracle())
    assert "know" not in judges(program) and {"relevant", "decompose"} <= set(judges(program))
    rows = collect_rows(program, world.train, labels="gold", threads=4, strict=True)
    assert "know" not in rows.of and "relevant" in rows.of


def test_a_decomposer_that_is_asked_before_any_judge_is_taught_to_leave_simple_questions_whole(
    world: Any, oracle: Any
) -> None:
    rows = {}
    for order in ("at_once", "chains"):
        program = of_kind("verbal", world, oracle(), decomposition=order)
        found = collect_rows(program, world.train, labels="gold", threads=4, strict=True).of["decompose"]
        rows[order] = [list(row.sub_questions) == [row.question] for row in found]
    assert not any(rows["at_once"]) and sum(rows["chains"]) == sum(one.hops == 1 for one in world.train) > 0


def test_so_it_is_with_rows_of_a_teacher_who_splits_whatever_is_asked(world: Any, oracle: Any) -> None:
    program = of_kind("verbal", world, oracle(), decomposition="chains")
    split = [dspy.Example(question=e.question, sub_questions=["Who?", "Where was #1 born?"]) for e in world.train]
    taught = {"decomposition": split}
    found = collect_rows(program, world.train, labels="gold", threads=4, strict=True, taught=taught).of["decompose"]
    whole = {row.question for row in found if row.sub_questions == [row.question]}
    assert whole == {e.question for e in world.train if e.hops == 1} and len(found) == len(split)


def test_a_program_that_judges_by_samples_is_compiled(world: Any, oracle: Any) -> None:
    program = of_kind("consistency", world, oracle(), samples=2)
    shown: Any = raisf.compile(
        program, trainset=world.train, valset=world.dev, strategy="bootstrap", labels="gold", progress=False
    )
    drawn = shown.compile_report["rows"]
    assert "know" not in drawn and drawn["relevant"] and shown.self_knowledge == "consistency"


def test_the_judge_of_drafts_learns_from_the_lm_s_own_drafts(world: Any, oracle: Any, tmp_path: Path) -> None:
    program = of_kind("truth", world, oracle())
    assert "know" in judges(program)
    rows = collect_rows(program, world.train, labels="model", threads=4, strict=True).of["know"]
    verdicts = {row.verdict: row for row in rows}
    assert set(verdicts) == {"know", "unknown"} and verdicts["unknown"].answer == "a guess"
    silent = of_kind("truth", world, ScriptedLM(lambda fields: {"answer": "unknown", "verdict": "know"}))
    with pytest.raises(InputError):
        collect_rows(silent, world.train, labels="gold", threads=4, strict=True)


@pytest.mark.parametrize("labels", ["model", "gold"])
def test_the_judge_of_drafts_learns_whether_this_draft_is_true_whatever_gold_says_is_known(labels: Any) -> None:
    """A false draft of a known fact was shown as true, and a true one of an unknown fact as false."""
    program = RAISF(know="truth", use_relevance=False)
    program.set_lm(ScriptedLM(lambda fields: {"answer": f"a{max(int(fields['question'].split()[1]), 4)}"}))
    train = [
        dspy.Example(question=f"item {n} ?", answer=f"a{n}", known=n % 2 == 0).with_inputs("question") for n in range(8)
    ]
    rows = collect_rows(program, train, labels=labels, threads=1, strict=True).of["know"]
    assert [row.verdict for row in rows] == ["unknown"] * 4 + ["know"] * 4


def test_no_lm_labels_and_nobody_searches_for_predictors_that_do_not_learn(world: Any, oracle: Any) -> None:
    program, asked = of_kind("verbal", world, oracle()), list[str]()
    program.set_lm(ScriptedLM(lambda fields: asked.append(fields["question"]) or {"answer": "a guess"}))
    only: dict[str, Any] = {"labels": "model", "threads": 4, "strict": False}
    alone = collect_rows(program, world.train, names=["decompose"], **only)
    assert alone.of.keys() == {"decompose"} and not asked
    # By heart a question is answered that is known: this needs the labels of the judge.
    assert "know" in collect_rows(program, world.train, names=["answer_directly"], **only).judge and asked


@pytest.mark.slow
def test_the_answerer_of_a_confident_program_is_taught_what_it_knows(world: Any, makers: Any, tmp_path: Path) -> None:
    from raisf.lm.finetune.training import Training

    program = of_kind("confidence", world, raisf.connect("pocket"), max_depth=1, max_calls=12)
    compiled: Any = raisf.compile(
        program,
        trainset=world.train[:24],
        valset=world.dev[:10],
        how="weights",
        predictors=["answer_directly"],
        labels="gold",
        rows=16,
        training=Training(epochs=1, rank=4, batch_size=8),
        work=tmp_path,
        progress=False,
    )
    assert compiled.answer_directly.lm.lora is not None
    answered = compiled(question=world.test[0].question).trace.root
    assert answered.know.probability is not None  # with a LoRA adapter, too


def test_the_judge_of_sufficiency_learns_from_gold(world: Any, oracle: Any) -> None:
    program = of_kind("verbal", world, oracle(), sufficiency=True)
    assert "sufficient" in judges(program)
    rows = collect_rows(program, world.train, labels="gold", threads=4, strict=True).of["sufficient"]
    several = {example.question: set(example.gold_pids) for example in world.train if len(example.gold_pids or []) > 1}
    assert {row.verdict for row in rows} == {"sufficient", "insufficient"}
    for row in rows:
        if row.question in several:
            assert (len(row.passages) == len(several[row.question])) is (row.verdict == "sufficient")
    assert "sufficient" not in judges(of_kind("verbal", world, oracle()))


def test_rows_for_the_judge_of_drafts_keep_the_weights_that_outcomes_gave(world: Any) -> None:
    program = of_kind("truth", world, ScriptedLM(lambda fields: {"answer": "a", "verdict": "know"}))
    given = [
        dspy.Example(question=e.question, verdict=verdict, weight=weight, origin=e.question).with_inputs("question")
        for e, verdict, weight in zip(world.train, ("know", "unknown"), (3.0, 0.2), strict=False)
    ]
    asked = {"labels": "model", "threads": 1, "strict": False, "taught": {"know": given}}
    rows = collect_rows(program, world.train[:2], **asked).of["know"]
    assert [(row.weight, row.origin, row.answer) for row in rows] == [(e.weight, e.origin, "a") for e in given]
