"""If these failed, one row that counts for nothing could cost a training all that it learnt."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from raisf.lm.finetune import training as module
from raisf.lm.finetune.lora import TrainingRow, tokenized, train
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import TRAINING
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from tests.lm.conftest import ask
from tests.lm.test_lora import QUICK, rows


@pytest.fixture(scope="module")
def lm(llama: Path) -> LocalLM:
    return LocalLM(f"local/{llama}", cache=False, max_tokens=8)


def test_a_row_counts_by_its_weight(lm: LocalLM, tmp_path: Path) -> None:
    """The rarer verdict is weighed up: with no weight at all, a row is as if it were not there."""
    yes, no = rows(lm, "know"), [TrainingRow(row.messages, 1e-9) for row in rows(lm, "unknown")]
    folder = train(lm, [*yes, *no], yes, tmp_path, QUICK, progress=False)
    assert ask(lm.with_weights(folder)).verdict == "know"


def test_a_batch_that_weighs_nothing_teaches_nothing_and_spoils_nothing(lm: LocalLM, tmp_path: Path) -> None:
    """One row of weight 0, alone in its batch, once made every weight NaN: the adapter was lost without a word."""
    learnt = [*rows(lm), replace(rows(lm)[0], weight=0.0)]
    folder = train(lm, learnt, rows(lm), tmp_path, QUICK, progress=False)
    curve = read_json(folder / TRAINING)["curve"]
    assert curve[-1]["loss"] < curve[0]["loss"] and all(point["loss"] < 10 for point in curve)
    run = FinetuneRun(lm, tokenized(lm.base_engine.text, learnt, True, 512, "n"), [], QUICK)
    before = {name: weights.detach().clone() for name, weights in run.weights.items()}
    assert run._step([run.train[-1]]) == 0 and run.steps == 1
    assert all(torch.equal(before[name], weights) for name, weights in run.weights.items())


def test_a_step_that_is_read_in_pieces_is_the_same_step(lm: LocalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen rows of five passages at once took more memory than most machines have."""
    learnt = tokenized(lm.base_engine.text, [*rows(lm), *rows(lm, "unknown")], True, 512, "n")
    runs = {pieces: FinetuneRun(lm, learnt, [], QUICK) for pieces in (1, len(learnt))}
    losses = {}
    for pieces, run in runs.items():
        monkeypatch.setattr(module, "TOKENS_AT_ONCE", 1 if pieces > 1 else 10**6)
        assert len(run._pieces(learnt)) == pieces
        losses[pieces] = run._step(learnt)
    one, other = runs.values()
    assert losses[1] == pytest.approx(losses[len(learnt)], rel=1e-4)
    assert all(torch.allclose(one.weights[name], other.weights[name], atol=1e-5) for name in one.weights)


@pytest.mark.parametrize("part", ["rows", "valrows"])
@pytest.mark.parametrize("empty", ["weights", "completions"])
def test_rows_that_together_weigh_nothing_are_refused(lm: LocalLM, tmp_path: Path, part: str, empty: str) -> None:
    """Nothing could be learnt from them, or measured on them; it was a ZeroDivisionError."""
    said = {"role": "assistant", "content": ""}
    nothing = {
        "weights": [replace(row, weight=0.0) for row in rows(lm)],
        "completions": [TrainingRow([*row.messages[:-1], said]) for row in rows(lm)],
    }
    given = {"rows": rows(lm), "valrows": rows(lm), part: nothing[empty]}
    with pytest.raises(InputError, match="16 rows together weigh nothing"):
        train(lm, **given, work=tmp_path, training=QUICK, progress=False)


def test_a_row_without_a_completion_counts_for_nothing_beside_others(lm: LocalLM, tmp_path: Path) -> None:
    empty = [TrainingRow([*row.messages[:-1], {"role": "assistant", "content": ""}]) for row in rows(lm)]
    once = Training(epochs=1, batch_size=1, rank=2)
    report = read_json(train(lm, [*rows(lm), *empty], rows(lm), tmp_path, once, progress=False) / TRAINING)
    assert report["rows"]["train"] == 32 and report["curve"][-1]["loss"] < 10


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_told(lm: LocalLM, tmp_path: Path, weight: float) -> None:
    with pytest.raises(InputError, match=f"a row's weight is {weight}: give 0 or more"):
        train(lm, [*rows(lm), replace(rows(lm)[0], weight=weight)], rows(lm), tmp_path, QUICK, progress=False)


def test_a_weight_counts_against_all_rows_and_not_only_those_of_its_batch(lm: LocalLM) -> None:
    """Alone in its batch a row of any weight taught alike: of 3% that were to be half of the loss, 27% came of it."""
    heavy, light = (replace(rows(lm)[0], weight=weight) for weight in (3.0, 1.0))
    learnt = tokenized(lm.base_engine.text, [heavy, light, light], True, 512, "n")
    losses = {}
    for weight, row in ((3, learnt[0]), (1, learnt[1])):
        losses[weight] = FinetuneRun(lm, learnt, [], QUICK)._step([row])
    assert losses[3] == pytest.approx(3 * losses[1])
    # Of rows that weigh alike a batch's loss is its mean, whatever they weigh.
    same = tokenized(lm.base_engine.text, [heavy, heavy], True, 512, "n")
    assert FinetuneRun(lm, same, [], QUICK)._step(same[:1]) == pytest.approx(losses[3] / 1.8)
