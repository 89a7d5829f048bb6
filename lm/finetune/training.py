"""A training under way: the loop, its measurements, and its checkpoints."""

import json
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from raisf.lm.finetune.trainable import Method, check_adaptable, trainable, write
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import Loras, lora_hash
from raisf.lm.local.tokenization import TokenizedRow
from raisf.utils import schedule
from raisf.utils.checkpointing import state_of, take_up
from raisf.utils.checks import check, check_least, check_named, is_number
from raisf.utils.errors import InputError
from raisf.utils.space import naming_full_disk

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator

# Below this validation loss (nats per token of a completion), and with every row exact, nothing is left to learn.
LEARNT = 0.005
# The share of the steps in which the rate rises from 0; it then falls to 0 in a straight line.
WARM_UP = 0.06
# Rows of so many batches are sorted by length before they are cut: little padding, and still another mix each epoch.
SORTED_BATCHES = 16
# Tokens, padding among them, that a process reads at once: of each, SmolLM2 keeps 2 MB until the gradients are there.
TOKENS_AT_ONCE = 2048


@dataclass(frozen=True, slots=True)
class Training:
    """How weights are trained.

    Args:
        method: "lora": an adapter on every linear layer of the frozen base. "full": all weights, a whole model.
        learning_rate: 5e-4, the paper's (Liu et al. 2024, section 4.4).
        epochs: At most; the paper does not say. Early stopping mostly ends it before.
        patience: Epochs without a better validation loss after which training stops. The best epoch's weights are kept.
        batch_size: Rows a step.
        rank: Of LoRA's matrices; their scale is alpha / rank with alpha twice the rank.
        layers: How many of the upper layers get an adapter; None for all. The backward pass ends below the lowest.
        seed: Of the initial matrices and the order of the rows.
        processes: That share each step's rows, a GPU each where there are GPUs (`raisf.lm.finetune.parallel`).
        go_on: Train the LoRA adapter that the LM answers with further, instead of a new one. Its rank and layers hold.
    """

    method: Method = "lora"
    learning_rate: float = 5e-4
    epochs: int = 10
    patience: int = 2
    batch_size: int = 16
    rank: int = 16
    layers: int | None = None
    seed: int = 0
    processes: int = 1
    go_on: bool = False

    def __post_init__(self) -> None:
        check_named("method", self.method, get_args(Method))
        check_least(self, epochs=1, patience=1, batch_size=1, rank=1, processes=1)
        if self.layers is not None:
            check_least(self, layers=1)
        rate = self.learning_rate
        check("the learning rate", rate, is_number(rate) and 0 < rate < 1, "a number above 0 and below 1")
        if self.go_on and (self.method != "lora" or self.layers is not None):
            raise InputError("to go on with a LoRA adapter keeps its layers: leave out layers, and method='full'")

    def told(self) -> dict[str, Any]:
        """The settings for reports and identities; those added later only where they are not at their defaults."""
        return {name: value for name, value in asdict(self).items() if name != "go_on" or value}


def check_trainable(lm: LocalLM, training: Training) -> None:
    """Makes sure that an LM's base can be trained so, before other work.

    Raises:
        InputError: Layers are chosen where they are no choice, or more than there are. Or the rank is above the width
            of the widest layer: the product of such matrices has no higher rank, and has more weights than the layer.
            Or the engine cannot run an adapter of this base, or the one to go on with; or there is none to go on with.
    """
    import torch

    if training.go_on:
        if lm.lora is None:
            raise InputError(
                f"{lm.model} answers without a LoRA adapter, and there is none to go on with (--go-on): leave it out, "
                "or name the predictors that have one (--train-predictors)"
            )
        # Of another kind, peft would also write into the base, which others share.
        Loras(lm.base_engine.model).place(lm.lora, lora_hash(lm.lora))
        return
    if training.layers is not None:
        config: Any = lm.base_engine.model.config.get_text_config()
        if training.method != "lora" or config.is_encoder_decoder:
            raise InputError("layers is for LoRA on a causal model: leave it out")
        if training.layers > config.num_hidden_layers:
            raise InputError(
                f"{lm.base} has {config.num_hidden_layers} layers: give at most so many, not {training.layers}"
            )
    if training.method == "lora":
        linear = [layer for layer in lm.base_engine.model.modules() if isinstance(layer, torch.nn.Linear)]
        width = max((min(layer.weight.shape) for layer in linear), default=training.rank)
        if training.rank > width:
            raise InputError(
                f"the rank must be at most {width}, the width of {lm.base}'s layers; found {training.rank}"
            )
        check_adaptable(lm, training.rank, training.layers)


def total_weight(rows: Iterable[TokenizedRow]) -> float:
    """The weight of some rows in a loss: every token of a completion counts with the weight of its row."""
    return sum(row.weight * (len(row.tokens) - row.start) for row in rows)


def _said(rows: Iterable[TokenizedRow]) -> int:
    """The tokens of some rows' completions."""
    return sum(len(row.tokens) - row.start for row in rows)


class FinetuneRun:
    """A training under way.

    Args:
        lm: Its base is trained on, and stays as it is.
        train: To learn from.
        validation: To measure on.
        training: How.
        accelerator: accelerate's, in one of several processes that share the training; None where this one is alone.

    Attributes:
        curve: A point an epoch, the first before any training: epoch, train_loss, loss (nats a completion's token),
            exact (the share of validation rows whose greedy completion would be the row's own).
        best_epoch: The epoch whose weights are published.
        steps: Batches learnt from.
        tokens: Tokens learnt from or read, prompts included.
        learnt: The sum of the losses of this epoch's steps.
        seconds: Spent, over all processes that worked on it.

    Raises:
        InputError: See `check_trainable`.
    """

    def __init__(
        self,
        lm: LocalLM,
        train: list[TokenizedRow],
        validation: list[TokenizedRow],
        training: Training,
        accelerator: "Accelerator | None" = None,
    ):
        import torch

        check_trainable(lm, training)
        self.lm, self.train, self.validation, self.training = lm, train, validation, training
        with torch.random.fork_rng():
            torch.manual_seed(training.seed % 2**63)
            self.model = trainable(lm, training.method, training.rank, training.layers, training.go_on)
        self.weights = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(
            self.weights.values(), lr=training.learning_rate, weight_decay=0.0, foreach=True
        )
        self._accelerator = accelerator
        self._rank, self._count = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
        # Brings the processes' gradients together.
        self._shared = accelerator.prepare_model(self.model) if accelerator else self.model
        self.batches = -(-len(train) // training.batch_size)  # an epoch's
        self._mean = total_weight(train) / _said(train)
        self.steps, self.tokens, self.learnt, self.seconds = 0, 0, 0.0, 0.0
        self.curve: list[dict[str, Any]] = []
        self.best: dict[str, torch.Tensor] = {}
        self.best_epoch = 0

    @property
    def over(self) -> bool:
        """Whether all epochs are done, none of the last ones was better, or nothing is left to learn."""
        epochs = len(self.curve) - 1
        if epochs < 0:
            return False
        learnt = self.curve[-1]["exact"] == 1 and self.curve[-1]["loss"] < LEARNT
        return epochs >= self.training.epochs or epochs - self.best_epoch >= self.training.patience or learnt

    def epoch(self, stepped: Callable[[], None], seconds: float = math.inf) -> None:
        """Learns all rows once, measures, and keeps the weights if they are the best. The first only measures.

        Args:
            stepped: Is called after each step.
            seconds: After so many it stops within the epoch; the next call goes on there.
        """
        import torch

        started = time.monotonic()
        if self.curve:
            self.model.train()
            done = self.steps - (len(self.curve) - 1) * self.batches
            with torch.random.fork_rng():
                for batch in islice(self._shuffled(len(self.curve)), done, None):
                    # A T5 drops out: what it drops follows from the seed and the step, also after a kill.
                    torch.manual_seed((self.training.seed + self.steps) % 2**63)
                    self.learnt += self._step(batch)
                    stepped()
                    if time.monotonic() - started >= seconds and self.steps < len(self.curve) * self.batches:
                        self.seconds += time.monotonic() - started
                        return
        self.model.eval()
        loss, exact = self._measure()
        shown = round(self.learnt / self.batches, 4) if self.curve else None
        self.curve.append({"epoch": len(self.curve), "train_loss": shown, "loss": loss, "exact": exact})
        self.learnt = 0.0
        if loss < min((point["loss"] for point in self.curve[:-1]), default=math.inf):
            self.best_epoch = len(self.curve) - 1
            self.best = {name: weights.detach().clone() for name, weights in self.weights.items()}
        self.seconds += time.monotonic() - started

    def _shuffled(self, epoch: int) -> Iterator[list[TokenizedRow]]:
        """An epoch's batches, each of rows of similar length."""
        rng, size = random.Random(f"{self.training.seed}/{epoch}"), self.training.batch_size
        rows = rng.sample(self.train, len(self.train))
        batches = []
        for start in range(0, len(rows), size * SORTED_BATCHES):
            near = sorted(rows[start : start + size * SORTED_BATCHES], key=lambda row: len(row.tokens))
            batches += [near[place : place + size] for place in range(0, len(near), size)]
        rng.shuffle(batches)
        return iter(batches)

    def _step(self, batch: list[TokenizedRow]) -> float:
        if total_weight(batch) == 0:  # nothing to learn from, in any process
            self._count_step(batch)
            return 0.0
        # By its own weight a batch would count as any other, and a row's only against those that it happens to be with.
        whole, learnt = self._mean * _said(batch), 0.0
        for piece in self._pieces(batch):
            # A process with no row of its own takes part with one that does not count: others wait for its gradients.
            own = piece[self._rank :: self._count] or [replace(piece[0], weight=0.0)]
            losses, weights, _ = self._losses(self._shared, own)
            loss = (losses * weights).sum() / whole
            (loss * self._count).backward()  # the gradients' mean over the processes is taken
            learnt += loss.item()
        share = schedule.linear(self.steps, self.training.epochs * self.batches, WARM_UP)
        schedule.take_step(self.optimizer, self.weights.values(), self.training.learning_rate * share, 1.0)
        self._count_step(batch)
        return self._together([learnt])[0]

    def _pieces(self, batch: list[TokenizedRow]) -> list[list[TokenizedRow]]:
        """A step's rows in pieces that fit into memory with their activations; the same pieces in all processes."""
        pieces: list[list[TokenizedRow]] = [[]]
        for row in sorted(batch, key=lambda row: len(row.tokens)):
            each = -(-(len(pieces[-1]) + 1) // self._count)  # rows of the process that has most of the piece
            if pieces[-1] and each * len(row.tokens) > TOKENS_AT_ONCE:
                pieces.append([])
            pieces[-1].append(row)
        return pieces

    def _count_step(self, batch: list[TokenizedRow]) -> None:
        self.steps += 1
        self.tokens += sum(len(row.tokens) for row in batch)

    def _measure(self) -> tuple[float, float]:
        """Loss and the share of rows of which every token is the likeliest, over the validation rows."""
        import torch

        rows = sorted(self.validation, key=lambda row: len(row.tokens))
        starts = range(0, len(rows), self.training.batch_size)
        total = weight = right = 0.0
        with torch.inference_mode():
            for start in starts[self._rank :: self._count]:
                losses, weights, exact = self._losses(self.model, rows[start : start + self.training.batch_size])
                total += float((losses * weights).sum())
                weight += float(weights.sum())
                right += int(exact.sum())
        total, weight, right = self._together([total, weight, right])
        return round(total / weight, 4), round(right / len(rows), 4)

    def _together(self, values: list[float]) -> list[float]:
        """The sums of some values over all processes."""
        import torch

        if self._accelerator is None:
            return values
        mine: Any = torch.tensor(values, dtype=torch.float64, device=self._accelerator.device)
        return self._accelerator.reduce(mine, "sum").tolist()  # pyright: ignore[reportAttributeAccessIssue]

    def _losses(self, model: Any, batch: list[TokenizedRow]) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        """By row and place of its completion: the loss in nats, its weight (0 outside); by row whether all is exact."""
        import torch

        base = self.lm.base_engine
        half = self.training.method == "lora" and base.model.dtype is torch.bfloat16
        with torch.autocast(base.model.device.type, torch.bfloat16, enabled=half):
            logits, targets, weights = base.compute.completions(model, base.model, batch)
        losses = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), reduction="none"
        ).view_as(weights)
        exact = ((logits.argmax(-1) == targets) | (weights == 0)).all(-1)
        return losses, weights, exact

    # Checkpoints and the result

    def save(self, path: Path, identity: str) -> None:
        """Writes a checkpoint in the place of the one before, whole or not at all."""
        from safetensors.torch import save_file

        if self._rank:
            return  # the first process writes for all
        tensors = {f"best/{name}": tensor for name, tensor in self.best.items()}
        tensors |= state_of(self.weights, self.optimizer)
        kept = {name: getattr(self, name) for name in ("steps", "tokens", "learnt", "seconds", "curve", "best_epoch")}
        temporary = path.with_suffix(".part")
        contiguous = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
        with naming_full_disk(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file(contiguous, temporary, metadata={"run": json.dumps({"identity": identity, **kept})})
            temporary.replace(path)

    def restore(self, path: Path, identity: str) -> None:
        """Goes on from a checkpoint, if there is one and it is of this very training."""
        from safetensors import SafetensorError, safe_open

        if not path.is_file():
            return
        try:
            with safe_open(path, "pt", device=str(self.lm.base_engine.model.device)) as file:
                kept = json.loads(file.metadata()["run"])
                if kept.pop("identity") != identity:
                    return
                tensors = {name: file.get_tensor(name) for name in file.keys()}
        except (SafetensorError, KeyError, TypeError, ValueError):
            return  # torn by a power cut: the training begins anew
        for name, value in kept.items():
            setattr(self, name, value)
        self.best = {name: tensors[f"best/{name}"] for name in self.weights}
        take_up(self.weights, self.optimizer, tensors)

    def publish(self, folder: Path) -> None:
        """Writes the best weights."""
        import torch

        with torch.no_grad():
            for name, weights in self.weights.items():
                weights.copy_(self.best[name])
        write(self.model, self.lm, self.training.method, folder)
