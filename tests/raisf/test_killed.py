"""If these failed, hours of compiling would be lost with a power cut, or its result would depend on having had one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raisf import cli
from raisf.utils.files import read_json

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(make_home: Callable[..., Path]) -> Path:
    """A folder with a small world and its index."""
    return make_home(train=60, dev=20, test=8)


def started(home: Path, folder: Path, options: list[str]) -> "subprocess.Popen[bytes]":
    """`raisf compile` in a folder, in a process of its own, with a cache of its own: DSPy's would answer for it."""
    folder.mkdir(exist_ok=True)
    files = ["--train", str(home / "world/train.jsonl"), "--dev", str(home / "world/dev.jsonl")]
    argv = ["compile", *files, "--index", str(home / "index"), "--k", "2", "--max-depth", "1", "--out", "artifact"]
    cache = folder / f"cache-{len(list(folder.glob('cache-*')))}"
    here = str(Path(cli.__file__).parents[1])
    environment = {**os.environ, "DSPY_CACHEDIR": str(cache), "PYTHONPATH": here}
    log = (folder / "log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "raisf.cli", *argv, *options], cwd=folder, env=environment, stdout=log, stderr=log
    )


def killed(home: Path, folder: Path, options: list[str], ready: Callable[[Path], bool]) -> None:
    """Starts it, and kills it as soon as something is ready."""
    process = started(home, folder, options)
    while process.poll() is None and not ready(folder / "runs/compile"):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, (folder / "log").read_text()


def finished(home: Path, folder: Path, options: list[str]) -> dict[str, Any]:
    process = started(home, folder, options)
    assert process.wait() == 0, (folder / "log").read_text()
    return read_json(folder / "artifact/manifest.json")


def lines(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("prompts-*.jsonl"))


def test_compiling_to_prompts_goes_on_after_a_kill_to_the_same_result(home: Path, tmp_path: Path) -> None:
    options = ["--strategy", "random", "--candidates", "2"]
    whole = finished(home, tmp_path / "whole", options)
    for at_least in (1, 30):  # twice: in the first candidate and in a later one
        killed(home, tmp_path / "killed", options, lambda folder, n=at_least: lines(folder) > n)
        assert not (tmp_path / "killed/artifact").exists()
    again = finished(home, tmp_path / "killed", options)
    for found in (whole, again):
        found["compile"] = {key: found["compile"][key] for key in ("candidates", "chosen", "rows")}
        for candidate in found["compile"]["candidates"]:
            del candidate["lm_calls"]  # each process counts its own
    assert again["compile"] == whole["compile"] and again["state_sha256"] == whole["state_sha256"]
    assert not list((tmp_path / "killed/runs/compile").glob("prompts-*"))


def test_compiling_to_weights_goes_on_after_a_kill_to_the_very_same_weights(home: Path, tmp_path: Path) -> None:
    options = ["--how", "weights", "--rows", "32", "--epochs", "2", "--rank", "4"]
    whole = finished(home, tmp_path / "whole", options)
    # While the rows are collected, in the middle of the first training, and in that of the second.
    moments: list[Callable[[Path], bool]] = [
        lambda folder: any(folder.glob("weights-*.jsonl")),
        lambda folder: any(folder.glob(".know-*.safetensors")),
        lambda folder: any(folder.glob(".relevant-*.safetensors")),
    ]
    for ready in moments:
        killed(home, tmp_path / "killed", options, ready)
    again = finished(home, tmp_path / "killed", options)
    assert again["weights"] == whole["weights"] and again["state_sha256"] == whole["state_sha256"]
    for name in whole["weights"]:
        ours, theirs = (found["compile"]["predictors"][name] for found in (again, whole))
        assert (ours["curve"], ours["rows"], ours["data_sha256"]) == (
            theirs["curve"],
            theirs["rows"],
            theirs["data_sha256"],
        )
        kept = [
            tmp_path / run / "artifact/adapters" / name / "adapter_model.safetensors" for run in ("whole", "killed")
        ]
        assert kept[0].read_bytes() == kept[1].read_bytes()
