"""Encoders whose weights are damaged, incomplete or of half precision: no index is made of random numbers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, PreTrainedModel

from raisf.retrieval.encoders.checkpoint import find_checkpoint, minilm_package
from raisf.retrieval.encoders.encoder import ColBERTEncoder
from raisf.retrieval.engines.dense import DenseEncoder, find_model
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_json, write_json

WEIGHTS = "model.safetensors"
MATRIX = "encoder.layer.1.output.dense.weight"
Tensors = dict[str, torch.Tensor]


@pytest.fixture(params=["dense", "colbert"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A BERT of two small layers."""
    folder: Path = tmp_path / request.param
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    write_json(folder / "config.json", read_json(folder / "config.json") | {"dtype": None})  # as MiniLM's own is
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        shutil.copyfile(Path(minilm_package().get_model_path()) / name, folder / name)
    if request.param == "colbert":
        write_json(folder / "artifact.metadata", {"dim": 16, "query_augmentation": False})
        tensors = {f"bert.{name}": tensor for name, tensor in load_file(folder / WEIGHTS).items()}
        save_file({**tensors, "linear.weight": torch.randn(16, 32)}, folder / WEIGHTS, {"format": "pt"})
    return folder


def change(folder: Path, change: Callable[[str, torch.Tensor], Tensors]) -> None:
    """Replaces each tensor by those that are made of it."""
    made = [change(name, tensor) for name, tensor in load_file(folder / WEIGHTS).items()]
    save_file(
        {name: tensor for tensors in made for name, tensor in tensors.items()}, folder / WEIGHTS, {"format": "pt"}
    )


def encoder(folder: Path) -> Any:
    if folder.name == "dense":
        return DenseEncoder(find_model(folder))
    found = find_checkpoint(folder)
    return ColBERTEncoder(found.path, found.augment)


def spoilt(tensor: torch.Tensor) -> torch.Tensor:
    tensor[0, 0] = torch.nan
    return tensor


BREAKS: dict[str, tuple[Callable[[str, torch.Tensor], Tensors], str]] = {
    "a wrapper's names": (
        lambda name, tensor: {name if name == "linear.weight" else f"module.{name}": tensor},
        r"lacks \d+ of the weights that its architecture has",
    ),
    "a tensor less": (
        lambda name, tensor: {} if name.endswith(MATRIX) else {name: tensor},
        r"lacks 1 of the weights that its architecture has \(.*encoder.layer.1.output.dense.weight",
    ),
    "no numbers": (
        lambda name, tensor: {name: spoilt(tensor) if name.endswith(MATRIX) else tensor},
        "is damaged: its .*encoder.layer.1.output.dense.weight has weights that are no numbers",
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_weights_that_are_missing_or_no_numbers_are_told(folder: Path, what: str):
    """Each process filled the gaps with other numbers: what had been indexed was found by none that came after it."""
    damage, message = BREAKS[what]
    change(folder, damage)
    with pytest.raises(InputError, match=message) as told:
        encoder(folder)
    assert str(folder) in str(told.value)


def test_a_layer_that_the_configuration_leaves_out_is_told(folder: Path):
    write_json(folder / "config.json", read_json(folder / "config.json") | {"num_hidden_layers": 1})
    with pytest.raises(InputError, match=r"has weights that its config.json does not tell of \(16: .*encoder.layer.1"):
        encoder(folder)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory"), torch.AcceleratorError("no kernel image")])
def test_a_gpu_that_is_full_or_cannot_compute_is_no_damage(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def to(self: Any, *args: object) -> None:
        raise error

    monkeypatch.setattr(PreTrainedModel, "to", to)
    found = find_checkpoint("minilm")
    with pytest.raises(RaisfError, match=rf"the GPU .*\({error}\).*the CPU \(CUDA_VISIBLE_DEVICES=\)") as told:
        ColBERTEncoder(found.path, found.augment)
    assert not isinstance(told.value, InputError)


def test_a_file_that_is_cut_is_told(folder: Path):
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"is damaged.*incomplete"):
        encoder(folder)


def test_a_tokenizer_that_is_cut_is_told(folder: Path):
    whole = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=f"{folder} is damaged, or transformers cannot read it"):
        encoder(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [([], "metadata has no settings"), ({"config": 3}, "metadata has no settings"), ({"dim": "x"}, "is damaged")],
)
@pytest.mark.parametrize("folder", ["colbert"], indirect=True)
def test_settings_of_a_checkpoint_that_are_none_are_told(folder: Path, settings: object, message: str):
    write_json(folder / "artifact.metadata", settings)
    with pytest.raises(InputError, match=message):
        encoder(folder)


def test_a_pooler_may_be_missing_for_nothing_asks_it(folder: Path):
    whole = encoder(folder).encode_queries(["Who wrote Hamlet?"])[0]
    change(folder, lambda name, tensor: {} if "pooler." in name else {name: tensor})
    assert torch.equal(encoder(folder).encode_queries(["Who wrote Hamlet?"])[0], whole)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_weights_of_half_precision_are_computed_with_in_float32(folder: Path, half: torch.dtype):
    """ColBERT's failed at the first passage, and a dense model's steps of training were too small for its numbers."""
    query, text = "Who wrote Hamlet?", "Hamlet is a tragedy by Shakespeare."
    change(folder, lambda name, tensor: {name: tensor.to(half).float()})
    wide = encoder(folder)
    change(folder, lambda name, tensor: {name: tensor.to(half)})
    narrow = encoder(folder)
    assert torch.equal(narrow.encode_queries([query])[0], wide.encode_queries([query])[0])
    assert torch.equal(narrow.encode_passages([text])[0], wide.encode_passages([text])[0])
