"""How a pocket model is pretrained: one flat loop, deterministic from a seed, that goes on where it was stopped."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raisf.data.world.generator import HOME_REGIONS, HOME_SEED
from raisf.lm.pocket.batches import BATCH_TOKENS, Batches
from raisf.lm.pocket.build import SIZES, build_model, build_tokenizer
from raisf.lm.pocket.lessons import lessons
from raisf.lm.pocket.report import draw_curves, report
from raisf.lm.pocket.sampler import LessonSampler
from raisf.lm.pocket.trainer import Trainer, keep_memory
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, check_replaceable, read_json, sha256_file, write_json

# What each size reads: the shipped weights did.
TOKENS = {"tiny": 30_000_000, "pocket": 60_000_000, "large": 60_000_000, "t5": 8_000_000}
# A stopped training loses at most this much.
SAVE_SECONDS = 120
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
    if size not in SIZES:
        raise InputError(f"unknown size {size!r}: choose one of {', '.join(SIZES)}")
    tokens = TOKENS[size] if tokens is None else tokens
    if tokens < BATCH_TOKENS:
        raise InputError(f"{tokens} tokens are less than one step; give at least {BATCH_TOKENS}")
    out = Path(out)
    check_replaceable(out, "model.safetensors")
    import torch

    from raisf.utils.progress import ProgressBars

    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    keep_memory()
    tokenizer = build_tokenizer(_tokenizer_texts())
    model = build_model(size, seed)
    if torch.cuda.is_available():
        torch.nn.Module.cuda(model)
    trainer = Trainer(model)
    settings = {"tokens": tokens, "size": size, "seed": seed, "regions": regions, "versions": _versions()}
    unfinished = _Unfinished(out.with_name(f"{out.name}.unfinished"), settings)
    at: dict[str, Any] = unfinished.load(trainer) or {
        "chunk": 0,
        "made": 0,
        "read": 0,
        "seconds": 0.0,
        "curve": [],
        "skills": [],
    }
    started = saved = time.monotonic()
    before, curve, skills = at["seconds"], at["curve"], at["skills"]
    bar = ProgressBars(progress)
    judging = model.config.is_encoder_decoder
    with bar, Batches(tokenizer, seed, tokens, regions, at["chunk"], at["made"], judging) as stream:
        task = bar.add_task("pretraining", total=tokens, completed=at["read"])
        for chunk in stream:
            for ids, weights in chunk:
                loss = trainer.step(ids.to(model.device), weights.to(model.device), at["read"] / tokens)
                at["read"] += ids.numel()
                if not curve or at["read"] - curve[-1]["tokens"] > tokens / CURVE_POINTS:
                    curve.append({"tokens": at["read"], "loss": round(loss, 4)})
                bar.update(task, completed=min(at["read"], tokens), score=f"loss {loss:.3f}")
            at["chunk"] += 1
            at["made"] += len(chunk) * BATCH_TOKENS
            at["seconds"] = round(before + time.monotonic() - started, 1)
            if at["read"] < tokens and at["read"] // (tokens / EXAM_POINTS) > len(skills):
                right = {
                    skill: one["right"]
                    for skill, one in report(model, tokenizer, min(exam, CURVE_EXAM), regions, answers=False).items()
                }
                skills.append({"tokens": at["read"], **right})
            if time.monotonic() - saved > SAVE_SECONDS:
                unfinished.save(trainer, at)
                saved = time.monotonic()
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
        "curve": curve,
        "skills": skills,
    }
    with atomic_folder(out, "model.safetensors") as folder:
        # Half the bytes of float32, and the loop computes in bfloat16 anyway.
        model.bfloat16().save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        manifest["weights_sha256"] = sha256_file(folder / "model.safetensors")
        write_json(folder / "manifest.json", manifest)
        draw_curves(manifest, folder / "learning.png")
    unfinished.remove()
    return manifest


class _Unfinished:
    """What a training that was stopped leaves behind: its settings, where it was, weights and optimizers."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = folder, settings

    def save(self, trainer: Trainer, at: dict[str, Any]) -> None:
        with atomic_folder(self.folder, "state.safetensors") as folder:
            trainer.save(folder / "state.safetensors")
            write_json(folder / "at.json", {"settings": self.settings, "steps": trainer.steps, **at})

    def load(self, trainer: Trainer) -> dict[str, Any] | None:
        if not self.folder.is_dir():
            return None
        at = read_json(self.folder / "at.json")
        if at.pop("settings") != self.settings:
            raise InputError(
                f"{self.folder} holds an unfinished training with other settings: give the same, or delete that folder"
            )
        trainer.load(self.folder / "state.safetensors", at.pop("steps"))
        return at

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _tokenizer_texts() -> Iterator[str]:
    """What the tokenizer learns its pieces from: lessons of another seed."""
    for lesson in lessons(LessonSampler("tokenizer"), 6000):
        yield "\n".join(prompt + completion for prompt, completion in lesson)


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "tokenizers")}
