"""How a ColBERT checkpoint is trained: one loop over colbert-ai's model, deterministic from a seed, that can resume.

colbert-ai's own `Trainer` is made for GPUs: it wraps the model in DistributedDataParallel with a GPU's number, its seed
is fixed, it goes through the triples once, cannot resume, and gives back no loss.
"""

import hashlib
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.retrieval.encoders.checkpoint import find_checkpoint, hash_folder
from raisf.retrieval.encoders.delta import PROVENANCE, SETTINGS
from raisf.retrieval.training.student import Example, Student
from raisf.retrieval.training.triples import Triple, check_triples
from raisf.utils import schedule
from raisf.utils.checkpointing import Unfinished, run_to_end
from raisf.utils.checks import check, check_least, is_number
from raisf.utils.files import atomic_folder, check_replaceable, dump_line, write_json
from raisf.utils.progress import progress_bar
from raisf.utils.text import print_of

if TYPE_CHECKING:
    from rich.progress import Progress

TRAINED = (PROVENANCE, SETTINGS, "*.json", "vocab.txt", "merges.txt", "*.model", "*.safetensors")
"""What tells a checkpoint's folder that was trained here, and all that lies in one."""

HELD_OUT, MOST_HELD_OUT = 0.1, 200
"""The share of the queries that is never trained on, and how many at most: the training is measured on them."""

POINTS = 100
"""Points of the loss curve."""

SORTED_BATCHES = 8
"""Triples of so many batches are sorted by length before they are cut: less padding, and another mix each epoch."""

WARM_UP = 0.1
"""The share of the steps in which the learning rate rises; then it falls to 0 in a straight line."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a checkpoint is trained.

    Args:
        epochs: How often each triple is learnt from. On a thousand triples more only learns them by heart.
        batch_size: Queries a step. Each is compared with all passages of the step, so larger is harder.
        negatives: Hard negatives that a query brings into its step.
        learning_rate: 1e-4, for a small encoder and some hundred steps; ColBERT's 3e-6 is for a BERT and 400,000.
        seed: Of the order, the negatives drawn and the queries held out.

    Raises:
        InputError: A number that makes no sense.
    """

    epochs: int = 2
    batch_size: int = 16
    negatives: int = 1
    learning_rate: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        check_least(self, epochs=1, batch_size=2, negatives=0)
        rate = self.learning_rate
        check("the learning rate", rate, is_number(rate) and 0 < rate < 1, "a number above 0 and below 1")


def train_checkpoint(
    triples: Sequence[Triple],
    out: Path | str,
    base: str | Path = "minilm",
    recipe: Recipe | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains a ColBERT checkpoint on triples and writes it, with `training.json`: what it was made from, and how.

    What a stopped run had learnt lies beside `out`, in a folder whose name ends in `.unfinished`; the same call goes on
    from there, and ends with the very weights that one uninterrupted run ends with.

    Args:
        triples: What to learn from (`raisf.retrieval.training.triples`).
        out: The folder: new, or a checkpoint to replace. `raisf index --checkpoint` takes it.
        base: The checkpoint to start from: "minilm", a folder or a hub id.
        recipe: How; the default one if None.
        progress: Whether to show a bar on standard error.

    Returns:
        sha256 of the checkpoint, triples, held_out (queries), steps, seconds, `before` and `after`: the loss on the
        queries held out and the share of them whose passage comes first among those of its step.

    Raises:
        InputError: Too few triples, no such base, `out` holds other things, or an unfinished run with other settings.

    Source: ColBERT, https://arxiv.org/abs/2004.12832, section 3.3; negatives from the batch as in ColBERTv2,
    https://arxiv.org/abs/2112.01488, section 3.2.
    """
    out, recipe = Path(out), recipe or Recipe()
    check_replaceable(out, *TRAINED)
    check_triples(triples)
    checkpoint = find_checkpoint(base)
    train, held_out = _split(triples, recipe.seed)
    settings = {
        "base": Path(base).name if Path(base).is_dir() else checkpoint.name,  # no paths of this machine
        "base_sha256": checkpoint.sha256,
        "triples_sha256": _hash(triples),
        "recipe": asdict(recipe),
        "versions": {name: version(name) for name in ("colbert-ai", "torch", "transformers")},
    }
    student = Student(checkpoint.path, checkpoint.augment, recipe.learning_rate)
    unfinished = Unfinished(out, settings)
    with progress_bar(progress) as bar:
        learning = _Learning(student, train, held_out, recipe, unfinished, bar)
        run_to_end(learning)
    at, total = learning.at, learning.total
    made = {
        "triples": len(triples),
        "held_out": len({example.query for batch in learning.exam for example in batch}),
        "steps": total,
        "before": at["held_out"][0],
        "after": at["held_out"][-1],
    }
    with atomic_folder(out, *TRAINED) as folder:
        _copy_base(checkpoint.path, folder)
        student.publish(folder)
        queries = {print_of(triple.query) for triple in triples} | checkpoint.seen_queries()
        # No times: the checkpoint's hash covers this file, and equal trainings are to make equal checkpoints.
        curves = {"curve": at["curve"], "held_out_curve": at["held_out"]}
        write_json(folder / PROVENANCE, {**settings, **made, **curves, "queries": sorted(queries)})
    unfinished.remove()
    return {"sha256": hash_folder(out.resolve()), **made, "seconds": round(at["seconds"], 1)}


class _Learning:
    """The steps of a training: a `raisf.utils.checkpointing.Resumable`, whose state is `at` and the student's."""

    def __init__(
        self,
        student: Student,
        train: list[Triple],
        held_out: list[Triple],
        recipe: Recipe,
        unfinished: Unfinished,
        bar: "Progress",
    ):
        self.student, self.train, self.recipe, self.unfinished, self.bar = student, train, recipe, unfinished, bar
        self.exam = list(_batches(held_out, recipe, "held out"))  # whole batches: a small one would be easier
        self.per_epoch = max(1, len(train) // recipe.batch_size)
        self.total = recipe.epochs * self.per_epoch
        self.batches: list[list[Example]] = []

    @property
    def over(self) -> bool:
        return self.at["step"] >= self.total

    def restore(self) -> None:
        kept = self.unfinished.load(lambda file, _: self.student.load(file))
        self.at: dict[str, Any] = kept or {
            "step": 0,
            "seconds": 0.0,
            "curve": [],
            "recent": [],
            "held_out": [self.student.measure(self.exam)],
        }
        self.before, self.started = self.at["seconds"], time.monotonic()
        self.task = self.bar.add_task("training", total=self.total, completed=self.at["step"])

    def advance(self) -> None:
        at = self.at
        epoch, place = divmod(at["step"], self.per_epoch)
        if place == 0 or not self.batches:
            self.batches = list(_batches(self.train, self.recipe, str(epoch)))
        loss = self.student.step(self.batches[place], schedule.linear(at["step"], self.total, WARM_UP))
        at["step"] += 1
        at["recent"].append(loss)
        if len(at["recent"]) == max(1, self.total // POINTS) or self.over:
            mean = sum(at["recent"]) / len(at["recent"])
            at["curve"].append({"step": at["step"], "loss": round(mean, 4)})
            at["recent"] = []
        if place + 1 == self.per_epoch:
            at["held_out"].append(self.student.measure(self.exam))
        self.bar.update(self.task, completed=at["step"], description=f"training, loss {loss:.3f}")
        at["seconds"] = self.before + time.monotonic() - self.started

    def save(self) -> None:
        self.unfinished.save(self.student.save, self.at)


def _hash(triples: Sequence[Triple]) -> str:
    lines = hashlib.sha256()
    for triple in triples:
        lines.update(dump_line(asdict(triple)).encode())
    return lines.hexdigest()


def _split(triples: Sequence[Triple], seed: int) -> tuple[list[Triple], list[Triple]]:
    """The triples to train on, and those held out; all of a query are on one side."""
    queries = sorted({triple.query for triple in triples})
    count = max(1, min(MOST_HELD_OUT, int(HELD_OUT * len(queries))))
    chosen = set(random.Random(f"{seed}/split").sample(queries, count))
    sides: tuple[list[Triple], list[Triple]] = [], []
    for triple in triples:
        sides[triple.query in chosen].append(triple)
    return sides


def _batches(triples: Sequence[Triple], recipe: Recipe, name: str) -> Iterator[list[Example]]:
    """An epoch's batches, each of triples of similar length, every triple with the negatives drawn for it.

    What is left over after the last whole batch has its turn in another epoch; fewer than a batch are one batch.
    """
    rng, size = random.Random(f"{recipe.seed}/{name}"), min(recipe.batch_size, len(triples))
    rows = rng.sample(list(triples), len(triples))
    batches = []
    for start in range(0, len(rows) - len(rows) % size, size * SORTED_BATCHES):
        near = rows[start : start + size * SORTED_BATCHES]
        near = sorted(near[: len(near) - len(near) % size], key=lambda triple: len(triple.positive))
        batches += [near[place : place + size] for place in range(0, len(near), size)]
    for batch in rng.sample(batches, len(batches)):
        yield [
            Example(
                triple.query,
                (triple.positive, *rng.sample(triple.negatives, min(recipe.negatives, len(triple.negatives)))),
                frozenset(triple.answers),
            )
            for triple in batch
        ]


def _copy_base(base: Path, folder: Path) -> None:
    """What a checkpoint keeps of the one that it grew from: tokenizer and settings."""
    for file in sorted(base.iterdir()):
        kept = file.suffix in {".json", ".txt", ".model", ".metadata"} and not file.name.endswith(".index.json")
        if file.is_file() and kept and file.name != PROVENANCE:
            shutil.copyfile(file, folder / file.name)
