"""Many questions at a time on a model in the process: texts that join a running batch, beside whole batches.

    python -m bench.batching [--questions 96] [--threads 32] [--programs ircot react ra-isf] [--artifact DIR]
        [--lm pocket] [--repeats 3] [--json]

For each program the same questions of a closed world, asked so many at a time, nothing cached: questions a second, CPU
milliseconds a question, and the mean rows of a decoding step. In whole batches a text that comes while others are being
written waits until the last of these has ended. `--artifact`, a folder made by `raisf compile --how weights`, adds
RA-ISF with weights. Both ways take turns; medians are shown, and the ratio of CPU time. Both ways compute the same:
answers that differ are counted.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dspy
from rich import box
from rich.console import Console
from rich.table import Table

import raisf
from bench.prefixes import answers, world
from raisf.lm.local.decoding import Decoding
from raisf.programs.registry import build

WAYS = ("whole batches", "joining")


def once(program: Any, questions: list[str], threads: int, way: str) -> tuple[dict[str, float], list[str]]:
    """All questions one time: what they cost, and the answers."""
    admitted = Decoding.admitted

    def alone(decoding: Any, waiting: Any, device: str) -> Any:
        return [] if decoding.drafts else admitted(decoding, waiting, device)

    admits = alone if way == "whole batches" else admitted
    with patch.object(Decoding, "admitted", admits):
        wall, cpu = time.perf_counter(), time.process_time()
        said, sizes = answers(program, questions, threads)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = {
        "questions_a_second": len(questions) / wall,
        "cpu_ms": 1000 * cpu / len(questions),
        "rows_a_step": statistics.mean(sizes) if sizes else 0.0,
    }
    return found, said


def measure(name: str, program: Any, questions: list[str], threads: int, repeats: int) -> dict[str, Any]:
    """Both ways in turn, the first time for nothing."""
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    said: dict[str, list[str]] = {}
    for repeat in range(repeats + 1):
        for way in WAYS:
            found, said[way] = once(program, questions, threads, way)
            if repeat:
                runs[way].append(found)
    row: dict[str, Any] = {"program": name}
    row |= {way: {key: statistics.median(run[key] for run in runs[way]) for key in runs[way][0]} for way in WAYS}
    row["cpu_ratio"] = row["whole batches"]["cpu_ms"] / row["joining"]["cpu_ms"]
    row["speedup"] = row["joining"]["questions_a_second"] / row["whole batches"]["questions_a_second"]
    row["differing_answers"] = sum(one != other for one, other in zip(*said.values(), strict=True))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.batching", description=__doc__)
    parser.add_argument("--lm", default="pocket", help="an LM in the process (default: pocket)")
    parser.add_argument("--questions", type=int, default=96, help="how many (default: 96)")
    parser.add_argument("--threads", type=int, default=32, help="questions at a time (default: 32)")
    parser.add_argument("--programs", nargs="*", default=["ircot", "react", "ra-isf"], help="which programs")
    parser.add_argument("--artifact", type=Path, help="a compiled program, run as it is on its own index")
    parser.add_argument("--repeats", type=int, default=3, help="of which medians are shown (default: 3)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    dspy.configure(disable_history=True)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        index, questions = world(Path(folder), options.questions)
        programs: dict[str, Any] = {name: build(name, index) for name in options.programs}
        for program in programs.values():
            program.set_lm(raisf.connect(options.lm))
        if options.artifact:
            programs["compiled"] = raisf.load(options.artifact, retriever=index)
        for name, program in programs.items():
            rows.append(measure(name, program, questions, options.threads, options.repeats))
    if options.json:
        json.dump({"n": options.questions, "threads": options.threads, "rows": rows}, sys.stdout, indent=2)
        return
    title = f"{options.questions} questions, {options.threads} at a time"
    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("program")
    for column in ("q/s, batches", "joining", "CPU ms, batches", "joining", "rows, batches", "joining", "q/s", "CPU"):
        table.add_column(column, justify="right")
    for row in rows:
        keys = ("questions_a_second", "cpu_ms", "rows_a_step")
        cells = [f"{row[way][key]:.1f}" for key in keys for way in WAYS]
        table.add_row(row["program"], *cells, f"{row['speedup']:.2f}x", f"{row['cpu_ratio']:.2f}x")
    Console().print(table)
    if differing := sum(row["differing_answers"] for row in rows):
        Console().print(f"{differing} answers differ")


if __name__ == "__main__":
    main()
