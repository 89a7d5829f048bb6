"""A folder is there whole, the old one or the new one, whatever happens while it is written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from raisf.utils.files import atomic_folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("old")
    return tmp_path / "model"


def replace(path: Path, spoil: Callable[[Path], None] = lambda folder: None) -> None:
    with atomic_folder(path, "config.json") as folder:
        (folder / "config.json").write_text("new")
        spoil(folder)


def only(path: Path) -> str:
    """What is in the folder, beside which nothing has been left."""
    assert list(path.parent.iterdir()) == [path]
    return (path / "config.json").read_text()


def test_a_folder_takes_the_place_of_another(path: Path):
    replace(path)
    assert only(path) == "new"


def test_an_interrupt_while_it_is_written_leaves_the_old_one(path: Path):
    def interrupt(folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace(path, interrupt)
    assert only(path) == "old"


def test_where_the_new_one_cannot_take_its_place_the_old_one_comes_back(path: Path):
    with pytest.raises(FileNotFoundError):
        replace(path, shutil.rmtree)  # such as by what tidies up hidden folders: only the second rename notices
    assert only(path) == "old"


def test_an_interrupt_between_the_two_renames_brings_the_old_one_back(path: Path, monkeypatch: pytest.MonkeyPatch):
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        monkeypatch.undo()
        rename(self, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace(path)
    assert only(path) == "old"


def test_an_interrupt_while_the_old_one_is_deleted_leaves_only_the_new_one(path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*args: object, **options: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("raisf.utils.files.shutil.rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace(path)
    assert only(path) == "new"
