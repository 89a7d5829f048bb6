"""Making an index that is stopped goes on with what it has encoded, and ends with the very same index."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raisf.retrieval.changing import remove_from_index
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.encoders.encoder import ColBERTEncoder
from raisf.retrieval.index import add_to_index, build_index, check_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.retrieval.store import encoding, writer
from raisf.retrieval.store.manifest import SEGMENTS
from raisf.utils.errors import InputError, RaisfError

LINES = [Passage(f"p{n}", f"The lighthouse number {n} stands on the island of {n * n} gulls.") for n in range(22)]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("raisf.retrieval.store.vectors.SHARD", 8)
    monkeypatch.setattr(encoding, "_WINDOW", 4)


class Interrupted:
    """Ctrl-C while a window is encoded; counts the texts that were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int | None):
        self.texts, windows, encode = 0, 0, ColBERTEncoder.encode_passages

        def one(encoder: ColBERTEncoder, texts: Sequence[str]):
            nonlocal windows
            windows += 1
            if windows == at:
                raise KeyboardInterrupt
            self.texts += len(texts)
            return encode(encoder, texts)

        monkeypatch.setattr(ColBERTEncoder, "encode_passages", one)


def vectors(index: Path) -> dict[str, bytes]:
    return {file.relative_to(index).as_posix(): file.read_bytes() for file in index.rglob("*.safetensors")}


def test_a_stopped_index_goes_on_with_what_was_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = tmp_path / "whole"
    build_index(LINES, whole, progress=False)
    out, kept = tmp_path / "index", tmp_path / ".index.encoded"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt, match=r"stopped: 16 of 22 .*\.encoded; "):
        Interrupted(patched, at=6)
        build_index(LINES, out, progress=False)
    assert not out.exists() and len(list(kept.iterdir())) == 2

    count = Interrupted(monkeypatch, at=None)
    build_index(LINES, out, progress=False)
    assert count.texts == 6 and vectors(out) == vectors(whole) and check_index(out) == []
    assert not kept.exists() and not list(tmp_path.glob(".index*"))
    assert {file.stat().st_nlink for file in out.rglob("*.safetensors")} == {1}


def test_passages_that_are_not_read_to_their_end_are_told_of_those_that_are_encoded_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Those that had been encoded before the stop were none of them, and yet counted among all."""
    long = [Passage(f"p{n}", f"{n} " + "Rechtsschutzversicherungsgesellschaften zahlen. " * 30) for n in range(10)]
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Interrupted(patched, at=3)
        build_index(long, tmp_path / "index", progress=False)
    assert "longer than" not in caplog.text
    build_index(long, tmp_path / "index", progress=False)
    assert "2 of 2 passages encoded now are longer than the 256 tokens" in caplog.text


@pytest.mark.parametrize("at", [1, 2])
def test_nothing_is_kept_of_what_is_less_than_a_file(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Interrupted(monkeypatch, at)
    with pytest.raises(KeyboardInterrupt) as stopped:
        build_index(LINES, tmp_path / "index", progress=False)
    assert not str(stopped.value) and not list(tmp_path.iterdir())


def test_other_texts_another_checkpoint_precision_or_packing_and_damaged_files_are_encoded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    precision = "raisf.retrieval.encoders.encoder.fastest_precision"
    monkeypatch.setattr(precision, lambda: "float32")
    out, kept = tmp_path / "index", tmp_path / ".index.encoded"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Interrupted(patched, at=5)
        build_index(LINES, out, progress=False)
    saved = shutil.copytree(kept, tmp_path / "saved")

    def encoded(lines: list[Passage], checkpoint: str) -> int:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(saved, kept)
        shutil.rmtree(out, ignore_errors=True)
        with monkeypatch.context() as patched:
            count = Interrupted(patched, at=None)
            build_index(lines, out, checkpoint=checkpoint, progress=False)
        assert check_index(out) == [] and not kept.exists()
        return count.texts

    assert encoded(LINES, "raisf-minilm") == 6
    assert encoded([*LINES[:9], Passage("p9", "Another text."), *LINES[10:]], "raisf-minilm") == 14
    first, second = LINES[0].text, LINES[1].text  # a word goes from one passage to the next
    assert encoded([Passage("p0", first + second[:4]), Passage("p1", second[4:]), *LINES[2:]], "raisf-minilm") == 14
    assert encoded(LINES, "minilm") == 22
    with monkeypatch.context() as patched:
        patched.setattr(precision, lambda: "bfloat16")
        assert encoded(LINES, "raisf-minilm") == 22
    with monkeypatch.context() as patched:
        patched.setattr(writer, "EXACT_UP_TO", 10)
        assert encoded(LINES, "raisf-minilm") == 22, "to be packed"
    for file in saved.iterdir():
        os.truncate(file, file.stat().st_size - 5)
    assert encoded(LINES, "raisf-minilm") == 22


def test_what_is_added_goes_on_too_and_the_index_is_in_use_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "index"
    build_index(LINES[:3], path, progress=False)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt, match="8 of 19 passages"):
        Interrupted(patched, at=4)
        add_to_index(path, LINES[3:], progress=False)
    assert check_index(path) == [] and len(open_folder(path).passages) == 3
    assert [file.name for file in (path / SEGMENTS).iterdir()] == ["1"]
    count = Interrupted(monkeypatch, at=None)
    assert add_to_index(path, LINES[3:], progress=False).added == 19
    assert count.texts == 11 and check_index(path) == []
    assert open_folder(path)("lighthouse number 20", 1)[0].pid == "p20"
    assert not (tmp_path / ".index.encoded").exists()


def test_without_hard_links_an_index_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Path):
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    build_index(LINES, tmp_path / "index", progress=False)
    assert check_index(tmp_path / "index") == [] and [file.name for file in tmp_path.iterdir()] == ["index"]
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Interrupted(patched, at=5)
        add_to_index(tmp_path / "index", [Passage(f"n{n}", f"Lamp {n}") for n in range(19)], progress=False)
    assert [file.name for file in tmp_path.iterdir()] == ["index"], "no empty folder is left"


@pytest.mark.parametrize("whose", ["another user's", "a link"])
def test_what_another_has_put_there_is_not_taken_for_encoded(
    whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In a folder that all may write, such as /tmp, it would make the index find other passages, in silence."""
    out, kept = tmp_path / "index", tmp_path / ".index.encoded"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Interrupted(patched, at=5)
        build_index(LINES, out, progress=False)
    if whose == "a link":
        kept.symlink_to(kept.rename(tmp_path / "theirs"))
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    count = Interrupted(monkeypatch, at=None)
    build_index(LINES, out, progress=False)
    assert count.texts == 22 and check_index(out) == [] and len(list(kept.iterdir())) == 2


def test_a_file_of_what_is_kept_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Interrupted(monkeypatch, at=5)
    with pytest.raises(KeyboardInterrupt):
        build_index(LINES, tmp_path / "index", progress=False)
    assert (tmp_path / ".index.encoded").stat().st_mode & 0o077 == 0


def test_one_folder_as_a_checkpoint_of_two_kinds_is_encoded_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("raisf.retrieval.encoders.encoder.fastest_precision", lambda: "float32")  # the dense one's
    checkpoint = find_checkpoint("minilm").path
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Interrupted(patched, at=5)
        build_index(LINES, tmp_path / "index", checkpoint=checkpoint, progress=False)
    dense = build_index(LINES, tmp_path / "index", "dense", checkpoint, progress=False)
    assert dense("lighthouse number 20", 22) and not (tmp_path / ".index.encoded").exists()


def test_another_change_leaves_to_the_stopped_command_what_it_had_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, kept = tmp_path / "index", tmp_path / ".index.encoded"
    build_index(LINES[:3], path, progress=False)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Interrupted(patched, at=4)
        add_to_index(path, LINES[3:], progress=False)
    remove_from_index(path, "id = 'p1'")
    add_to_index(path, [Passage("new", "A buoy.")], progress=False)
    count = Interrupted(monkeypatch, at=None)
    add_to_index(path, LINES[3:], progress=False)
    assert count.texts == 11 and check_index(path) == [] and not kept.exists()


def test_a_full_disk_is_told_with_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from raisf.retrieval.store import vectors as store

    write = store.write_shard

    def full(folder: Path, number: int, *rest: Any) -> None:
        if number == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder / "2.safetensors"))
        write(folder, number, *rest)

    with monkeypatch.context() as patched, pytest.raises(RaisfError, match=r"free some space.*16 of 22.*\.encoded; "):
        patched.setattr(store, "write_shard", full)
        build_index(LINES, tmp_path / "index", progress=False)
    count = Interrupted(monkeypatch, at=None)
    build_index(LINES, tmp_path / "index", progress=False)
    assert count.texts == 6 and [file.name for file in tmp_path.iterdir()] == ["index"]


def test_what_vanishes_while_it_is_taken_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another process has just made its index of it."""
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        Interrupted(patched, at=6)
        build_index(LINES, tmp_path / "index", progress=False)
    link = encoding.link_or_copy

    def gone(file: Path, place: Path) -> None:
        if any(place.parent.iterdir()):  # the second one
            file.unlink()
        link(file, place)

    monkeypatch.setattr(encoding, "link_or_copy", gone)
    count = Interrupted(monkeypatch, at=None)
    build_index(LINES, tmp_path / "index", progress=False)
    assert count.texts == 14 and check_index(tmp_path / "index") == []


def test_a_link_to_an_index_that_is_being_made_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "link").symlink_to(tmp_path / "real")

    def second(*_: Any) -> None:
        with pytest.raises(InputError, match="another process is making"):
            build_index(LINES, tmp_path / "link", progress=False)
        raise KeyboardInterrupt

    monkeypatch.setattr(ColBERTEncoder, "encode_passages", second)
    with pytest.raises(KeyboardInterrupt):
        build_index(LINES, tmp_path / "link", progress=False)


def test_an_index_cannot_stand_at_the_root():
    with pytest.raises(InputError):
        build_index(LINES, "/", progress=False)
