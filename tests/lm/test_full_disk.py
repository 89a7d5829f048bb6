"""If this failed, a training that fills the disk would end without a word of what to do."""

import resource
from pathlib import Path

import pytest

from raisf.lm.finetune.lora import tokenized
from raisf.lm.finetune.training import FinetuneRun
from raisf.lm.local.model import LocalLM
from raisf.utils.errors import RaisfError
from tests.lm.test_lora import QUICK, rows


def test_a_checkpoint_that_does_not_fit_is_told_with_what_to_do(llama: Path, tmp_path: Path) -> None:
    lm = LocalLM(f"local/{llama}", cache=False, max_tokens=8)
    run = FinetuneRun(lm, tokenized(lm.base_engine.text, rows(lm), True, 512, "n"), [], QUICK)
    checkpoint = tmp_path / "made.safetensors"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))  # meets the same error as a full disk
    try:
        with pytest.raises(RaisfError, match=r"cannot write \S*made\.safetensors .*free some space"):
            run.save(checkpoint, "this one")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not checkpoint.exists()
    run.save(checkpoint, "this one")
    assert checkpoint.is_file()
