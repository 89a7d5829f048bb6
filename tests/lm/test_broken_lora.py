"""A spoiled adapter must be told, or a judge would answer with noise."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from dspy.lm15 import Message, Request

from raisf.lm.connect import connect
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import CONFIG, WEIGHTS
from raisf.signatures.answers import DirectAnswer
from raisf.utils.errors import InputError


@pytest.fixture(scope="module")
def adapter(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lm = LocalLM(f"local/{llama}", cache=False)
    said = lm.adapter.format_finetune_data(DirectAnswer, [], {"question": "Who founded Ulm?"}, {"answer": "Oran"})
    rows, training = [TrainingRow(said["messages"])], Training(epochs=1, batch_size=1, rank=4)
    return train(lm, rows, rows, tmp_path_factory.mktemp("work"), training, name="answers", progress=False)


def spoil_shape(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {
        name: torch.zeros(tensor.shape[0] + 1, tensor.shape[1] + 1)
        for name, tensor in load_file(folder / WEIGHTS).items()
    }
    save_file(tensors, folder / WEIGHTS)


def spoil_number(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / WEIGHTS)
    next(iter(tensors.values()))[0, 0] = float("nan")
    save_file(tensors, folder / WEIGHTS)


def add_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_file({**load_file(folder / WEIGHTS), "base_model.model.lm_head.weight": torch.zeros(2)}, folder / WEIGHTS)


BROKEN = {
    "cut off": (lambda a: (a / WEIGHTS).write_bytes((a / WEIGHTS).read_bytes()[:1000]), "is damaged"),
    "of another shape": (spoil_shape, "of another base"),
    "not a number": (spoil_number, "is no number"),
    "more than LoRA": (add_tensor, "holds more than LoRA matrices"),
    "another method": (lambda a: (a / CONFIG).write_text('{"peft_type": "IA3"}'), "no plain LoRA"),
}


@pytest.mark.parametrize(("spoil", "says"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_adapter_is_told(llama: Path, adapter: Path, tmp_path: Path, spoil: Any, says: str) -> None:
    folder = shutil.copytree(adapter, tmp_path / "a")
    spoil(folder)
    with pytest.raises(InputError, match=says):
        connect(f"local/{llama}@{folder}").engine.complete(
            Request(model="m", messages=(Message.user("Who founded Oran?"),))
        )
