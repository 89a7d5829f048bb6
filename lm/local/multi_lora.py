"""Several LoRA adapters on one base model in memory, mixed within one batch.

The matrices of all adapters lie stacked, layer by layer. A batch multiplies by the part of the stack that it needs, and
a mask keeps of it, token by token, what is the token's own: two small products a layer, however many adapters there
are. The base's weights and its forward pass stay untouched; a batch without adapters runs as if there were none.
"""

import copy
import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raisf.lm.local.weights import REPORT, hash_of_files
from raisf.utils.errors import InputError
from raisf.utils.files import read_json

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TRAINING = REPORT  # how `raisf.lm.finetune.lora` made it, and on which base

Slot = tuple[int, int]
"""Where an adapter's ranks lie in the stack: from, to. An empty one stands for the base alone."""
BASE: Slot = (0, 0)


class Loras:
    """The LoRA adapters of one base model.

    Args:
        model: The base; its linear layers are what adapters add to.
    """

    def __init__(self, model: "PreTrainedModel"):
        self._layers = dict(model.named_modules())
        self._slots: dict[str, Slot] = {}
        self._ranks = 0
        self._stacks: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # (ranks, inputs) and (ranks, outputs)

    @property
    def nbytes(self) -> int:
        """What the adapters take in memory."""
        return sum(part.nbytes for pair in self._stacks.values() for part in pair)

    def place(self, folder: Path, sha: str) -> Slot:
        """Where an adapter lies; it is read if it has not been.

        Args:
            folder: In peft's layout: adapter_config.json and adapter_model.safetensors.
            sha: Its hash, as `lora_hash` gives it.

        Raises:
            InputError: It is no LoRA adapter of this base, or its hash is another by now.
        """
        if sha not in self._slots:
            if (found := lora_hash(folder)) != sha:
                raise InputError(f"the LoRA adapter {folder} has changed: expected {sha}, found {found}; open it anew")
            self._slots[sha] = self._push(folder)
        return self._slots[sha]

    def _push(self, folder: Path) -> Slot:
        import torch

        pairs = self._read(folder)
        ranks = max(down.shape[0] for down, _ in pairs.values())
        stacks = {}
        for name in {**self._stacks, **pairs}:
            layer: Any = self._layers[name]
            like = layer.weight
            places: list[torch.Tensor] = []
            for side, width in enumerate((layer.in_features, layer.out_features)):
                before = self._stacks[name][side] if name in self._stacks else like.new_zeros(self._ranks, width)
                new = like.new_zeros(ranks, width)
                if name in pairs:
                    new[: len(pairs[name][side])] = pairs[name][side]
                places.append(torch.cat([before, new]))
            stacks[name] = (places[0], places[1])
        # In one step: the engine's thread may be reading. What lay there stays where it was.
        self._stacks, slot = stacks, (self._ranks, self._ranks + ranks)
        self._ranks += ranks
        return slot

    def _read(self, folder: Path) -> "dict[str, tuple[torch.Tensor, torch.Tensor]]":
        """By the layer's name, A (rank, inputs) and the scaled B, transposed (rank, outputs)."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        config = read_json(folder / CONFIG)
        try:
            tensors = load_file(folder / WEIGHTS)
        except SafetensorError as error:
            raise InputError(f"the LoRA adapter {folder} is damaged ({error}): train or copy it again") from error
        check_plain(folder, config)
        alpha = config.get("lora_alpha")
        if not isinstance(alpha, int | float) or isinstance(alpha, bool):
            raise InputError(
                f"the LoRA adapter {folder} is damaged (lora_alpha: {alpha!r:.40}): train or copy it again"
            )
        pairs = {}
        for key in [key for key in tensors if key.endswith(".lora_A.weight")]:
            name = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            down, up = tensors.pop(key), tensors.pop(key.replace(".lora_A.", ".lora_B."), None)
            layer: Any = self._layers.get(name)
            shapes = (tuple(down.shape[1:]), tuple(up.shape[:1])) if up is not None else None
            if shapes != ((getattr(layer, "in_features", 0),), (getattr(layer, "out_features", 0),)):
                raise InputError(f"the LoRA adapter {folder} is of another base: its {name} does not fit")
            assert up is not None
            rank = len(down)
            if not 0 < rank == up.shape[1]:
                raise InputError(f"the LoRA adapter {folder} is damaged (ranks of its {name}): train it again")
            scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
            down, up = down.to(layer.weight.dtype), (up.T * scale).to(layer.weight.dtype)
            if not (down.isfinite().all() and up.isfinite().all()):
                raise InputError(f"the LoRA adapter {folder} holds what is no number (its {name}): train it again")
            pairs[name] = (down, up)
        if tensors or not pairs:
            found = next(iter(tensors), "no weights")
            raise InputError(f"{folder} holds more than LoRA matrices, or none ({found}): merge it into its base")
        return pairs

    def blend(self, slots: Sequence[Slot] | np.ndarray, each: str = "row") -> "Blend | None":
        """What a batch needs of the adapters; None where all of it is the base's.

        Args:
            slots: One for each row of the batch (each="row"), or for each token of its only row (each="token").
            each: See `slots`.
        """
        import torch

        bounds = np.asarray(slots, int).reshape(-1, 2)
        used = bounds[bounds[:, 1] > bounds[:, 0]]
        if not len(used):
            return None
        first, last = int(used[:, 0].min()), int(used[:, 1].max())
        weight = next(iter(self._stacks.values()))[0]
        mask = None
        if len(used) < len(bounds) or (bounds != bounds[0]).any():
            ranks = np.arange(first, last)
            others = torch.from_numpy((ranks < bounds[:, :1]) | (bounds[:, 1:] <= ranks)).to(weight.device)
            mask = others[:, None] if each == "row" else others[None]
        stacks = {name: (down[first:last], up[first:last]) for name, (down, up) in self._stacks.items()}
        return Blend([(self._layers[name], *pair) for name, pair in stacks.items()], mask)


class Blend:
    """As a context: inside it, the base computes with the adapters of one batch."""

    def __init__(self, parts: "list[tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]", mask: "torch.Tensor | None"):
        """`mask`: which ranks are not a row's, or a token's, own; None: all are."""
        self._parts = parts
        self._mask = mask
        self._hooks: list[Any] = []

    def __enter__(self) -> None:
        self._hooks = [layer.register_forward_hook(self._adds(down, up)) for layer, down, up in self._parts]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _adds(self, down: "torch.Tensor", up: "torch.Tensor") -> Any:
        mask = self._mask

        def add(layer: Any, inputs: Any, output: "torch.Tensor") -> "torch.Tensor":
            if output.ndim != 3:
                raise InputError(
                    "a LoRA adapter adds to a layer of this base that takes all texts as one, and cannot run beside "
                    "others: merge it into its base"
                )
            inner = inputs[0] @ down.T
            if mask is not None:
                inner.masked_fill_(mask, 0)  # not multiplied: another adapter's may have overflowed
            return output.flatten(0, 1).addmm(inner.flatten(0, 1), up).view_as(output)

        return add


def without_hooks(model: "torch.nn.Module") -> dict[int, Any]:
    """For `copy.deepcopy`'s memo: a copy of the model has none of the adapters that are hung into it at the moment.

    Not copied and then cleared: the engine's thread may change them in the middle.
    """
    return {id(module._forward_hooks): OrderedDict() for module in model.modules()}


def twin_of(model: "torch.nn.Module") -> Any:
    """A model on the same weights that has none of these hooks."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared | without_hooks(model))


# Initialisations that take what they put into the matrices out of the base, whose weights the adapter does not hold.
_REWRITES = ("pissa", "olora", "corda", "loftq", "lora_ga")


def check_plain(folder: Path, config: Any) -> None:
    """Raise InputError for an adapter that is more than matrices added to its base everywhere.

    Args:
        folder: Where it lies.
        config: What its adapter_config.json holds.
    """
    if not isinstance(config, dict) or config.get("peft_type") != "LORA" or config.get("alpha_pattern"):
        raise InputError(f"{folder} holds a peft adapter that is no plain LoRA: merge it into its base")
    begun = config.get("init_lora_weights")
    if isinstance(begun, str) and begun.startswith(_REWRITES):
        raise InputError(
            f"the LoRA adapter {folder} adds to a base that was changed when it began (init_lora_weights: {begun}): "
            "merge it into that base, or save it with peft's path_initial_model_for_weight_conversion"
        )
    if config.get("alora_invocation_tokens"):
        raise InputError(
            f"the LoRA adapter {folder} works from certain tokens on (alora_invocation_tokens), and would be used from "
            "the first one here: train it without them"
        )


def lora_hash(folder: Path) -> str:
    """Twelve hex digits that change with the adapter's weights or configuration.

    Raises:
        InputError: There is no adapter.
    """
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise InputError(f"no LoRA adapter at {folder}: expected {CONFIG} and {WEIGHTS}, as peft saves them")
    return hash_of_files(folder, CONFIG, WEIGHTS)
