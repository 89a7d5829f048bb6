"""Judges learn where there is no gold: what a teacher says takes its place (Liu et al. 2024, appendices A.2, A.3)."""

import random

import dspy
import pytest

from raisf.evaluation.examples import gold_answers
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.demonstrations import Rows
from raisf.optimize.judges.judge_rows import JudgeRows, teach
from raisf.optimize.judges.labels import know_labels
from raisf.optimize.optimizers.base import counting
from raisf.optimize.optimizers.few_shot import LabeledJudges
from raisf.optimize.optimizers.finetune import FinetuneJudges, _Made
from raisf.optimize.optimizers.training_rows import Source
from raisf.optimize.teaching import teach_for
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal
from tests.optimize.conftest import knows
from tests.scripted import ScriptedLM

QUICK = Training(epochs=1, rank=2, batch_size=8)


@pytest.fixture
def bare(world):
    """Questions as NQ and TriviaQA have them: with answers, without passages and parts."""
    splits = ([*world.train], [*world.dev])
    return [
        [dspy.Example(id=e.id, question=e.question, answers=gold_answers(e)).with_inputs("question") for e in split]
        for split in splits
    ]


def _teacher():
    def say(fields):
        if "passage" in fields:
            return {"verdict": "relevant" if len(fields["passage"]) % 2 else "irrelevant"}
        return {"sub_questions": ["Who is meant?", "Where was #1 born?"]}

    return ScriptedLM(say)


def test_without_gold_passages_a_judge_needs_a_teacher(program, bare, tmp_path):
    train, dev = bare
    optimizer = LabeledJudges(work=tmp_path / "work", progress=False)
    with pytest.raises(InputError, match="found 0 'relevant'"):
        optimizer.compile(program, trainset=train)
    optimizer.judge_rows = teach_for(optimizer, program, _teacher(), train, dev)
    compiled = optimizer.compile(program, trainset=train)
    shown = compiled.relevant.demos
    assert len(shown) == 4 and {demo.verdict for demo in shown} == {"relevant", "irrelevant"}
    assert all(demo.verdict == ("relevant" if len(demo.passage) % 2 else "irrelevant") for demo in shown)
    assert compiled.decompose.demos[0].sub_questions == ["Who is meant?", "Where was #1 born?"]
    told = compiled.compile_report["judge_rows"]
    assert told["splits"]["train"]["teacher"]["calls"] > 0 and told["splits"]["train"]["agreement"] == {}


def test_a_teacher_labels_as_many_questions_of_each_split_as_are_wanted(program, bare, tmp_path):
    options = {"questions": 3, "validation": 2, "work": tmp_path / "work", "progress": False}
    parts = teach(program, _teacher(), *bare, **options).parts(*bare)
    assert [len({row.question for row in part["relevance"]}) for part in parts] == [3, 2]


def test_what_a_teacher_has_labelled_before_is_in_no_price(program, bare, tmp_path):
    told, optimizer = [], LabeledJudges(work=tmp_path / "work", progress=False)
    for _ in range(2):
        with counting() as spent:
            teach_for(optimizer, program, _teacher(), *bare)
        told.append(spent.told())
    assert told[0]["lm_calls"] > told[1]["lm_calls"] and [one["resumed"] for one in told] == [False, True]


def test_collected_rows_are_taken_again_without_a_teacher(program, bare, tmp_path):
    train, dev = bare
    optimizer = LabeledJudges(work=tmp_path / "work", progress=False)
    made = teach_for(optimizer, program, _teacher(), train, dev)
    optimizer.judge_rows = JudgeRows.read(*made.report["folders"])
    assert optimizer.compile(program, trainset=train).relevant.demos


def test_rows_for_a_judge_of_passages_are_none_for_a_judge_of_lists(program, bare, tmp_path, oracle, world):
    train, dev = bare
    optimizer = LabeledJudges(work=tmp_path / "work", progress=False)
    optimizer.judge_rows = teach_for(optimizer, program, _teacher(), train, dev)
    lists = RAISF(BM25.load(world.index), relevance="listwise")
    lists.set_lm(oracle())
    with pytest.raises(InputError, match="not for a listwise judge"):
        optimizer.compile(lists, trainset=train)


def test_what_is_known_goes_by_the_data_sets_own_rule():
    """TriviaQA's script reads "Jay-Z" and "Jay Z" as one; SQuAD's makes "jayz" of the first."""
    rapper = dspy.Example(question="Who made 99 Problems?", answers=["Jay Z"], scoring="triviaqa")
    closed = dspy.Example(question="Could a llama swim?", answers=["yes"])
    direct = dspy.Predict("question -> answer")
    direct.lm = ScriptedLM(lambda fields: {"answer": "Jay-Z" if "99" in fields["question"] else "Yes, it could."})
    rows = know_labels([rapper, closed], answerer=direct, threads=1).rows
    assert [row.verdict for row in rows] == ["know", "know"]
    plain = dspy.Example(question=rapper.question, answers=rapper.answers)
    assert [row.verdict for row in know_labels([plain], answerer=direct, threads=1).rows] == ["unknown"]


def test_what_one_lm_knows_is_not_taken_for_what_another_in_the_same_module_knows(tmp_path):
    """They share a journal, whose keys were the questions alone."""
    asked = [dspy.Example(question=f"Question {n}?", answer=f"a{n}").with_inputs("question") for n in range(6)]

    def knowing(many: int) -> ScriptedLM:
        def say(fields):
            number = int("".join(filter(str.isdigit, fields["question"])))
            return {"answer": f"a{number}" if number < many else "wrong"}

        lm = ScriptedLM(say)
        lm.model = f"knows-{many}"
        return lm

    journal = Journal(tmp_path / "journal.jsonl")
    for many in (1, 5, 1):
        direct = Direct().answer_directly
        direct.lm = knowing(many)
        rows = know_labels(asked, answerer=direct, threads=1, journal=journal).rows
        assert [row.verdict for row in rows].count("know") == many


def test_a_judge_of_lists_learns_from_a_teachers_runs(world, llama, tmp_path):
    def say(fields):
        return {
            "verdict": "unknown",
            "relevant_ids": [1] if knows(fields["question"]) else [],
            "answer": "a",
            "evidence": "",
        }

    student, teacher = (RAISF(BM25.load(world.index), k=2, relevance="listwise", use_decomposition=False) for _ in "st")
    student.set_lm(LocalLM(f"local/{llama}"))
    teacher.set_lm(ScriptedLM(say))
    optimizer = FinetuneJudges(
        predictors="relevant", metric=lambda *_: 1.0, training=QUICK, work=tmp_path, progress=False
    )
    bare = [
        [dspy.Example(question=e.question).with_inputs("question") for e in part] for part in (world.train, world.dev)
    ]
    made = optimizer.compile(student, trainset=bare[0], valset=bare[1], teacher=teacher)
    told = made.compile_report["predictors"]["relevant"]
    assert told["source"] == "teacher's right runs" and told["rows"]["train"] == {"rows": len(world.train)}


@pytest.mark.parametrize("how", ["prompts", "weights"])
def test_a_judge_that_the_rows_given_say_nothing_of_stays_as_it_is(how, world, oracle, llama, tmp_path):
    """By outcome, where gold names no passages: that was said once all tries had been paid."""
    student = RAISF(BM25.load(world.index), k=2, use_relevance=True, sufficiency=True, use_decomposition=False)
    student.set_lm(oracle() if how == "prompts" else LocalLM(f"local/{llama}"))
    asked = [*world.train, *world.dev]
    verdicts = ["know", "unknown"] * len(asked)
    verdict_of = zip(asked, verdicts, strict=False)
    rows = {"know": [dspy.Example(question=e.question, verdict=v).with_inputs("question") for e, v in verdict_of]}
    rows["relevance"] = [
        dspy.Example(question=row.question, passage="p", verdict="relevant" if row.verdict == "know" else "irrelevant")
        for row in rows["know"]
    ]
    bare = [
        [dspy.Example(question=e.question, answer=gold_answers(e)[0]) for e in part]
        for part in (world.train, world.dev)
    ]
    options = {"judge_rows": JudgeRows(rows, {}), "work": tmp_path, "progress": False}
    optimizer = LabeledJudges(**options) if how == "prompts" else FinetuneJudges(training=QUICK, **options)
    made = optimizer.compile(student, trainset=bare[0], valset=bare[1] if how == "weights" else None)
    assert "sufficient" in made.compile_report["missing"]
    taught = made.compile_report["rows"] if how == "prompts" else made.compile_report["predictors"]
    assert {"know", "relevant"} <= taught.keys()


def test_a_rows_weight_counts_within_its_verdict_and_each_verdict_has_the_same_share(llama):
    """A row of a rare verdict with the weight 3 counted less than its neighbours, and with 1 to all, rare ones less."""

    def weights(*known, unknown=None):
        rows = [dspy.Example(question=f"{n}?", verdict="know", weight=one) for n, one in enumerate(known)]
        rows.append(dspy.Example(question="Who?", verdict="unknown", weight=unknown))
        source = Source("train", 9, Rows({"know": rows}, {"know": "know"}))
        made = _Made(RAISF(None), "know", LocalLM(f"local/{llama}"), [source], random.Random(0))
        return sorted(row.weight for row in made.parts[0])

    assert weights(None, 3) == [0.375, 1.125, 1.5]
    assert weights(1, 1, unknown=1) == weights(None, None) == [0.75, 0.75, 1.5]
    with pytest.raises(InputError, match="know: the rows of 'know' together weigh nothing: give some a weight"):
        weights(0, 0)


def test_a_field_of_who_is_no_judge_may_be_called_weight(llama):
    rows = [dspy.Example(question="1?", verdict="know", weight="3 kg")]
    rows.append(dspy.Example(question="2?", verdict="unknown", weight=0))
    source = Source("train", 9, Rows({"know": rows}, {}))
    made = _Made(RAISF(None), "know", LocalLM(f"local/{llama}"), [source], random.Random(0))
    assert [row.weight for row in made.parts[0]] == [1, 1]


def test_a_verdict_none_of_whose_rows_can_be_read_is_told_and_rows_that_cannot_count_for_none(llama):
    """A judge of sufficiency, whose sufficient rows are the longer ones, learnt to say "insufficient" to all."""
    lm, long = LocalLM(f"local/{llama}"), "Who? " * 5000
    rows = [dspy.Example(question=q, verdict="know", weight=w) for q, w in (("1?", 1), ("2?", 3))]
    rows += [dspy.Example(question=q, verdict="unknown", weight=w) for q, w in ((long, 7), ("3?", 2))]
    made = _Made(
        RAISF(None), "know", lm, [Source("train", 9, Rows({"know": rows}, {"know": "know"}))], random.Random(0)
    )
    learnt = [row for row in made.parts[0] if long.strip() not in row.messages[-2]["content"]]
    assert sorted(row.weight for row in learnt) == [0.375, 1.125, 1.5]
    third = [*rows[:2], rows[3], dspy.Example(question=long, verdict="unsure")]  # of two verdicts there is enough
    _Made(RAISF(None), "know", lm, [Source("train", 9, Rows({"know": third}, {"know": "know"}))], random.Random(0))
    rows.pop(3)
    with pytest.raises(InputError, match="know: none of its 1 train rows of 'unknown' fits into the base's context"):
        _Made(RAISF(None), "know", lm, [Source("train", 9, Rows({"know": rows}, {"know": "know"}))], random.Random(0))


def test_a_teacher_asked_in_another_way_is_another_teacher(program, bare, tmp_path):
    """Its model's name was all that told it from others: one at another temperature got the first one's labels."""
    train, _ = bare
    said = {}
    for temperature, verdict in ((0.0, "relevant"), (1.0, "irrelevant")):
        teacher = ScriptedLM(lambda fields, verdict=verdict: {"verdict": verdict, "sub_questions": ["Who?", "Where?"]})
        options = {"questions": 3, "work": tmp_path / "work", "progress": False}
        rows = teach(program, teacher.copy(temperature=temperature), train[:3], **options)
        said[verdict] = {row.verdict for row in rows.of["relevance"]}
    assert said == {"relevant": {"relevant"}, "irrelevant": {"irrelevant"}}
