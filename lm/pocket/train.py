"""How the pocket Llama is pretrained: one flat loop, deterministic from a seed, with the reason beside each number."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import InputError
from data.files import atomic_folder, check_replaceable, sha256_file, write_json
from data.world import HOME_REGIONS, HOME_SEED
from lm.pocket.batches import BATCH_TOKENS, Batches
from lm.pocket.build import SIZES, build_model, build_tokenizer
from lm.pocket.lessons import School
from lm.pocket.report import report

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM

# Muon (Jordan et al. 2024) on the hidden matrices, AdamW on embeddings, norms and biases.
MUON_RATE, ADAM_RATE, WEIGHT_DECAY = 0.008, 3e-3, 0.05
WARM_UP_STEPS, DECAY_FROM = 30, 0.6


def train(
    out: Path | str,
    *,
    tokens: int = 20_000_000,
    size: str = "pocket",
    seed: int = 0,
    threads: int = 2,
    regions: int = HOME_REGIONS,
    exam: int = 200,
    progress: bool = True,
) -> dict[str, Any]:
    """Pretrains a pocket Llama and writes it in the Hugging Face layout, with a manifest.

    Args:
        out: The folder, replaced whole when training is done.
        tokens: How many tokens to read, padding included.
        size: One of `SIZES`.
        seed: Decides the initial weights and everything that is read.
        threads: CPU threads for the model; the lessons are made in a process of their own.
        regions: How many regions of the home world are taught by heart.
        exam: Questions for each skill in the report.
        progress: Shows a bar on standard error.

    Returns:
        The manifest: seed, tokens, seconds, hash of the weights, versions, report (skill -> share right, with n).

    Raises:
        InputError: An unknown size, or no tokens.
    """
    if size not in SIZES:
        raise InputError(f"unknown size {size!r}: choose one of {', '.join(SIZES)}")
    if tokens < BATCH_TOKENS:
        raise InputError(f"{tokens} tokens are less than one step; give at least {BATCH_TOKENS}")
    check_replaceable(out, "model.safetensors")
    import torch
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    tokenizer = build_tokenizer(_tokenizer_texts())
    model = build_model(size, seed)
    if torch.cuda.is_available():
        torch.nn.Module.cuda(model)
    trainer = _Trainer(model)
    curve: list[dict[str, float]] = []
    started, read, loss = time.monotonic(), 0, math.nan
    bar = Progress(
        *Progress.get_default_columns()[:-1],
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
        console=Console(stderr=True),
        disable=not progress,
    )
    with bar, Batches(tokenizer, seed, tokens, regions) as stream:
        task = bar.add_task("pretraining", total=tokens, state="")
        for ids, weights in stream:
            loss = trainer.step(ids.to(model.device), weights.to(model.device), read / tokens)
            read += ids.numel()
            if not curve or read - curve[-1]["tokens"] > tokens / 200:
                curve.append({"tokens": read, "loss": round(loss, 4), "seconds": round(time.monotonic() - started, 1)})
            bar.update(task, completed=min(read, tokens), state=f"loss {loss:.3f}")
    trainer.finish()
    manifest = {
        "size": size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": seed,
        "tokens": read,
        "seconds": round(time.monotonic() - started),
        "home": {"seed": HOME_SEED, "regions": regions},
        "report": report(model, tokenizer, exam, regions),
        "curve": curve,
    }
    with atomic_folder(out, "model.safetensors") as folder:
        # Half the bytes of float32, and the loop computes in bfloat16 anyway.
        model.bfloat16().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        manifest["weights_sha256"] = sha256_file(folder / "model.safetensors")
        manifest["versions"] = _versions()
        write_json(folder / "manifest.json", manifest)
    return manifest


class _Trainer:
    """Weights in float32, computed with in bfloat16: twice the speed on CPUs that have it, with nothing lost."""

    def __init__(self, model: "LlamaForCausalLM") -> None:
        import torch

        self.model = model.bfloat16()
        self.names = [name for name, _ in model.named_parameters()]
        self.masters = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
        hidden = [m for n, m in zip(self.names, self.masters, strict=True) if m.ndim == 2 and "layers" in n]
        other = [m for m in self.masters if not any(m is one for one in hidden)]
        matrices, vectors = [m for m in other if m.ndim == 2], [m for m in other if m.ndim < 2]
        self.optimizers = [
            torch.optim.Muon(hidden, lr=MUON_RATE, weight_decay=WEIGHT_DECAY, momentum=0.95),
            torch.optim.AdamW(
                [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                lr=ADAM_RATE,
                betas=(0.9, 0.98),
                foreach=True,
            ),
        ]
        self.rates = [MUON_RATE, ADAM_RATE]
        self.steps = 0

    def step(self, ids: "torch.Tensor", weights: "torch.Tensor", progress: float) -> float:
        """Learns from one batch; returns its loss, in nats a weighted token."""
        import torch

        logits = self.model(input_ids=ids, use_cache=False).logits[:, :-1].float()
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        weights = weights[:, 1:].flatten()
        loss = (losses * weights).sum() / weights.sum()
        loss.backward()
        for master, parameter in zip(self.masters, self.model.parameters(), strict=True):
            master.grad = parameter.grad.float() if parameter.grad is not None else None
            parameter.grad = None
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        decay = 1.0 if progress < DECAY_FROM else max(0.02, (1 - progress) / (1 - DECAY_FROM))
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * decay * min(1.0, (self.steps + 1) / WARM_UP_STEPS)
            optimizer.step()
        self._publish()
        self.steps += 1
        return loss.item()

    def finish(self) -> None:
        """Leaves the model in float32 with the exact weights."""
        self.model.float()
        self._publish()

    def _publish(self) -> None:
        import torch

        with torch.no_grad():
            for parameter, master in zip(self.model.parameters(), self.masters, strict=True):
                parameter.copy_(master)


def _tokenizer_texts() -> Iterator[str]:
    """What the tokenizer learns its pieces from: lessons of another seed, and the words of other tasks."""
    school = School("tokenizer")
    for lesson in school.lessons(6000, 1.0):
        yield "\n".join(prompt + completion for prompt, completion in lesson)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "tokenizers")}
