"""The prefix cache beside none: the same questions asked over and over, by several programs, in one run.

    python -m bench.prefixes [--questions 100] [--passes 4] [--threads 8] [--programs rag ircot ra-isf] [--json]

Each program answers the same questions of a closed world several times; nothing else is cached. For each pass: wall and
CPU milliseconds per question, and the mean number of rows in a decoding step. Aim: no pass slower than the first, and
none slower than without the cache (the ratio, of CPU seconds; below 1 the cache saves time). Passes with and without
the cache take turns, so that a busy machine slows both.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dspy
from rich import box
from rich.console import Console
from rich.table import Table

import raisf
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.inference import Rows
from raisf.programs.program import Program
from raisf.programs.registry import build


def world(folder: Path, questions: int) -> tuple[Any, list[str]]:
    """An index of a small closed world, and questions about it."""
    raisf.write_world(folder / "world", entities=300, counts={"train": 0, "dev": 0, "test": questions})
    index = raisf.build_index(folder / "world" / "corpus.jsonl", folder / "index", engine="bm25", progress=False)
    return index, [example.question for example in raisf.load_questions(folder / "world" / "test.jsonl")]


def answers(program: Any, questions: list[str], threads: int) -> tuple[list[str], list[int]]:
    """What a program answers, so many questions at a time, and how many rows each decoding step had."""
    sizes, step = list[int](), Rows.step

    def counted(rows: Rows, picked: list[int]) -> Any:
        sizes.append(len(picked))
        return step(rows, picked)

    with ThreadPoolExecutor(threads) as pool, patch.object(Rows, "step", counted):
        runs = [pool.submit(copy_context().run, program, question=question) for question in questions]
        return [run.result().answer for run in runs], sizes


def one_pass(program: Program, questions: list[str], threads: int) -> dict[str, float]:
    """What all questions once cost."""
    wall, cpu = time.perf_counter(), time.process_time()
    _, sizes = answers(program, questions, threads)
    cost = 1000 / len(questions)
    return {
        "wall_ms": (time.perf_counter() - wall) * cost,
        "cpu_ms": (time.process_time() - cpu) * cost,
        "mean_batch": statistics.mean(sizes) if sizes else 0.0,
    }


def measure(name: str, options: argparse.Namespace, index: Any, questions: list[str]) -> list[dict[str, Any]]:
    """The passes of one program, each with the cache and without."""
    lm: Any = raisf.connect(options.lm)
    lm.cache = False
    with_cache: InferenceEngine = lm.base_engine
    program = build(name, index)
    program.set_lm(lm)
    assert with_cache.model  # reads the weights
    kept = with_cache._prefixes
    rows = []
    for number in range(options.passes):
        found = {}
        for way in ("cached", "none") if number % 2 else ("none", "cached"):
            with_cache._prefixes = kept if way == "cached" else None
            found[way] = one_pass(program, questions, options.threads)
        with_cache._prefixes = kept
        rows.append({"program": name, "pass": number + 1, **found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.prefixes", description=__doc__)
    parser.add_argument("--lm", default="pocket", help="an LM in the process (default: pocket)")
    parser.add_argument("--questions", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--passes", type=int, default=4, help="how often each is asked (default: 4)")
    parser.add_argument("--threads", type=int, default=8, help="questions at a time (default: 8)")
    parser.add_argument("--programs", nargs="+", default=["rag", "ircot", "ra-isf"], help="which programs")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    dspy.configure(disable_history=True)
    with tempfile.TemporaryDirectory() as folder:
        index, questions = world(Path(folder), options.questions)
        rows = [row for name in options.programs for row in measure(name, options, index, questions)]
    for row in rows:
        row["cpu_ratio"] = row["cached"]["cpu_ms"] / row["none"]["cpu_ms"]
    if options.json:
        json.dump({"n": len(questions), "threads": options.threads, "rows": rows}, sys.stdout, indent=2)
        return
    title = f"{len(questions)} questions, {options.threads} at a time; milliseconds per question"
    table = Table(box=box.SIMPLE_HEAD, title=title)
    for column in ("program", "pass", "wall", "CPU", "batch", "wall, no cache", "CPU, no cache", "batch", "CPU ratio"):
        table.add_column(column, justify="left" if column == "program" else "right")
    for row in rows:
        ways = [f"{row[way][name]:.1f}" for way in ("cached", "none") for name in ("wall_ms", "cpu_ms", "mean_batch")]
        table.add_row(row["program"], str(row["pass"]), *ways, f"{row['cpu_ratio']:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
