"""If these failed, who has a compiled program could not teach its judges more without losing what they know."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import lora_hash
from raisf.optimize.compile import compile
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError

QUICK = Training(epochs=2, batch_size=8, rank=4, learning_rate=1e-2)


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
