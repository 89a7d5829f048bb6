"""Kills commands at random points, runs them again, and compares what they leave with an undisturbed run's."""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch  # noqa: F401 - read before the first fork, as are the next: a child then starts at once
import transformers  # noqa: F401

from raisf import cli

# Longer than any of the commands takes here; one that is still running then hangs.
LIMIT = 300.0


@dataclass
class Tally:
    """What a part of the campaign found.

    Attributes:
        tried: Kills, questions, replies or documents.
        lost: Those whose result was missing, or different, afterwards.
        wrong: Those that gave a wrong result without a word.
        crashed: Those that ended in a traceback or hung.
        notes: What happened to each of these, a line per case.
    """

    name: str
    tried: int = 0
    lost: int = 0
    wrong: int = 0
    crashed: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not (self.lost or self.wrong or self.crashed)


@dataclass(frozen=True)
class Task:
    """A command, and what to compare of what it leaves.

    Attributes:
        argv: The command line; `{home}` is the folder with the data, which no run changes.
        result: What a finished run left in its folder, without times.
    """

    name: str
    argv: str
    result: Callable[[Path], Any]


def _records(folder: Path) -> Any:
    rows = map(json.loads, (folder / "eval.jsonl").read_text().splitlines())
    return sorted((row["id"], row["prediction"], row["route"]) for row in rows)


def _index(folder: Path) -> Any:
    manifest = json.loads((folder / "index/manifest.json").read_text())
    assert run_command(["index", "check", "index"], folder) == 0, "raisf index check failed"
    return manifest["corpus_sha256"]


def _artifact(folder: Path) -> Any:
    manifest = json.loads((folder / "artifact/manifest.json").read_text())
    weights = {p.parent.name: p.read_bytes() for p in (folder / "artifact").rglob("*.safetensors")}
    return manifest["state_sha256"], weights


def _tables(folder: Path) -> Any:
    return {path.name: path.read_text() for path in (folder / "reports/blendfilter-main").glob("*.csv")}


TASKS = (
    Task(
        "eval", "eval --program ra-isf --index {home}/index --test {home}/world/test.jsonl --out eval.jsonl", _records
    ),
    Task("index", "index {home}/world/corpus.jsonl --out index", _index),
    Task(
        "compile, prompts",
        "compile --how prompts --strategy random --candidates 2 --train {home}/world/train.jsonl "
        "--dev {home}/world/dev.jsonl --index {home}/index --k 2 --out artifact",
        _artifact,
    ),
    Task(
        "compile, weights",
        "compile --how weights --rows 32 --epochs 2 --rank 4 --train {home}/world/train.jsonl "
        "--dev {home}/world/dev.jsonl --index {home}/index --k 2 --out artifact",
        _artifact,
    ),
    Task(
        "experiment",
        "experiment blendfilter-main --data {home}/world --index {home}/index --n 4 --out reports",
        _tables,
    ),
)


def make_home(folder: Path) -> Path:
    """A small world with its index."""
    sizes = ["--entities", "300", "--train", "60", "--dev", "20", "--test", "24"]
    assert run_command(["world", *sizes, "--out", "world"], folder) == 0
    assert run_command(["index", "world/corpus.jsonl", "--out", "index"], folder) == 0
    return folder


def kill_everywhere(home: Path, work: Path, seconds: float, seed: int) -> list[Tally]:
    """Kills each command at random points of its run, for some seconds in all.

    Args:
        home: See `make_home`.
        work: Where the runs go.
        seconds: How long new trials begin.
        seed: Of the points.
    """
    rng, tallies = random.Random(seed), []
    for task in TASKS:
        tally = Tally(f"kills: {task.name}")
        tallies.append(tally)
        argv = task.argv.format(home=home).split()
        whole = fresh_folder(work / "whole")
        began = time.monotonic()
        if run_command(argv, whole) != 0:
            tally.crashed += 1
            tally.notes.append(f"undisturbed: {_log(whole)}")
            continue
        took = time.monotonic() - began
        expected = task.result(whole)
        end = time.monotonic() + seconds / len(TASKS) - took
        while time.monotonic() < end or not tally.tried:
            tally.tried += 1
            folder, note = fresh_folder(work / "killed"), f"{task.name}, trial {tally.tried}"
            for _ in range(rng.choice((1, 1, 2))):
                run_command(argv, folder, kill_after=rng.uniform(0.02, took))
            code = run_command(argv, folder)
            if code != 0 or "Traceback" in _log(folder):
                tally.crashed += 1
                tally.notes.append(f"{note}: exit code {code}, {_log(folder)[-500:]}")
            elif task.result(folder) != expected:
                tally.lost += 1
                tally.notes.append(f"{note}: another result than the undisturbed run's")
            elif left := _leftovers(folder):
                tally.lost += 1
                tally.notes.append(f"{note}: left behind {', '.join(left)}")
    return tallies


def run_command(argv: list[str], folder: Path, kill_after: float | None = None) -> int:
    """Runs a command in a process forked from this one, which has all libraries read; -9 where it was killed."""
    folder.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(folder)
            with open("log", "ab", buffering=0) as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            sys.stdout = sys.stderr = open(2, "w", closefd=False)
            code = cli.main(argv)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    deadline = time.monotonic() + (LIMIT if kill_after is None else kill_after)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def fresh_folder(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace") if (folder / "log").is_file() else ""


def _leftovers(folder: Path) -> list[str]:
    """Files and folders of work under way, which no finished command leaves."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*") if not path.name.endswith(".lock")]
