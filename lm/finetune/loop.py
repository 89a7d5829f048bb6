"""A finetuning run from its last checkpoint to its end, with a bar."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raisf.lm.finetune.training import FinetuneRun
from raisf.utils.checkpointing import SAVE_SECONDS, run_to_end
from raisf.utils.progress import ProgressBars


@dataclass(frozen=True)
class _Finetuning:
    """A run and where its checkpoint is: a `raisf.utils.checkpointing.Resumable`."""

    run: FinetuneRun
    checkpoint: Path
    identity: str
    show: Callable[[], None]

    @property
    def over(self) -> bool:
        return self.run.over

    def restore(self) -> None:
        self.run.restore(self.checkpoint, self.identity)
        self.show()

    def advance(self) -> None:
        self.run.epoch(self.show, SAVE_SECONDS)

    def save(self) -> None:
        self.run.save(self.checkpoint, self.identity)
        self.show()


def finish(run: FinetuneRun, checkpoint: Path, identity: str, name: str, progress: bool) -> None:
    """Goes on from the checkpoint, where there is one of this identity, until the run is over."""
    epochs = run.training.epochs
    with ProgressBars(progress) as bars:
        task = bars.add_task(f"training {name}", total=epochs * run.batches)

        def show() -> None:
            point = run.curve[-1] if run.curve else None
            score = f"validation: loss {point['loss']:.3f}, exact {point['exact']:.1%}" if point else ""
            bars.update(task, completed=run.steps, score=score)

        run_to_end(_Finetuning(run, checkpoint, identity, show), every=0)
        if run.steps < epochs * run.batches:
            bars.end(task, f"stopped early, after {len(run.curve) - 1} of {epochs} epochs")
