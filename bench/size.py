"""Prefetch over as many passages as there is time for: made-up ones, out of the token vectors of real ones.

    python -m bench.size --index indexes/mine --questions dev.jsonl [--passages 300000] [--vectors 20] [--queries 50]
        [--candidates 800 3200] [--read 0 32] [--runs 1] [--noise 0.3] [--folder DIR] [--json]

A made-up passage is --runs runs of token vectors, each out of a passage drawn at random from exact indexes of one
checkpoint, with noise of length --noise added to each vector. So nothing is encoded. With one run many are almost
alike, as those of one page are; with two, each is about two things, so that its mean says less than a real one's does.
They are one segment, written as `raisf index` writes it: packed as they come, then sorted into cells.
Exact search compares the vectors before they are packed, also as they come. For each number of candidates, and of
passages that a search reads for each (`raisf.retrieval.search.cells.READ`; 0: all, without cells), in a process of its
own: latency, CPU time, what is found of exact search's first ten, and memory.
"""

import argparse
import itertools
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from bench.engines import write_queries
from bench.workers.engine import K, search
from raisf.data.questions import load_questions
from raisf.retrieval.search import cells, prefetch
from raisf.retrieval.search.maxsim import best_products
from raisf.retrieval.store.manifest import read_manifest
from raisf.retrieval.store.segments import VECTORS, vectors_folder
from raisf.retrieval.store.vectors import SHARD, Vectors, write_shard

NOISES = 1 << 20
"""Vectors of noise, which are drawn once and taken in turn."""
AT_ONCE = 512
"""Passages compared at once."""


def drawn(
    indexes: Sequence[Path], count: int, each: int, runs: int, noise: float
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The vectors, float16, and lengths of the made-up passages of one file after the other."""
    segments = [(index, segment) for index in indexes for segment in read_manifest(index).segments]
    real = Vectors(*(vectors_folder(index, segment) for index, segment in segments))
    rows, lengths = torch.cat([part for part, _ in real]), real.lengths
    starts, long = lengths.cumsum(0) - lengths, each // runs
    enough = torch.nonzero(lengths >= long)[:, 0]
    generator = torch.Generator().manual_seed(0)
    noises = torch.randn(NOISES, rows.shape[1], generator=generator) * noise / rows.shape[1] ** 0.5
    for first in range(0, count, SHARD):
        size = min(SHARD, count - first)
        picked = enough[torch.randint(len(enough), (size, runs), generator=generator)]
        room = lengths[picked] - long + 1
        begin = starts[picked] + (torch.rand(size, runs, generator=generator) * room).long()
        places = (begin.unsqueeze(-1) + torch.arange(long)).flatten()
        turn = int(torch.randint(NOISES, (1,), generator=generator))
        apart = noises[torch.arange(turn, turn + len(places)) % NOISES]
        vectors = torch.nn.functional.normalize(rows[places].float() + apart, dim=1)
        yield vectors.half(), torch.full((size,), runs * long)


def make(folder: Path, queries: Sequence[torch.Tensor], options: argparse.Namespace) -> dict[str, Any]:
    """Writes the passages; what it took, and what exact search finds first."""
    spent = dict.fromkeys(("making", "packing", "comparing", "sorting"), 0.0)
    best: list[list[tuple[float, int]]] = [[] for _ in queries]
    parts = drawn(options.index, options.passages, options.vectors, options.runs, options.noise)
    together, number = torch.cat(list(queries)), 0
    ends = np.cumsum([len(query) for query in queries])[:-1]
    while True:
        start = time.process_time()
        part = next(parts, None)
        spent["making"] += time.process_time() - start
        if part is None:
            break
        vectors, lengths = part
        start = time.process_time()
        write_shard(folder / VECTORS, number, [part], packed=True)
        spent["packing"] += time.process_time() - start
        start = time.process_time()
        each, some = int(lengths[0]), vectors.float().split(AT_ONCE * int(lengths[0]))
        products = np.concatenate([best_products(together, one, np.arange(0, len(one), each)) for one in some], axis=1)
        for row, scores in zip(best, np.split(products, ends), strict=True):
            total = scores.sum(axis=0)
            row += [(float(total[at]), number * SHARD + int(at)) for at in np.argpartition(total, -K)[-K:]]
            row[:] = sorted(row, reverse=True)[:K]
        spent["comparing"] += time.process_time() - start
        number += 1
    start = time.process_time()
    cells.write_cells(Vectors(folder / VECTORS), folder / cells.CELLS)
    spent["sorting"] += time.process_time() - start
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = {name: sum(file.stat().st_size for file in folder.rglob(name)) for name in ("0*.safetensors", cells.CELLS)}
    truth = [[at for _, at in row] for row in best]
    return {"cpu_s": spent, "peak": peak, "bytes": list(size.values()), "truth": truth}


def searched(folder: Path, candidates: int, read: int, truth: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What a search takes and finds; see the module. For a process of its own, whose memory is then the search's."""
    torch.set_num_threads(1)
    file, aside = folder / "prefetch" / cells.CELLS, folder / "aside"
    if read == 0:
        file.rename(aside)
    try:
        with (
            patch.object(cells, "READ", read),
            patch.object(prefetch, "CANDIDATES", candidates),
            torch.inference_mode(),
        ):
            row = search("prefetch", folder)
    finally:
        if read == 0:
            aside.rename(file)
    hits = row.pop("hits")
    shared = [len(set(found) & set(best)) / K for found, best in zip(hits, truth, strict=True)]
    return {"candidates": candidates, "read": read, **row, "overlap": float(np.mean(shared))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, nargs="+", required=True, help="exact ColBERT indexes of one checkpoint")
    parser.add_argument("--questions", type=Path, required=True, help="what is searched for")
    parser.add_argument("--passages", type=int, default=300_000)
    parser.add_argument("--vectors", type=int, default=20, help="of a passage (default: 20)")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--candidates", type=int, nargs="+", default=[prefetch.CANDIDATES, 4 * prefetch.CANDIDATES])
    parser.add_argument("--read", type=int, nargs="+", default=[0, cells.READ])
    parser.add_argument("--runs", type=int, default=1, help="of which a passage is made (default: 1)")
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--folder", type=Path, help="where it all goes, and stays (default: a temporary folder)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary, torch.inference_mode():
        folder = options.folder or Path(temporary)
        (folder / "prefetch").mkdir(parents=True)
        texts = [question.question for question in load_questions(options.questions)][: options.queries]
        write_queries(options.index[0], texts, folder / "queries.safetensors")
        tensors = load_file(folder / "queries.safetensors")
        queries = tensors["vectors"].split(tensors["lengths"].tolist())
        made = make(folder / "prefetch", queries, options)
        truth = made.pop("truth")
        rows = []
        for candidates, read in itertools.product(options.candidates, options.read):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                rows.append(alone.submit(searched, folder, candidates, read, truth).result())
    facts = {"passages": options.passages, "vectors": options.vectors, "queries": len(truth), **made, "results": rows}
    if options.json:
        json.dump(facts, sys.stdout, indent=2)
        return
    say = Console(width=120).print
    say("{passages:,} passages of {vectors} vectors, {queries} queries".format(**facts))
    say("CPU seconds:", ", ".join(f"{name} {seconds:.0f}" for name, seconds in facts["cpu_s"].items()))
    say(f"bytes a passage: {' + '.join(f'{part / options.passages:.0f}' for part in facts['bytes'])} of cells")
    table = Table()
    for heading in (
        "candidates",
        "read",
        "open, s",
        "p50, ms",
        "p95, ms",
        "CPU, ms",
        "overlap@10",
        "its own MB",
        "peak MB",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        took = [f"{row[name]:.1f}" for name in ("open_s", "p50_ms", "p95_ms", "cpu_ms")]
        memory = [f"{row[name] / 1e6:.0f}" for name in ("search_own", "search_peak")]
        table.add_row(str(row["candidates"]), str(row["read"] or "all"), *took, f"{row['overlap']:.3f}", *memory)
    say(table)


if __name__ == "__main__":
    main()
