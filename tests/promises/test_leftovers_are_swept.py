"""What a killed process leaves is gone after the next command there; what a living one is writing stays."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raisf import cli
from raisf.evaluation.records import open_records
from raisf.retrieval.index import add_to_index, build_index, check_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import atomic_folder, write_json, write_jsonl

# A process that stops in the middle of its writing and says so.
WAIT = "print('ready', flush=True); time.sleep(60)"
WRITING = {
    "a folder": f"with atomic_folder(path, 'm') as folder: (folder / 'm').write_text('new'); {WAIT}",
    "a file": f"write_jsonl(path, ({{'row': exec({WAIT!r})}} for n in [1]))",
}


def writing(code: str, path: Path) -> "subprocess.Popen[str]":
    """A process that is writing at a path."""
    start = "import sys, time; from pathlib import Path; from raisf.utils.files import *; path = Path(sys.argv[1])\n"
    process = subprocess.Popen([sys.executable, "-c", start + code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def write(path: Path) -> None:
    """What the next command does there."""
    if path.suffix:
        write_jsonl(path, [{"row": 2}])
    else:
        with atomic_folder(path, "m") as folder:
            (folder / "m").write_text("mine")


@pytest.mark.parametrize(("what", "name"), [("a folder", "ix"), ("a file", "rows.jsonl")])
def test_the_next_command_sweeps_what_a_killed_one_left_and_nothing_that_lives(what: str, name: str, tmp_path: Path):
    path = tmp_path / name
    living, killed = writing(WRITING[what], path), writing(WRITING[what], path)
    try:
        assert len(list(tmp_path.iterdir())) == 2
        kill(killed)
        write(path)
        assert len(list(tmp_path.iterdir())) == 2  # the new one, and what the living one is writing
    finally:
        kill(living)
    write(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_a_killed_process_was_replacing_comes_back(tmp_path: Path):
    path = tmp_path / "ix"
    build_index([Passage("a", "Chess.")], path, "bm25")
    path.rename(tmp_path / ".ix.abcd1234.old")  # between the two renames
    assert open_folder(path)("chess", 1)[0].pid == "a" and list(tmp_path.iterdir()) == [path]


def test_a_killed_index_leaves_nothing_after_the_next(tmp_path: Path):
    docs, out = tmp_path / "docs.jsonl", tmp_path / "made" / "ix"
    write_jsonl(docs, ({"text": f"row {number} of many"} for number in range(200_000)))
    command = [sys.executable, "-m", "raisf.cli", "index", str(docs), "--engine", "bm25", "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (out.parent.is_dir() and any(out.parent.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [file.name.startswith(".ix.") for file in out.parent.iterdir()] == [True]
    assert cli.main(["index", "info", str(out)]) == 2  # any command on that place sweeps
    assert list(out.parent.iterdir()) == []


def test_what_a_killed_change_wrote_into_an_index_goes_with_the_next_change(tmp_path: Path):
    docs, out = tmp_path / "docs", tmp_path / "ix"
    docs.mkdir()
    (docs / "a.txt").write_text("Chess.")
    build_index(docs, out, "bm25")
    for leftover in ("words-7", "segments/7"):
        (out / leftover).mkdir()
        (out / leftover / "x").write_text("x")
    (out / ".manifest.json.abcd1234.partial").write_text("{")
    build_index(docs, out, "bm25")  # though nothing has changed
    assert sorted(file.name for file in (out / "segments").iterdir()) == ["1"]
    assert not list(out.glob("words-7")) and not list(out.glob(".manifest*")) and check_index(out) == []


def test_a_change_that_fails_leaves_the_index_without_what_it_wrote(tmp_path: Path):
    path = tmp_path / "ix"
    build_index([Passage("a", "Chess.")], path, "bm25")
    before = sorted(path.rglob("*"))

    def broken() -> object:
        yield Passage("b", "Go.")
        yield Passage("b", "twice")

    with pytest.raises(InputError):
        add_to_index(path, broken())  # type: ignore[arg-type]
    assert [file for file in sorted(path.rglob("*")) if file.name != ".lock"] == before


def test_records_and_data_files_are_swept_too(tmp_path: Path):
    for name in (".data.json.abcd1234.partial", ".r.meta.json.abcd1234.partial"):
        (tmp_path / name).write_text("{")
    write_json(tmp_path / "data.json", {})
    with open_records(tmp_path / "r.jsonl", {"program": {}, "test": {}}):
        pass
    assert sorted(file.name for file in tmp_path.iterdir()) == ["data.json", "r.jsonl", "r.meta.json"]


def test_a_users_own_hidden_files_are_never_swept(tmp_path: Path):
    mine = [
        ".data.json.personal",
        ".data.json.old",
        ".data.jsonx.abcd1234.partial",
        ".ix.abcd1234.partially",
        ".ix.mine",
    ]
    for name in mine:
        (tmp_path / name).write_text("mine")
    write_json(tmp_path / "data.json", {})
    write(tmp_path / "ix")
    assert {*mine} < {file.name for file in tmp_path.iterdir()}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the mask without its being set")
def test_files_have_the_permissions_that_the_user_chose_and_no_other_thread_loses_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The mask is the process's: while it is set to be read, what other threads make could be changed by anybody; and
    of two threads that set it at once, the second would put the first one's back for good."""

    def forbidden(mask: int) -> int:
        raise AssertionError(f"the mask of the whole process is set to {mask:o}")

    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", forbidden)
            write_json(tmp_path / "file", {})
            with atomic_folder(tmp_path / "folder", "m"):
                pass
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"file": 0o640, "folder": 0o750}


@pytest.mark.parametrize("engine", ["bm25"])
def test_a_full_disk_is_told_with_the_file_and_what_to_do(engine: str, tmp_path: Path):
    """A limit on files' sizes is met by the same error on the way as a full disk."""
    write_jsonl(tmp_path / "docs.jsonl", ({"text": f"row {n}"} for n in range(20_000)))
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); "
        "from raisf.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = ["index", str(tmp_path / "docs.jsonl"), "--engine", engine, "--out", str(tmp_path / "ix")]
    ended = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert re.search(r"cannot write \S*ix\S* \(File too large\): free some space", ended.stderr)
    assert [file.name for file in tmp_path.iterdir()] == ["docs.jsonl"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        OSError(122, "Disk quota exceeded"),
        OSError("1000 requested and 24 written"),
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    ],
)
def test_every_way_of_telling_a_full_disk_is_understood(error: Exception, tmp_path: Path):
    def full() -> object:
        raise error

    spoil: Callable[[], object] = full
    with pytest.raises(RaisfError, match=r"cannot write .*ix .*: free some space"), atomic_folder(tmp_path / "ix", "m"):
        spoil()
    assert os.listdir(tmp_path) == []


COMPILES = """
import os, pathlib, sys, time
from raisf.retrieval.encoders.colbert_shims import own_extensions
with own_extensions():
    folder = pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"], "some_cpp")
    folder.mkdir(exist_ok=True)
    (folder / "lock").open("x").close()  # as PyTorch marks that it compiles
    print("compiling", flush=True)
    time.sleep(float(sys.argv[1]))
    (folder / "lock").unlink()
"""


def test_a_compilation_of_extensions_that_was_killed_holds_nobody_up(tmp_path: Path):
    def compiles(seconds: float) -> subprocess.Popen[str]:
        environment = {**os.environ, "RAISF_CACHE": str(tmp_path)}
        return subprocess.Popen(
            [sys.executable, "-c", COMPILES, str(seconds)], stdout=subprocess.PIPE, env=environment, text=True
        )

    killed = compiles(1000)
    assert killed.stdout and killed.stdout.readline() == "compiling\n"
    killed.kill()
    killed.wait()
    assert len(list(tmp_path.rglob("lock"))) == 1
    under_way = compiles(2)
    assert under_way.stdout and under_way.stdout.readline() == "compiling\n"
    waits = compiles(0)  # a mark of one that lives is respected: else its own would stand in its way
    assert (under_way.wait(), waits.wait()) == (0, 0)
    assert list(tmp_path.rglob("lock")) == []
