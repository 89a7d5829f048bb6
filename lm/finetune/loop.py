"""A finetuning run from its last checkpoint to its end, with a bar."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from raisf.lm.finetune.training import FinetuneRun
from raisf.utils.checkpointing import run_to_end


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
        self.run.epoch(self.show)

    def save(self) -> None:
        self.run.save(self.checkpoint, self.identity)
        self.show()


def finish(run: FinetuneRun, checkpoint: Path, identity: str, name: str, progress: bool) -> None:
    """Goes on from the checkpoint, where there is one of this identity, until the run is over."""
    with _Bar(name, run, progress) as show:
        run_to_end(_Finetuning(run, checkpoint, identity, show), every=0)


class _Bar:
    """As a context, a function that shows how far a run is."""

    def __init__(self, name: str, run: FinetuneRun, shown: bool):
        from rich.console import Console
        from rich.progress import Progress, TextColumn, TimeRemainingColumn

        self.run = run
        self.progress = Progress(
            *Progress.get_default_columns()[:-1],
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=Console(stderr=True),
            disable=not shown,
        )
        total = run.training.epochs * run.batches
        self.task = self.progress.add_task(f"training {name}", total=total, state="")

    def __enter__(self) -> Callable[[], None]:
        self.progress.start()
        self.show()
        return self.show

    def show(self) -> None:
        point = self.run.curve[-1] if self.run.curve else None
        state = f"validation: loss {point['loss']:.3f}, exact {point['exact']:.0%}" if point else ""
        self.progress.update(self.task, completed=self.run.steps, state=state)

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
