"""If these failed, a program loaded while its artifact is made anew would be half of one and half of the other."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from raisf.optimize import artifact
from raisf.optimize.artifact import load, save
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def program(threshold: float, instructions: str) -> RAISF:
    """One that is told from others by an option and by a prompt."""
    made: Any = RAISF(lambda query, k: [], know_threshold=threshold)
    made.know.signature = made.know.signature.with_instructions(instructions)
    return made


@pytest.mark.parametrize("gone", [False, True])
def test_an_artifact_that_is_replaced_while_it_is_read_is_loaded_whole(
    gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `raisf compile` ends beside `raisf eval`; of 438 loads 113 had one's thresholds and the other's prompts."""
    save(program(0.25, "The old one."), tmp_path / "a")
    read, opened = artifact.read, []

    def replaced(folder: Path) -> Any:
        found = read(folder)
        opened.append(found)
        if len(opened) == 1 and gone:
            shutil.move(folder, tmp_path / "away")  # between the two renames that replace it
        elif len(opened) == 1:
            save(program(0.75, "The new one."), folder)
        return found

    def stamp(folder: Path, _stamp: Any = artifact._stamp) -> str | None:
        told = _stamp(folder)
        if (tmp_path / "away").exists():
            shutil.move(tmp_path / "away", folder)
            save(program(0.75, "The new one."), folder)
        return told

    monkeypatch.setattr(artifact, "read", replaced)
    monkeypatch.setattr(artifact, "_stamp", stamp)
    loaded: Any = load(tmp_path / "a", lm=ScriptedLM({}), retriever=lambda query, k: [])
    assert (loaded.know_threshold, loaded.know.signature.instructions) == (0.75, "The new one.")
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(InputError, match="no artifact at"):
        load(tmp_path / "a")
