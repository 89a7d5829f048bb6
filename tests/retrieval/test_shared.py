"""A crash, a reader or another writer in the middle of a change costs an index nothing."""

import contextlib
import itertools
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raisf.retrieval.engines import base
from raisf.retrieval.engines.dense import Dense, DenseModel, find_model
from raisf.retrieval.index import Change, EngineName, add_to_index, build_index, check_index, index_info, open_folder
from raisf.retrieval.passage import Passage
from raisf.retrieval.store import writer
from raisf.retrieval.store.manifest import MANIFEST, Segment, read_manifest, verify
from raisf.retrieval.store.rows import CorpusHash, read_segment
from raisf.retrieval.store.writer import changed_index
from raisf.utils.errors import InputError
from tests.retrieval.conftest import ENGINES, NEW, copy


@pytest.mark.parametrize("engine", ["colbert", "bm25"])
@pytest.mark.parametrize("moment", ["write_segment", "describe_files", "write_json"])
def test_a_crash_in_the_middle_leaves_the_old_index(
    engine: str, moment: str, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = copy(made, engine, tmp_path)

    def crash(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, moment, crash)
    with pytest.raises(KeyboardInterrupt):
        add_to_index(path, [NEW], progress=False)
    assert check_index(path) == [] and len(open_folder(path).passages) == 12
    monkeypatch.undo()
    add_to_index(path, [NEW], progress=False)  # over what the crash has left
    assert check_index(path) == [] and open_folder(path)("harpsichord", 1)[0].pid == "new"
    known = {*read_manifest(path).files, MANIFEST, ".lock"}
    assert {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()} <= known


def test_a_crash_after_the_new_manifest_is_written_leaves_the_new_index(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, drop, calls = copy(made, "bm25", tmp_path), writer._drop_unused, itertools.count(1)

    def crash(*args):
        if next(calls) == 2:  # the first is before the change, the third cleans up after the crash
            raise KeyboardInterrupt
        drop(*args)

    monkeypatch.setattr(writer, "_drop_unused", crash)
    with pytest.raises(KeyboardInterrupt):
        add_to_index(path, [NEW], progress=False)
    assert check_index(path) == [] and open_folder(path)("harpsichord", 1)[0].pid == "new"


def test_a_change_just_before_the_lock_is_taken_is_built_upon(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, lock = copy(made, "bm25", tmp_path), writer._locked

    def later(folder: Path) -> contextlib.AbstractContextManager[None]:
        monkeypatch.undo()
        add_to_index(path, [Passage("theirs", "A spinet.")], progress=False)
        return lock(folder)

    monkeypatch.setattr(writer, "_locked", later)
    assert add_to_index(path, [NEW], progress=False) == Change(1, 0, 14)
    assert check_index(path) == [] and {"theirs", "new"} <= {p.pid for p in open_folder(path).passages}


def test_a_change_while_an_index_is_checked_is_no_damage(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, changes = copy(made, "bm25", tmp_path), iter([NEW])

    def verified(*args) -> Iterator[str]:
        for passage in changes:
            add_to_index(path, [passage], progress=False)  # drops the counts of before
        return verify(*args)

    monkeypatch.setattr("raisf.retrieval.index.verify", verified)
    assert check_index(path) == [] and len(open_folder(path).passages) == 13
    (path / "segments" / "1" / "passages.jsonl").write_bytes(b"")
    assert "segments/1/passages.jsonl has 0 bytes" in check_index(path)[0]


def test_two_writers_never_mix(made: dict[str, Path], passages: list[Passage], tmp_path: Path):
    path = copy(made, "bm25", tmp_path)
    with changed_index(path):
        for change in (lambda: add_to_index(path, [NEW]), lambda: build_index(passages, path, "bm25")):
            with pytest.raises(InputError, match="another process is changing"):
                change()
        assert len(open_folder(path)("chess", 5)) == 1
    add_to_index(path, [NEW])


def test_what_encodes_an_addition_is_settled_while_nobody_else_can_change_the_index(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The vectors of one model would else be added to an index that has become another model's, or has none."""
    path = copy(made, "dense", tmp_path)

    def find(name: str | Path) -> DenseModel:
        with pytest.raises(InputError, match="another process is changing"):
            build_index([NEW], path, "bm25")
        return find_model(name)

    monkeypatch.setattr(Dense, "find", staticmethod(find))
    assert add_to_index(path, [NEW], progress=False) == Change(1, 0, 13)
    assert index_info(path)["engine"] == "dense"


@pytest.mark.parametrize("engine", ["bm25", "colbert"])
@pytest.mark.parametrize("count", [12, 3])
def test_an_index_that_is_replaced_while_it_is_opened_is_opened_whole(
    engine: EngineName, count: int, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = copy(made, engine, tmp_path)
    others = [Passage(f"q{number}", f"Number {number} is a harpsichord.") for number in range(count)]

    def meanwhile(folder: Path, segment: Segment) -> Iterator[Passage]:
        monkeypatch.undo()
        build_index(others, path, engine, progress=False)
        return read_segment(folder, segment)  # the new index's, which has a segment of that name, too

    monkeypatch.setattr(base, "read_segment", meanwhile)
    index = open_folder(path)
    assert [p.pid for p in index.passages] == [p.pid for p in others]
    assert index.corpus_hash == read_manifest(path).corpus_sha256
    assert index("harpsichord", 3) == open_folder(path)("harpsichord", 3)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_may_be_replaced_while_it_is_searched(
    engine: EngineName, made: dict[str, Path], passages: list[Passage], tmp_path: Path
):
    path = copy(made, engine, tmp_path)
    index = open_folder(path)
    wanted = [p.pid for p in index("Who wrote Hamlet?", 3)]
    stop, opened = threading.Event(), []

    def reopen() -> None:
        while not stop.is_set():
            found, corpus = open_folder(path), CorpusHash()
            for passage in found.passages:
                corpus.add(passage)
            assert found.corpus_hash == corpus.hexdigest()
            opened.append(len(found.passages))

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(reopen)
        try:
            for number in range(3):
                add_to_index(path, [Passage(f"n{number}", "Something new.")], progress=False)
                assert [p.pid for p in index("Who wrote Hamlet?", 3)] == wanted
            build_index([NEW], path, engine, progress=False)
            build_index(passages, path, engine, progress=False)  # in folders of the same names
        finally:
            stop.set()
        reader.result()
    shutil.rmtree(path)
    assert [p.pid for p in index("Who wrote Hamlet?", 3)] == wanted
    assert set(opened) <= {12, 13, 14, 15, 1}


def test_an_index_is_waited_for_while_it_is_just_being_replaced(made: dict[str, Path], tmp_path: Path):
    path = copy(made, "bm25", tmp_path)
    aside = path.rename(path.with_name(f".{path.name}.x1.old"))  # what atomic_folder does between its two renames
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_folder, path)
        time.sleep(0.2)
        shutil.copytree(aside, path.with_name("new")).rename(path)
        assert len(opened.result().passages) == 12


def test_a_link_that_leads_to_itself_is_no_index(tmp_path: Path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="no index at"):
        read_manifest(tmp_path / "loop")


def test_an_index_that_vanishes_between_a_look_and_a_read_is_waited_for(
    made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = copy(made, "bm25", tmp_path)
    read, gone = Path.read_bytes, list[Path]()

    def replaced_meanwhile(file: Path) -> bytes:
        if file == path / MANIFEST and len(gone) < 2:  # twice in a row, as where one change follows another
            gone.append(path.rename(path.with_name(f".{path.name}.x{len(gone)}.old")))
            try:
                return read(file)
            finally:
                gone[-1].rename(path)
        return read(file)

    monkeypatch.setattr(Path, "read_bytes", replaced_meanwhile)
    assert read_manifest(path).passages == 12 and len(gone) == 2
