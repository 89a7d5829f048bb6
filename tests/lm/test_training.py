"""A training under way: when it ends, and which weights it keeps."""

from pathlib import Path

import pytest

from raisf.lm.finetune.lora import tokenized
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.model import LocalLM
from tests.lm.test_lora import rows


def test_of_epochs_that_are_equally_good_the_first_is_kept(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FinetuneRun, "_measure", lambda run: (0.5, 0.5))
    lm = LocalLM(f"local/{llama}", cache=False)
    learnt = tokenized(lm.base_engine.text, rows(lm), True, 512, "n")
    run = FinetuneRun(lm, learnt, learnt, Training(epochs=9, patience=2, rank=2))
    while not run.over:
        run.epoch(lambda: None)
    assert run.best_epoch == 0 and len(run.curve) == 3


def test_nothing_is_left_to_learn_only_where_every_row_is_exact_too(llama: Path) -> None:
    lm = LocalLM(f"local/{llama}", cache=False)
    learnt = tokenized(lm.base_engine.text, rows(lm), True, 512, "n")
    for loss, exact, over in ((0.004, 1.0, True), (0.004, 0.75, False), (0.006, 1.0, False)):
        run = FinetuneRun(lm, learnt, learnt, Training(epochs=9, rank=2))
        run.curve = [{"loss": loss, "exact": exact}]
        assert run.over == over
