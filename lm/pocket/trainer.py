"""One step of pretraining, fast on a CPU, and its state as a safetensors file."""

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.lm.local.memory import c_function
from raisf.lm.local.weights import multiplies_bfloat16
from raisf.lm.pocket.batches import said

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

# Muon (Jordan et al. 2024) on the hidden matrices, AdamW on embeddings, norms and biases.
MUON_RATE, ADAM_RATE, WEIGHT_DECAY = 0.008, 3e-3, 0.05
WARM_UP_STEPS, DECAY_FROM = 30, 0.25


class Trainer:
    """Weights in float32, computed with in bfloat16: twice the speed, with nothing lost.

    But on CPUs that multiply it more slowly than float32: there it is float32.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        import torch

        self.model = model.bfloat16() if model.device.type != "cpu" or multiplies_bfloat16() else model.float()
        self._attend_by(_attention())
        self.masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
        named = list(zip((name for name, _ in model.named_parameters()), self.masters, strict=True))
        inside = re.compile(r"\.layers\.|\.block\..*(?<!bias)\.weight$").search
        hidden = [(name, m) for name, m in named if m.ndim == 2 and inside(name)]
        # A T5 does not divide a query's products by the root of a head's width: its queries take smaller steps instead.
        queries = [m for name, m in hidden if name.endswith(".q.weight")]
        others = [m for name, m in hidden if not name.endswith(".q.weight")]
        matrices = [m for name, m in named if m.ndim == 2 and not inside(name)]
        vectors = [m for _, m in named if m.ndim < 2]
        small = model.config.d_kv**-0.5 if queries else 1.0
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                [{"params": others, "times": 1.0}, {"params": queries, "times": small}],
                lr=MUON_RATE,
                weight_decay=WEIGHT_DECAY,
                momentum=0.95,
            ),
            torch.optim.AdamW(
                [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                lr=ADAM_RATE,
                betas=(0.9, 0.98),
                foreach=True,
            ),
        ]
        self.steps = 0

    def step(self, ids: "torch.Tensor", weights: "torch.Tensor", progress: float) -> float:
        """Learns from one batch; returns its loss, in nats a weighted token."""
        import torch

        logits, targets, weights = said(self.model, ids, weights)
        losses = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
        weights = weights.flatten()
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        for master, parameter in zip(self.masters, self.model.parameters(), strict=True):
            master.grad = parameter.grad.float() if parameter.grad is not None else None
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        decay = 1.0 if progress < DECAY_FROM else max(0.02, (1 - progress) / (1 - DECAY_FROM))
        for optimizer, rate in zip(self.optimizers, (MUON_RATE, ADAM_RATE), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = group.get("times", 1.0) * rate * decay * min(1.0, (self.steps + 1) / WARM_UP_STEPS)
            optimizer.step()
        self._publish()
        self.steps += 1
        return loss.item()

    def finish(self) -> None:
        """Leaves the model in float32 with the exact weights and a stock attention."""
        self.model.float()
        self._attend_by("sdpa")
        self._publish()

    def save(self, path: Path) -> None:
        """Writes weights and optimizers, so that training can go on."""
        from safetensors.torch import save_file

        tensors = {f"master.{i}": master.detach() for i, master in enumerate(self.masters)}
        for o, optimizer in enumerate(self.optimizers):
            for i, state in optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{o}.{i}.{name}": value for name, value in state.items()}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)

    def load(self, path: Path, steps: int) -> None:
        """Reads what `save` wrote after so many steps."""
        import torch
        from safetensors.torch import load_file

        tensors, self.steps = load_file(path), steps
        with torch.no_grad():
            for i, master in enumerate(self.masters):
                master.copy_(tensors.pop(f"master.{i}"))
        states: list[dict[int, dict[str, Any]]] = [{} for _ in self.optimizers]
        for key, tensor in tensors.items():
            _, o, i, name = key.split(".")
            states[int(o)].setdefault(int(i), {})[name] = tensor
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        self._publish()

    def _attend_by(self, attention: str) -> None:
        parts: Any = self.model.modules()
        for part in parts:
            if hasattr(part, "config"):  # a T5's encoder and decoder have each their own
                part.config._attn_implementation = attention

    def _publish(self) -> None:
        import torch

        with torch.no_grad():
            for parameter, master in zip(self.model.parameters(), self.masters, strict=True):
                parameter.copy_(master)


def keep_memory() -> None:
    """Tells the C library to keep freed memory: fetching it anew for every tensor costs a fifth of a step on a CPU."""
    if mallopt := c_function("mallopt"):
        never_map, never_trim = -4, -1
        mallopt(never_map, 0)
        mallopt(never_trim, 2**31 - 1)


@functools.cache
def _attention() -> str:
    """The name of a plain attention for rows padded at their right: a Llama's, or a T5's if it has position biases.

    On a CPU the backward pass of PyTorch's own flash attention took a third of a step; this one a twentieth.
    """
    import torch
    from transformers import AttentionInterface

    @functools.lru_cache(64)
    def future(length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.full((length, length), -torch.inf, dtype=dtype, device=device).triu(1)

    shared: list[Any] = [None] * 3  # all layers of a T5 have the same biases; adding them up takes a while

    def biases(bias: torch.Tensor, mask: torch.Tensor, batch: int) -> torch.Tensor:
        if shared[0] is not bias or shared[1] is not mask:
            shared[:] = bias, mask, (bias + mask).expand(batch, -1, -1, -1).flatten(0, 1)
        return shared[2]

    def attend(
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: Any,
        scaling: float,
        position_bias: torch.Tensor | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        batch, heads, length, dim = query.shape
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
        hidden = future(length, query.dtype, query.device) if module.is_causal else mask
        if position_bias is None:
            hidden = hidden.expand(batch * heads, length, length)
        else:
            hidden = biases(position_bias, hidden, batch)
        scores = torch.baddbmm(hidden, query, key.transpose(1, 2), alpha=scaling)
        mixed = torch.bmm(scores.softmax(-1), value).view(batch, heads, length, dim)
        return mixed.transpose(1, 2), None

    AttentionInterface.register("raisf_plain", attend)
    return "raisf_plain"
