"""How a pocket model is pretrained: one flat loop, deterministic from a seed, that goes on where it was stopped."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.data.world.generator import HOME_REGIONS, HOME_SEED
from raisf.lm.pocket.batches import BATCH_TOKENS, Batches
from raisf.lm.pocket.build import SIZES, build_model, build_tokenizer
from raisf.lm.pocket.lessons import lessons
from raisf.lm.pocket.report import draw_curves, report
from raisf.lm.pocket.sampler import LessonSampler
from raisf.lm.pocket.trainer import Trainer, keep_memory
from raisf.utils.checkpointing import Unfinished, run_to_end
from raisf.utils.checks import check_named
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, check_replaceable, sha256_file, write_json

if TYPE_CHECKING:
    from rich.progress import Progress
    from transformers import PreTrainedTokenizerFast

# What each size reads: the shipped weights did.
TOKENS = {"tiny": 30_000_000, "pocket": 60_000_000, "large": 60_000_000, "t5": 8_000_000}
FILES = ("manifest.json", "learning.png", "model.safetensors", "*.json")
"""What tells a folder of ours from another model's, and all that lies in one."""
# Points of the learning curves, and the questions behind each skill's points.
CURVE_POINTS, EXAM_POINTS, CURVE_EXAM = 200, 12, 60


def train(
    out: Path | str,
    *,
    size: str = "pocket",
    tokens: int | None = None,
    seed: int = 0,
    threads: int = 2,
    regions: int = HOME_REGIONS,
    exam: int = 500,
    progress: bool = True,
) -> dict[str, Any]:
    """Pretrains a pocket model and writes it in the Hugging Face layout, with a manifest and its learning curves.

    What a stopped run had learnt lies beside `out`, in a folder whose name ends in `.unfinished`; the same call goes on
    from there, and ends with the very weights that one uninterrupted run ends with.

    Args:
        out: The folder, replaced whole when training is done.
        size: One of `SIZES`.
        tokens: How many tokens to read, padding included; the size's `TOKENS` if None.
        seed: Decides the initial weights and everything that is read.
        threads: CPU threads for the model; the lessons are made in a process of their own.
        regions: How many regions of the home world are taught by heart.
        exam: Questions for each skill in the report.
        progress: Shows a bar on standard error.

    Returns:
        The manifest: seed, tokens, seconds, hash of the weights, versions, report (skill -> share right, interval, n).

    Raises:
        InputError: An unknown size, no tokens, or an unfinished run with other settings in the way.
    """
    check_named("size", size, SIZES)
    tokens = TOKENS[size] if tokens is None else tokens
    if tokens < BATCH_TOKENS:
        raise InputError(f"{tokens} tokens are less than one step; give at least {BATCH_TOKENS}")
    out = Path(out)
    check_replaceable(out, *FILES)
    import torch

    from raisf.utils.progress import ProgressBars

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    keep_memory()
    tokenizer = build_tokenizer(_tokenizer_texts())
    model = build_model(size, seed)
    if torch.cuda.is_available():
        torch.nn.Module.cuda(model)
    settings = {"tokens": tokens, "size": size, "seed": seed, "regions": regions, "versions": _versions()}
    unfinished = Unfinished(out, settings)
    trainer = Trainer(model)
    bar = ProgressBars(progress)
    with bar, _Pretraining(trainer, tokenizer, settings, unfinished, min(exam, CURVE_EXAM), bar) as pretraining:
        run_to_end(pretraining)
    at = pretraining.at
    trainer.finish()
    manifest = {
        "size": size,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seed": seed,
        "tokens": at["read"],
        "seconds": round(at["seconds"]),
        "home": {"seed": HOME_SEED, "regions": regions},
        "versions": settings["versions"],
        "report": report(model, tokenizer, exam, regions),
        "curve": at["curve"],
        "skills": at["skills"],
    }
    with atomic_folder(out, *FILES) as folder:
        # Half the bytes of float32, and on most machines the loop computes in bfloat16 anyway.
        model.bfloat16().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        manifest["weights_sha256"] = sha256_file(folder / "model.safetensors")
        write_json(folder / "manifest.json", manifest)
        draw_curves(manifest, folder / "learning.png")
    unfinished.remove()
    return manifest


class _Pretraining:
    """A pretraining under way, a chunk of lessons at a time: a `raisf.utils.checkpointing.Resumable`.

    Attributes:
        at: Where it is: chunks and tokens made, tokens read, seconds, the curves.
    """

    def __init__(
        self,
        trainer: Trainer,
        tokenizer: "PreTrainedTokenizerFast",
        settings: dict[str, Any],
        unfinished: Unfinished,
        exam: int,
        bar: "Progress",
    ):
        self._trainer, self._tokenizer, self._settings, self._exam = trainer, tokenizer, settings, exam
        self._unfinished, self._bar = unfinished, bar
        self._stack = ExitStack()
        self._started = time.monotonic()
        self._before = 0.0
        self.at: dict[str, Any] = {"chunk": 0, "made": 0, "read": 0, "seconds": 0.0, "curve": [], "skills": []}
        self._next: list[Any] | None = None

    def __enter__(self) -> "_Pretraining":
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    @property
    def over(self) -> bool:
        return self._next is None

    def restore(self) -> None:
        self.at = self._unfinished.load(lambda path, at: self._trainer.load(path, at.pop("steps"))) or self.at
        self._before, tokens = self.at["seconds"], self._settings["tokens"]
        judging = self._trainer.model.config.is_encoder_decoder
        seed, regions = self._settings["seed"], self._settings["regions"]
        batches = Batches(self._tokenizer, seed, tokens, regions, self.at["chunk"], self.at["made"], judging)
        self._chunks = iter(self._stack.enter_context(batches))
        self._task = self._bar.add_task("pretraining", total=tokens, completed=self.at["read"])
        self._next = next(self._chunks, None)

    def advance(self) -> None:
        at, tokens, chunk = self.at, self._settings["tokens"], self._next
        assert chunk is not None
        for ids, weights in chunk:
            device = self._trainer.model.device
            loss = self._trainer.step(ids.to(device), weights.to(device), at["read"] / tokens)
            at["read"] += ids.numel()
            if not at["curve"] or at["read"] - at["curve"][-1]["tokens"] > tokens / CURVE_POINTS:
                at["curve"].append({"tokens": at["read"], "loss": round(loss, 4)})
            self._bar.update(self._task, completed=min(at["read"], tokens), score=f"loss {loss:.3f}")
        at["chunk"] += 1
        at["made"] += len(chunk) * BATCH_TOKENS
        at["seconds"] = round(self._before + time.monotonic() - self._started, 1)
        if at["read"] < tokens and at["read"] // (tokens / EXAM_POINTS) > len(at["skills"]):
            found = report(self._trainer.model, self._tokenizer, self._exam, self._settings["regions"], answers=False)
            at["skills"].append({"tokens": at["read"], **{skill: one["right"] for skill, one in found.items()}})
        self._next = next(self._chunks, None)

    def save(self) -> None:
        self._unfinished.save(self._trainer.save, {"steps": self._trainer.steps, **self.at})


def _tokenizer_texts() -> Iterator[str]:
    """What the tokenizer learns its pieces from: lessons of another seed."""
    for lesson in lessons(LessonSampler("tokenizer"), 6000):
        yield "\n".join(prompt + completion for prompt, completion in lesson)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "tokenizers")}
