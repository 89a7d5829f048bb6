"""A training that can be stopped at any time: it goes on from its last checkpoint, to the same weights."""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, read_json, write_json
from raisf.utils.leftovers import sweep

if TYPE_CHECKING:
    import torch

SAVE_SECONDS = 120.0
"""A stopped training loses at most this much, where a step takes less."""


class Resumable(Protocol):
    """A training under way. What it does next follows from its state alone."""

    @property
    def over(self) -> bool:
        """Whether there is nothing more to do."""
        ...

    def restore(self) -> None:
        """Take up the state of the last checkpoint, if there is one."""
        ...

    def advance(self) -> None:
        """Do the next piece of work: a step, some steps, an epoch."""
        ...

    def save(self) -> None:
        """Write a checkpoint in the place of the one before, whole or not at all."""
        ...


def run_to_end(training: Resumable) -> None:
    """Do what is left of a training, from its last checkpoint on."""
    training.restore()
    saved = time.monotonic()
    while not training.over:
        training.advance()
        if time.monotonic() - saved >= SAVE_SECONDS:
            training.save()
            saved = time.monotonic()


class Unfinished:
    """The folder that a stopped training leaves beside its result: tensors, and the rest of its state as JSON.

    Args:
        out: The result's folder; this one's name ends in `.unfinished`.
        settings: All that decides the result, as JSON. A checkpoint of others is refused.
    """

    def __init__(self, out: Path, settings: dict[str, Any]):
        self.folder = out.with_name(f"{out.name}.unfinished")
        self.settings = settings

    def save(self, write: Callable[[Path], None], state: dict[str, Any]) -> None:
        """Write a checkpoint.

        Args:
            write: Writes the tensors to a file.
            state: The rest.
        """
        with atomic_folder(self.folder, "state.safetensors", "at.json") as folder:
            write(folder / "state.safetensors")
            write_json(folder / "at.json", {"settings": self.settings, **state})

    def load(self, read: Callable[[Path, dict[str, Any]], None]) -> dict[str, Any] | None:
        """The state of the last checkpoint; None where there is none.

        Args:
            read: Is given the file of the tensors, and the state.

        Raises:
            InputError: It is of a training with other settings, or something else is in its place.
        """
        sweep(self.folder)  # one that was just being replaced is put back
        if not self.folder.is_dir():
            return None
        if not (self.folder / "at.json").is_file():
            raise InputError(f"{self.folder} holds no unfinished training, and is in its place: move or delete it")
        state = read_json(self.folder / "at.json")
        if state.pop("settings") != self.settings:
            raise InputError(
                f"{self.folder} holds an unfinished training with other settings: give the same, or delete that folder"
            )
        read(self.folder / "state.safetensors", state)
        return state

    def remove(self) -> None:
        """Delete it: the training is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)


def state_of(weights: "Mapping[str, torch.Tensor]", optimizer: "torch.optim.AdamW") -> "dict[str, torch.Tensor]":
    """Weights by name and what the optimizer has kept of each, as `take_up` wants them; not copied."""
    tensors = {}
    for name, tensor in weights.items():
        tensors[f"weights/{name}"] = tensor.detach()
        for moment, kept in optimizer.state.get(tensor, {}).items():
            tensors[f"{moment}/{name}"] = kept
    return tensors


def take_up(
    weights: "Mapping[str, torch.Tensor]", optimizer: "torch.optim.AdamW", tensors: "Mapping[str, torch.Tensor]"
) -> None:
    """Sets weights and optimizer to what `state_of` gave."""
    import torch

    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(tensors[f"weights/{name}"])
            if f"step/{name}" in tensors:  # no step, no moments
                moments = {moment: tensors[f"{moment}/{name}"] for moment in ("exp_avg", "exp_avg_sq")}
                optimizer.state[tensor] = {"step": tensors[f"step/{name}"].cpu(), **moments}
