"""What compiling to weights takes as the rows grow: `raisf compile --how weights`, in a closed world.

    python -m bench.compiling [--rows 100 200 400 800] [--epochs 2] [--entities 900] [--lm pocket] [--json]

Each time all of it, in one process, one after the other: rows are drawn from gold (the LM tells what it knows), a LoRA
adapter is trained for each judge, and judged after each epoch on as many dev questions as in `make demo`, 200. Early
stopping is off, so that the epochs are as many as are asked for. CPU seconds of the whole, and of that what training
took; and CPU milliseconds of training a row and epoch, which are to stay as they are or fall, since what is paid
once is shared.
"""

import argparse
import json
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
from raisf.lm.finetune.training import FinetuneRun, Training


def measure(program: Any, trainset: Any, valset: Any, rows: int, training: Training, work: Path) -> dict[str, Any]:
    """One compiling."""
    trained, epoch = [0.0], FinetuneRun.epoch

    def timed(run: FinetuneRun, *args: Any) -> Any:
        start = time.process_time()
        try:
            return epoch(run, *args)
        finally:
            trained[0] += time.process_time() - start

    wall, cpu = time.perf_counter(), time.process_time()
    with patch.object(FinetuneRun, "epoch", timed):
        options: dict[str, Any] = {"rows": rows, "training": training, "work": work, "progress": False}
        made: Any = raisf.compile(program, trainset=trainset, valset=valset, how="weights", **options)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    judges = made.compile_report["predictors"].values()
    count = sum(sum(judge["rows"]["train"].values()) for judge in judges)
    return {"rows": rows, "trained_rows": count, "wall_s": wall, "cpu_s": cpu, "training_cpu_s": trained[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 200, 400, 800], help="a judge, at most")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--entities", type=int, default=900, help="of the world (default: the demo's, 900)")
    parser.add_argument("--lm", default="pocket")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    dspy.configure(disable_history=True)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    training, found = Training(epochs=options.epochs, patience=options.epochs), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        raisf.write_world(folder / "world", entities=options.entities)
        index = raisf.build_index(folder / "world" / "corpus.jsonl", folder / "index", engine="bm25", progress=False)
        train, dev = (raisf.load_questions(folder / "world" / f"{split}.jsonl") for split in ("train", "dev"))
        program: Any = raisf.RAISF(index)
        program.set_lm(raisf.connect(options.lm))
        for rows in options.rows:
            found.append(measure(program, train, dev[:200], rows, training, folder / f"work-{rows}"))
    for row in found:
        row["ms_a_row"] = 1000 * row["training_cpu_s"] / (row["trained_rows"] * options.epochs)
    if options.json:
        json.dump({"epochs": options.epochs, "questions": len(train), "results": found}, sys.stdout, indent=2)
        return
    table = Table(box=box.SIMPLE_HEAD, title=f"{options.lm}, {options.epochs} epochs, {len(train)} training questions")
    for heading in ("--rows", "rows of all judges", "s", "CPU, s", "of that training", "CPU ms a row and epoch"):
        table.add_column(heading, justify="right")
    for row in found:
        times = [f"{row[name]:.1f}" for name in ("wall_s", "cpu_s", "training_cpu_s", "ms_a_row")]
        table.add_row(str(row["rows"]), str(row["trained_rows"]), *times)
    Console().print(table)


if __name__ == "__main__":
    main()
