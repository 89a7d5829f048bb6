"""Engines for late interaction over the same vectors: exact MaxSim, PLAID, fast-plaid, PyLate, Qdrant in the process.

    python -m bench.engines [--index DIR ... --questions dev.jsonl] [--passages 2000] [--threads 1 2]
        [--engines exact prefetch prefetch-float16 plaid fast-plaid pylate qdrant qdrant-edge-200 qdrant-edge-800]
        [--limit 1200] [--foreign-python PATH]
        [--out results.json] [--json]

`prefetch` is what `raisf index` makes of a large corpus, `prefetch-float16` the same over vectors that are not packed.
The indexes are ColBERT ones of one checkpoint, not compressed (`python -m bench.recall --keep` leaves such); their
vectors are taken together. Without, the passages and queries are those that bench.retrieval makes up. Overlap is with
the first 10 of exact MaxSim, and left out where that failed. A query is its vectors: encoding it takes the same time
for all. CPU time is that of the median query, which other work on the machine changes less than its latency. Each
engine has processes of its own; memory is the peak above that of Python with PyTorch, and what of it is the process's
own at the end: the rest are files that it has mapped, which the system takes back when it needs the room. An engine
that is not made in time is left out. fast-plaid is built for another PyTorch than this project's: it needs a Python of
its own (`--foreign-python`). PyLate searches with it, too; `pylate` is its other engine: a graph of all token vectors
(Voyager) finds passages, which are then compared exactly. `qdrant` is the client's own engine, numpy; `qdrant-edge-N`
is that of Qdrant's server in the process (qdrant-edge-py): as `raisf index push` has it, a graph of the means chooses N
passages, whose token vectors, float16 on the disk, are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.retrieval import known_items, made_up
from raisf.data.questions import load_questions
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.store.manifest import read_manifest
from raisf.retrieval.store.segments import VECTORS, vectors_folder
from raisf.retrieval.store.vectors import Vectors, write_shard
from raisf.utils.files import write_json

ENGINES = (
    "exact",
    "prefetch",
    "prefetch-float16",
    "plaid",
    "fast-plaid",
    "pylate",
    "qdrant",
    "qdrant-edge-200",
    "qdrant-edge-800",
)
FOREIGN = ("fast-plaid", "pylate", "qdrant-edge-200", "qdrant-edge-800")
COLUMNS = {
    "p50_ms": ("p50, ms", "{:.1f}"),
    "p95_ms": ("p95, ms", "{:.1f}"),
    "cpu_ms": ("CPU, ms", "{:.1f}"),
    "overlap": ("overlap@10", "{:.3f}"),
    "build_s": ("made in, s", "{:.1f}"),
    "bytes_a_passage": ("bytes a passage", "{:,.0f}"),
    "build_peak": ("peak, making", "{:,.0f}"),
    "search_peak": ("peak, searching", "{:,.0f}"),
    "search_own": ("its own", "{:,.0f}"),
}
MEGABYTES = ("build_peak", "search_peak", "search_own")


def take_vectors(indexes: Sequence[Path], count: int, folder: Path) -> tuple[int, int]:
    """Writes the vectors of the first `count` passages of exact indexes into a folder; returns how many of both."""
    import torch

    parts = [
        vectors_folder(index, segment)
        for index in indexes
        for segment in read_manifest(index).segments
        if segment.search == "exact"
    ]
    taken = total = 0
    for number, (vectors, lengths) in enumerate(_shards(Vectors(*parts), count)):
        write_shard(folder, number, [(vectors, lengths)])
        taken, total = taken + len(lengths), total + int(torch.sum(lengths))
    return taken, total


def _shards(vectors: Vectors, count: int) -> Iterator[tuple[Any, Any]]:
    for rows, lengths in vectors:
        lengths = lengths[:count]
        yield rows[: int(lengths.sum())], lengths
        count -= len(lengths)
        if count <= 0:
            return


def write_queries(index: Path, texts: Sequence[str], file: Path) -> None:
    """Writes the vectors of queries, encoded with the checkpoint of an index."""
    import torch
    from safetensors.torch import save_file

    rows = find_checkpoint(read_manifest(index).checkpoint or "").encoder().encode_queries(texts)
    save_file({"vectors": torch.cat(rows), "lengths": torch.tensor([len(row) for row in rows])}, file)


def run(action: str, engine: str, folder: Path, threads: int, python: str, limit: float) -> dict[str, Any]:
    """What a worker measured; {"error": its last words} where it failed."""
    command = [python, "-m", "bench.workers.engine", action, engine, str(folder), "--threads", str(threads)]
    limits = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    environment = {**os.environ, **limits}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"error": f"{action}: not done after {limit:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200]}
    return json.loads(done.stdout[done.stdout.index("{") :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, nargs="+", help="exact ColBERT indexes")
    parser.add_argument("--questions", type=Path, help="with --index: what is searched for")
    parser.add_argument("--passages", type=int, default=2_000, help="how many, at most")
    parser.add_argument("--queries", type=int, default=300, help="how many, at most")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["exact", "prefetch", "plaid"])
    parser.add_argument("--limit", type=float, default=1200, help="seconds for making, and for searching, an engine")
    parser.add_argument(
        "--foreign-python", default=sys.executable, metavar="PATH", help="with fast-plaid, PyLate, Qdrant Edge"
    )
    parser.add_argument("--out", type=Path, help="write the results there after each engine")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    if bool(args.index) != bool(args.questions):
        parser.error("--index and --questions go together")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if args.index:
            indexes = args.index
            texts = [question.question for question in load_questions(args.questions)]
        else:
            indexes, made = [folder / "made-up"], list(made_up(args.passages))
            ColBERT.build(made, indexes[0], search="exact")
            texts = [text for text, _ in known_items(made, args.queries)]
        passages, vectors = take_vectors(indexes, args.passages, folder / VECTORS)
        write_queries(indexes[0], texts[: args.queries], folder / "queries.safetensors")
        queries = len(texts[: args.queries])
        facts = {"passages": passages, "vectors": vectors, "queries": queries, "results": rows}
        truth: list[list[int]] = []
        for engine in ["exact", *(name for name in args.engines if name != "exact")]:
            python = args.foreign_python if engine in FOREIGN else sys.executable
            built = run("build", engine, folder, args.threads[0], python, args.limit)
            for threads in args.threads if "error" not in built else ():
                searched = run("search", engine, folder, threads, python, args.limit)
                row = {"engine": engine, "threads": threads, **built, **searched}
                hits = row.pop("hits", [])
                if engine == "exact":
                    truth = truth or hits
                if hits:
                    row["bytes_a_passage"] = row["bytes"] / passages
                if hits and truth:
                    shared = [len(set(a) & set(b)) / len(b) for a, b in zip(hits, truth, strict=True)]
                    row["overlap"] = float(np.mean(shared))
                rows.append(row)
            if "error" in built:
                rows.append({"engine": engine, "threads": args.threads[0], **built})
            if args.out:
                write_json(args.out, facts)
    if args.json:
        json.dump(facts, sys.stdout, indent=2)
        print()
        return
    table = Table(
        title=f"{passages} passages, {vectors:,} vectors, {queries} queries; peaks in MB", title_justify="left"
    )
    table.add_column("engine")
    table.add_column("threads")
    for heading, _ in COLUMNS.values():
        table.add_column(heading, justify="right")
    for row in rows:
        shown = {**row, **{name: row[name] / 1e6 for name in MEGABYTES if name in row}}
        cells = [form.format(shown[key]) if key in shown else "" for key, (_, form) in COLUMNS.items()]
        if "error" in row:
            cells[0] = row["error"]
        table.add_row(row["engine"], str(row["threads"]), *cells)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
