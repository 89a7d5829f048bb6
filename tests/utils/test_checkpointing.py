"""A training that is stopped anywhere ends as one that was not."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from raisf.utils import checkpointing
from raisf.utils.checkpointing import Unfinished, run_to_end
from raisf.utils.errors import InputError


@dataclass
class Counting:
    """Ten steps, whose result depends on all of them; stopped before one of them."""

    unfinished: Unfinished
    stopped_before: int = 10
    at: dict[str, Any] = field(default_factory=lambda: {"step": 0, "sum": 0})
    steps: int = 0
    saves: int = 0

    @property
    def over(self) -> bool:
        return self.at["step"] == 10

    def restore(self) -> None:
        self.at = self.unfinished.load(lambda path, at: at.update(sum=int(path.read_text()))) or self.at

    def advance(self) -> None:
        if self.at["step"] == self.stopped_before:
            raise KeyboardInterrupt
        self.steps += 1
        self.at = {"step": self.at["step"] + 1, "sum": 3 * self.at["sum"] + self.at["step"]}

    def save(self) -> None:
        self.saves += 1
        self.unfinished.save(lambda path: path.write_text(str(self.at["sum"])) and None, {"step": self.at["step"]})


def counting(folder: Path, settings: int = 1, **options: Any) -> Counting:
    return Counting(Unfinished(folder / "out", {"seed": settings}), **options)


@pytest.fixture
def saving_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "SAVE_SECONDS", 0)


@pytest.mark.usefixtures("saving_always")
def test_a_stopped_training_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    whole = counting(tmp_path / "whole")
    run_to_end(whole)
    stopped = counting(tmp_path, stopped_before=6)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(stopped)
    resumed = counting(tmp_path)
    run_to_end(resumed)
    assert (stopped.steps, resumed.steps) == (6, 4)
    assert resumed.at == whole.at
    resumed.unfinished.remove()
    again = counting(tmp_path)
    run_to_end(again)
    assert again.steps == 10


def test_a_checkpoint_that_was_just_being_replaced_when_its_process_was_killed_is_gone_on_from(tmp_path: Path) -> None:
    stopped = Counting(Unfinished(tmp_path / "out", {}), stopped_before=7)
    stopped.at = {"step": 4, "sum": 9}
    stopped.save()
    folder = stopped.unfinished.folder
    folder.rename(folder.with_name(f".{folder.name}.abcdefgh.old"))
    stopped.restore()
    assert stopped.at["step"] == 4


def test_checkpoints_are_as_far_apart_as_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr(checkpointing.time, "monotonic", lambda: next(seconds))
    saves = []
    for between in (0, 5, checkpointing.SAVE_SECONDS):
        monkeypatch.setattr(checkpointing, "SAVE_SECONDS", between)
        run_to_end(training := counting(tmp_path / str(between)))
        saves.append(training.saves)
    assert saves == [10, 2, 0]


@pytest.mark.usefixtures("saving_always")
def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    run_to_end(counting(tmp_path))
    with pytest.raises(InputError, match="unfinished training with other settings: give the same, or delete"):
        run_to_end(counting(tmp_path, settings=2))
