"""If these failed, writing a file could take the place of a link or of a device."""

import errno
import os
from pathlib import Path

import pytest

from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import LONGEST_NAME, append_line, atomic_folder, check_replaceable, read_json, write_json
from raisf.utils.leftovers import PARTIAL
from raisf.utils.space import naming_full_disk


def test_a_link_stays_and_the_file_that_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_json(tmp_path / "elsewhere" / "kept.json", 1)
    for name, target in (("link", "elsewhere/kept.json"), ("dangling", "elsewhere/new.json")):
        (tmp_path / name).symlink_to(target)
        write_json(tmp_path / name, 2)
        assert (tmp_path / name).is_symlink() and read_json(tmp_path / target) == 2
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["kept.json", "new.json"]


def test_a_path_that_is_no_utf_8_is_written_and_read_again(tmp_path: Path) -> None:
    """An artifact, a report or an index that named one could not be written, after all the work for it."""
    told = {"index": "/home/jos\udce9/índice", "k": 5}
    write_json(tmp_path / "manifest.json", told)
    assert read_json(tmp_path / "manifest.json") == told
    assert "índice" in (tmp_path / "manifest.json").read_text("utf-8")


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut left an empty file in the place of the old one, on file systems that do not see to it themselves."""
    path, flushed, fsync = tmp_path / "kept.json", list[tuple[bytes, str]](), os.fsync

    def flush(descriptor: int) -> None:
        flushed.append((os.pread(descriptor, 100, 0), path.read_text()))
        fsync(descriptor)

    write_json(path, 1)
    monkeypatch.setattr(os, "fsync", flush)
    write_json(path, 2)
    assert flushed == [(b"2\n", "1\n")] and read_json(path) == 2


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, said in (("pipe", "a device or a pipe"), ("folder", "a folder")):
        with pytest.raises(InputError, match=f"is {said}; give a file"):
            write_json(tmp_path / name, 2)
    assert (tmp_path / "pipe").is_fifo() and not list((tmp_path / "folder").iterdir())


def test_a_name_that_leaves_no_room_for_the_half_made_one_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="longer than 237 bytes: give a shorter name"):
        check_replaceable(tmp_path / ("\u706b" * 80), "marker")
    longest = tmp_path / ("n" * LONGEST_NAME)
    check_replaceable(longest, "marker")
    with atomic_folder(longest, "marker") as folder:
        (folder / "marker").touch()
    assert longest.is_dir()


def test_a_copy_that_fills_a_disk_names_the_file_that_it_was_to_make() -> None:
    with pytest.raises(RaisfError, match="cannot write full/b "), naming_full_disk("c"):
        raise OSError(errno.ENOSPC, "No space left on device", "roomy/a", None, "full/b")


def test_a_new_folder_belongs_to_the_group_of_the_one_that_it_stands_in(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2775)
    (shared / "plain").mkdir()
    with atomic_folder(shared / "made", "marker") as folder:
        (folder / "marker").touch()
    assert (shared / "made").stat().st_mode == (shared / "plain").stat().st_mode


def test_of_two_who_replace_a_folder_at_once_the_last_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one's work was deleted, with a bare OSError."""
    path, rename = tmp_path / "made", Path.rename

    def meanwhile(self: Path, target: Path) -> Path:
        if self.name.endswith(PARTIAL) and not path.exists():  # the other one's takes the place
            path.mkdir()
            (path / "marker").write_text("other")
            monkeypatch.undo()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", meanwhile)
    with atomic_folder(path, "marker") as folder:
        (folder / "marker").write_text("mine")
    assert (path / "marker").read_text() == "mine" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", ["ab", "a+"])
def test_a_line_that_a_full_disk_cuts_off_is_not_there_and_told_with_its_file(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with (tmp_path / "lines").open(mode) as file:
        append_line(file, "one\n")
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[: len(data) // 2]))
        with pytest.raises(RaisfError, match=r"cannot write .*lines .*No space left"):
            append_line(file, "second\n")
        monkeypatch.undo()
        append_line(file, "third\n")
    assert (tmp_path / "lines").read_text() == "one\nthird\n"
