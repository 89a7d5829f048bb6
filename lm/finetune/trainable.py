"""What is trained of a base, and how it is written: a LoRA adapter in peft's layout, or a whole model."""

import copy
import shutil
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import CONFIG, WEIGHTS, without_hooks
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json

Method = Literal["lora", "full"]


def trainable(lm: LocalLM, method: Method, rank: int, layers: int | None = None, go_on: bool = False) -> Any:
    """The model to train: the base's modules anew, around the very same frozen weights; or a copy in float32.

    Args:
        lm: With the base.
        method: What is trained of it.
        rank: LoRA's.
        layers: How many of the upper layers get adapters; None for all.
        go_on: Whether it is the LM's own adapter, with its rank and layers.
    """
    base: Any = lm.base_engine.model
    if method == "full":
        return copy.deepcopy(base, without_hooks(base)).float().requires_grad_(True)
    import torch
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    from peft.tuners.tuners_utils import BaseTunerLayer
    from safetensors.torch import load_file

    shared = {id(tensor): tensor for tensor in [*base.parameters(), *base.buffers()]}
    task = "SEQ_2_SEQ_LM" if base.config.is_encoder_decoder else "CAUSAL_LM"
    own = lm.lora if go_on else None
    if own:
        known = {field.name for field in fields(LoraConfig)}
        told = {name: value for name, value in read_json(own / CONFIG).items() if name in known}
        config = LoraConfig(**{**told, "inference_mode": False})
    else:
        config = LoraConfig(task_type=task, r=rank, lora_alpha=2 * rank, **_places(base, layers))
    with warnings.catch_warnings(action="ignore"):  # it calls a name that transformers has given up
        model: Any = get_peft_model(copy.deepcopy(base, {**shared, **without_hooks(base)}), config)
    if own:
        set_peft_model_state_dict(model, load_file(own / WEIGHTS))
    if base.dtype is torch.bfloat16:  # the adapters stay in float32, and `FinetuneRun` casts where it computes
        adapted: list[Any] = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
        for layer in adapted:
            layer.cast_input_dtype_enabled = False  # else all activations would be cast, which takes a third longer
    model.peft_config["default"].base_model_name_or_path = lm.base.partition("/")[2].rpartition("#")[0]
    return model


def check_adaptable(lm: LocalLM, rank: int, layers: int | None = None) -> None:
    """Makes sure that the engine can run what a LoRA adapter of this LM's base is, before any is trained.

    It adds an adapter's product to what a linear layer gives, for each text of a batch its own.

    Raises:
        InputError: peft adapts other layers of it, or its layers take all texts as one.
    """
    import torch
    from peft.tuners.tuners_utils import BaseTunerLayer

    with torch.random.fork_rng():
        model = trainable(lm, "lora", rank, layers)
    adapted: dict[str, Any] = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, BaseTunerLayer)
    }
    wrong = {name: layer for name, layer in adapted.items() if type(layer.get_base_layer()) is not torch.nn.Linear}
    if not wrong and not lm.base_engine.model.config.is_encoder_decoder:
        for name, layer in adapted.items():
            layer.register_forward_pre_hook(
                lambda layer, inputs, name=name: wrong.update({name: layer} if inputs[0].ndim != 3 else {})
            )
        base: Any = lm.base_engine.model
        half = torch.autocast(base.device.type, torch.bfloat16, enabled=base.dtype is torch.bfloat16)
        with torch.inference_mode(), half:
            model(input_ids=torch.zeros(2, 3, dtype=torch.long, device=base.device))
    if wrong:
        name, layer = next(iter(wrong.items()))
        kind, place = type(layer.get_base_layer()).__name__, name.removeprefix("base_model.model.")
        raise InputError(
            f"{lm.base} cannot have LoRA adapters that run side by side, as its {place}, a {kind}, is of another kind "
            "than a Llama's layers: train all weights (--full, method='full'), or take a base such as a Llama"
        )


def _places(base: Any, layers: int | None) -> dict[str, Any]:
    """Where a model gets adapters, as peft's configuration says it."""
    if layers is None:
        return {"target_modules": "all-linear"}
    import torch

    count, head = base.config.get_text_config().num_hidden_layers, base.get_output_embeddings()
    linear = {
        name.rpartition(".")[2]
        for name, one in base.named_modules()
        if isinstance(one, torch.nn.Linear) and one is not head
    }
    return {"target_modules": sorted(linear), "layers_to_transform": list(range(count - layers, count))}


def write(model: Any, lm: LocalLM, method: Method, folder: Path) -> None:
    """Writes what `trainable` gave, with the weights that it has now, into a folder."""
    if method == "lora":
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        model.peft_config["default"].inference_mode = True
        model.peft_config["default"].save_pretrained(folder)
        config = read_json(folder / CONFIG)
        if not isinstance(wanted := config["target_modules"], str):  # a set: else the hash would change at random
            config["target_modules"] = sorted(wanted)
        write_json(folder / CONFIG, config)
        found = get_peft_model_state_dict(model, save_embedding_layers=False)
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, folder / WEIGHTS)
        return
    base = lm.base_engine
    model.to(base.model.dtype).save_pretrained(folder)
    for pattern in ("tokenizer*", "*.jinja", "spiece.model", "vocab.*", "merges.txt", "*token*.json"):
        for path in base.folder.glob(pattern):
            shutil.copy(path, folder)
