"""If these failed, one question without gold would have judges learn from, or be measured by, their own verdicts."""

from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.optimizers.selection import answer_exact_match
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import InputError

OPEN = dspy.Example(question="Why is the sea of this world so wide?").with_inputs("question")


def mine(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
    return answer_exact_match(example, prediction) if "answer" in example else 0.5


def tuned(world: Any, oracle: Any, llama: Path, work: Path, train: list[Any], dev: list[Any], **options: Any) -> Any:
    student = RAISF(BM25.load(world.index), k=2)
    student.set_lm(oracle())
    optimizer = raisf.FinetuneJudges(
        base=LocalLM(f"local/{llama}"),
        rows=12,
        training=Training(epochs=1, rank=2),
        work=work,
        progress=False,
        **{"predictors": ["know", "relevant"], "metric": mine, **options},
    )
    return optimizer.compile(student, trainset=train, valset=dev).compile_report


def test_a_question_without_gold_takes_from_no_other_what_gold_says_of_it(world, oracle, llama, tmp_path):
    train, dev = world.train[:20], world.dev[:8]
    whole = tuned(world, oracle, llama, tmp_path, train, dev)
    for sets in ([*train, OPEN], dev), (train, [*dev, OPEN]):
        made = tuned(world, oracle, llama, tmp_path, *sets)
        assert made["runs"] == {} and made["missing"] == {}
        for name, report in made["predictors"].items():
            assert report["source"] == "gold" and report["rows"] == whole["predictors"][name]["rows"]


def test_a_judge_never_learns_from_its_own_verdicts(world, oracle, llama, tmp_path):
    bare = [[one.without("answer", "answers") for one in part] for part in (world.train[:20], world.dev[:8])]
    every: dict[str, Any] = {"predictors": ["know", "decompose"], "metric": lambda *_: 1.0}
    # What came of the runs that others learn from is no reason.
    with pytest.raises(InputError, match="no train rows for 'know': no question has a gold answer; give more"):
        tuned(world, oracle, llama, tmp_path, *bare, **every)


def test_questions_that_the_metric_cannot_score_are_told_before_any_work(world, llama, tmp_path):
    def never(*_: Any) -> Any:
        raise AssertionError("nothing is asked before")

    with pytest.raises(InputError, match="the validation question 'Why is the sea"):
        tuned(world, lambda: dspy.utils.DummyLM(never), llama, tmp_path, world.train, [OPEN], metric=answer_exact_match)
