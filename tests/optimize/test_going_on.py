"""If these failed, who has a compiled program could not teach its judges more without losing what they know."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

import raisf
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import lora_hash
from raisf.optimize.compile import compile
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

QUICK = Training(epochs=2, batch_size=8, rank=4, learning_rate=1e-2)


def test_who_marks_other_inputs_goes_on_with_no_answers_to_the_ones_before() -> None:
    """The student as given was scored without the context that all others were asked with, and seemed to gain by it."""
    stops = iter([False] * 6 + [True])

    class Echo(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ask = dspy.Predict("question, context -> answer")
            self.set_lm(ScriptedLM(lambda fields: {"answer": fields["context"]}))

        def forward(self, question: str, context: str = "") -> dspy.Prediction:
            return self.ask(question=question, context=context)

    class Metric:
        def __call__(self, example: Any, prediction: Any, trace: Any = None) -> float:
            if next(stops, False):
                raise KeyboardInterrupt
            return float(prediction.answer == "right")

    def compiled(*inputs: str) -> Any:
        train, dev = (
            [dspy.Example(question=f"{w} {n}?", context="right").with_inputs(*inputs) for n in range(4)] for w in "ab"
        )
        made = raisf.BootstrapJudges(metric=Metric(), threads=1, progress=False)
        return made.compile(Echo(), trainset=train, valset=dev).compile_report

    with pytest.raises(KeyboardInterrupt):
        compiled("question")
    assert [one["score"]["value"] for one in compiled("question", "context")["candidates"]] == [1.0, 1.0]


@pytest.fixture(scope="module")
def base(llama: Path) -> LocalLM:
    return LocalLM(f"local/{llama}")


def test_a_compiled_judge_is_trained_further_on_more_questions(
    program: RAISF, world: Any, base: LocalLM, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"how": "weights", "predictors": ["relevant"], "rows": 16, "progress": False}
    given |= {"labels": "gold", "valset": world.dev[:8], "work": tmp_path}
    first = compile(program, trainset=world.train[:30], base=base, training=QUICK, **given)
    further = replace(QUICK, epochs=1, learning_rate=1e-4, go_on=True)
    second = compile(first, trainset=world.train[30:60], training=further, **given)
    before, after = (made.compile_report["predictors"]["relevant"] for made in (first, second))
    assert after["began_with"] == lora_hash(first.relevant.lm.lora)
    best = before["curve"][before["best_epoch"]]
    assert best["loss"] < before["curve"][0]["loss"]
    assert after["curve"][0]["loss"] == pytest.approx(best["loss"], abs=0.01)
    assert second.relevant.lm.lora != first.relevant.lm.lora
    assert not first.compile_report["resumed"] and not second.compile_report["resumed"], "each was trained"
    assert second.compile_report["training"]["go_on"] and "go_on" not in first.compile_report["training"]


def test_where_there_is_no_adapter_none_is_trained_further(
    program: RAISF, world: Any, base: LocalLM, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"how": "weights", "base": base, "progress": False, "work": tmp_path}
    given |= {"trainset": world.train[:30], "valset": world.dev[:8], "labels": "gold"}
    with pytest.raises(InputError, match=r"without a LoRA adapter.*--go-on.*--train-predictors"):
        compile(program, training=Training(go_on=True), **given)
    with pytest.raises(InputError, match="keeps its layers"):
        Training(go_on=True, layers=1)
