"""A finetuning run from its last checkpoint to its end, with a bar."""

from pathlib import Path

from raisf.lm.finetune.training import FinetuneRun
from raisf.utils.checkpointing import SAVE_SECONDS
from raisf.utils.progress import ProgressBars


def finish(run: FinetuneRun, checkpoint: Path, identity: str, name: str, progress: bool) -> None:
    """Goes on from the checkpoint, where there is one of this identity, until the run is over."""
    epochs = run.training.epochs
    with ProgressBars(progress) as bars:
        task = bars.add_task(f"training {name}", total=epochs * run.batches)

        def show() -> None:
            point = run.curve[-1] if run.curve else None
            score = f"validation: loss {point['loss']:.3f}, exact {point['exact']:.1%}" if point else ""
            bars.update(task, completed=run.steps, score=score)

        run.restore(checkpoint, identity)
        show()
        while not run.over:
            run.epoch(show, SAVE_SECONDS)
            run.save(checkpoint, identity)
            show()
        if run.steps < epochs * run.batches:
            bars.end(task, f"stopped early, after {len(run.curve) - 1} of {epochs} epochs")
