"""Questions over two nodes of a Ray cluster: the records of one machine, also where a node is killed in the middle."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="pip install raisf[ray]")
pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def cluster() -> Any:
    process = subprocess.Popen(
        [sys.executable, str(HERE / "ray_cluster.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None
    address = next(line.strip() for line in process.stdout if line.strip()[-1:].isdigit())
    yield address, process
    process.stdin.write("end\n")
    process.stdin.close()
    process.wait(60)


def raisf(*argv: Any, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-m", "raisf.cli", *map(str, argv)]
    return subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def questions(folder: Path, count: int) -> Path:
    file = folder / "test.jsonl"
    rows = [{"id": str(at), "question": f"Who is the mayor of town {at}?", "answer": "Oda"} for at in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def records(path: Path) -> dict[str, Any]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["id"] for row in rows}) == len(rows)  # nothing twice
    for row in rows:
        row.pop("cost")
        row["trace"].pop("cost")
        _without_seconds(row["trace"])
    return {row["id"]: row for row in rows}


def _without_seconds(value: Any) -> None:
    if isinstance(value, dict):
        value.pop("seconds", None)
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _without_seconds(one)


SEEN = """
import os, sys, dspy, raisf
from raisf.evaluation.cluster import on_cluster
from raisf.evaluation.runner import evaluate
from raisf.lm.connect import connect

class See(dspy.Module):
    def __init__(self):
        self.ask = dspy.Predict("question -> answer")

    def forward(self, question):
        import torch
        return dspy.Prediction(answer=f"{torch.get_num_threads()} {os.environ.get('CUDA_VISIBLE_DEVICES')}")

asked = [dspy.Example(id=str(at), question=f"q{at}", answer="x") for at in range(40)]
with dspy.context(lm=connect("pocket")), on_cluster(sys.argv[1]):
    evaluate(See(), asked, "seen.jsonl", progress=False)
"""


def test_a_model_on_a_node_computes_with_all_that_the_node_has(cluster: Any, tmp_path: Path) -> None:
    # Ray lets a process compute with one thread: a node of 64 CPUs would be as slow as one of them.
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, "-c", SEEN, cluster[0]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    answers = {json.loads(line)["prediction"] for line in (tmp_path / "seen.jsonl").read_text().splitlines()}
    assert answers == {"1 None", "2 0"}  # the first node's, and the second's


@pytest.mark.timeout(1800)
def test_a_killed_node_loses_nothing_and_asks_nothing_twice(cluster: Any, tmp_path: Path) -> None:
    address, process = cluster
    test = questions(tmp_path, 96)
    common = ["eval", "--program", "cot", "--lm", "pocket", "--test", test, "--max-tokens", "24"]
    alone = raisf(*common, "--out", tmp_path / "alone.jsonl", folder=tmp_path)
    assert alone.wait(900) == 0, alone.stderr and alone.stderr.read()
    over = raisf(*common, "--out", tmp_path / "over.jsonl", "--ray", address, folder=tmp_path)
    while over.poll() is None and not ((tmp_path / "over.jsonl").exists() and (tmp_path / "over.jsonl").stat().st_size):
        time.sleep(0.2)
    process.stdin.write("kill\n")
    process.stdin.flush()
    assert over.wait(900) == 0, over.stderr and over.stderr.read()
    assert records(tmp_path / "over.jsonl") == records(tmp_path / "alone.jsonl")
    # What is there is not asked again, and a cluster's records are one machine's.
    before = (tmp_path / "over.jsonl").read_text()
    assert raisf(*common, "--out", tmp_path / "over.jsonl", folder=tmp_path).wait(900) == 0
    assert (tmp_path / "over.jsonl").read_text() == before


def test_no_cluster_is_told(tmp_path: Path) -> None:
    asked = raisf("eval", "--program", "cot", "--test", questions(tmp_path, 1), "--ray", "127.0.0.1:1", folder=tmp_path)
    _, said = asked.communicate(timeout=300)
    assert asked.returncode == 2 and "no Ray cluster answers at 127.0.0.1:1" in said
