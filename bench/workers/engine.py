"""One engine of `bench.engines` in a process of its own: its memory is then its own, and so may be its libraries.

    python -m bench.workers.engine build|search ENGINE FOLDER --threads 1

FOLDER has `vectors/` (`raisf.retrieval.store.vectors`) and `queries.safetensors`; the engine's index goes to
FOLDER/ENGINE. What was measured is printed as JSON.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from raisf.retrieval.store.vectors import Vectors

K = 10

Search = Callable[[torch.Tensor], list[int]]
"""A query's vectors -> the numbers of its first K passages."""


def _ours(engine: Any, passages: int) -> Search:
    allowed = np.ones(passages, dtype=bool)
    return lambda query: [number for number, _ in engine.search([query], K, allowed)[0]]


def exact(vectors: Vectors) -> Search:
    from raisf.retrieval.search.maxsim import MaxSim

    return _ours(MaxSim(vectors), len(vectors.lengths))


def prefetch_float16(vectors: Vectors) -> Search:
    from raisf.retrieval.search.prefetch import Prefetch

    return _ours(Prefetch(vectors), len(vectors.lengths))


def build_prefetch(vectors: Vectors, folder: Path) -> None:
    from raisf.retrieval.search import cells
    from raisf.retrieval.store.vectors import write_shard

    folder.mkdir()
    for number, part in enumerate(vectors):
        write_shard(folder / "vectors", number, [part], packed=True)
    if len(vectors.lengths) >= cells.CELLS_FROM:
        cells.write_cells(Vectors(folder / "vectors"), folder / cells.CELLS)


def prefetch(folder: Path) -> Search:
    return prefetch_float16(Vectors(folder / "vectors"))


def build_plaid(vectors: Vectors, folder: Path) -> None:
    from raisf.retrieval.search.plaid import compress

    compress(vectors, folder)


def plaid(folder: Path) -> Search:
    from raisf.retrieval.search.plaid import Plaid

    lengths = [json.loads(file.read_text()) for file in folder.glob("doclens.*.json")]
    return _ours(Plaid(folder), sum(map(len, lengths)))


def build_fast_plaid(vectors: Vectors, folder: Path) -> None:
    from fast_plaid.search import FastPlaid  # pyright: ignore[reportMissingImports]

    rows = list(vectors.all().half().split(vectors.lengths.tolist()))
    FastPlaid(index=str(folder), device="cpu").create(documents_embeddings=rows, nbits=2)


def fast_plaid(folder: Path) -> Search:
    from fast_plaid.search import FastPlaid  # pyright: ignore[reportMissingImports]

    engine = FastPlaid(index=str(folder), device="cpu")
    options = {"top_k": K, "show_progress": False, "n_processes": 1}
    return lambda query: [number for number, _ in engine.search([query.half()], **options)[0]]


def build_pylate(vectors: Vectors, folder: Path) -> None:
    from pylate import indexes  # pyright: ignore[reportMissingImports]

    rows = [row.numpy() for row in vectors.all().split(vectors.lengths.tolist())]
    index = indexes.Voyager(str(folder), embedding_size=rows[0].shape[1], override=True)
    index.add_documents([str(number) for number in range(len(rows))], rows)


def pylate(folder: Path) -> Search:
    from pylate import indexes, retrieve  # pyright: ignore[reportMissingImports]

    retriever = retrieve.ColBERT(index=indexes.Voyager(str(folder)))
    return lambda query: [int(hit["id"]) for hit in retriever.retrieve([query.numpy()], k=K, device="cpu")[0]]


def qdrant(vectors: Vectors) -> Search:
    from qdrant_client import QdrantClient, models  # pyright: ignore[reportMissingImports]

    client = QdrantClient(":memory:")
    every = vectors.all()
    comparator = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    params = models.VectorParams(size=every.shape[1], distance=models.Distance.DOT, multivector_config=comparator)
    client.create_collection("bench", vectors_config=params)
    rows = every.split(vectors.lengths.tolist())
    for start in range(0, len(rows), 64):
        part = enumerate(rows[start : start + 64], start=start)
        client.upsert("bench", [models.PointStruct(id=number, vector=row.tolist()) for number, row in part])
    return lambda query: [int(p.id) for p in client.query_points("bench", query=query.tolist(), limit=K).points]


EDGE_CHOSEN = {"qdrant-edge-200": 200, "qdrant-edge-800": 800}
"""Passages that the means choose: as many as for a collection of `raisf index push`, or as many as prefetch's."""


def build_qdrant_edge(vectors: Vectors, folder: Path) -> None:
    import qdrant_edge as qdrant  # pyright: ignore[reportMissingImports]

    params = {"size": next(iter(vectors))[0].shape[1], "distance": qdrant.Distance.Dot}
    params["datatype"] = qdrant.VectorStorageDatatype.Float16
    tokens = qdrant.MultiVectorConfig(qdrant.MultiVectorComparator.MaxSim)
    plain = qdrant.HnswIndexConfig(m=0, ef_construct=100, full_scan_threshold=10_000)
    many = qdrant.EdgeVectorParams(**params, multivector_config=tokens, hnsw_config=plain, on_disk=True)
    config = qdrant.EdgeConfig(vectors={"mean": qdrant.EdgeVectorParams(**params), "tokens": many})
    folder.mkdir()
    shard, number = qdrant.EdgeShard.create(str(folder), config), 0
    for rows, lengths in vectors:
        for part in np.array_split(np.arange(len(lengths)), -(-len(lengths) // 64)):
            ends = lengths.cumsum(0)
            passages = [rows[int(ends[at] - lengths[at]) : int(ends[at])].float() for at in part]
            points = [
                qdrant.Point(number + at, {"mean": row.mean(dim=0).tolist(), "tokens": row.tolist()})
                for at, row in enumerate(passages)
            ]
            shard.update(qdrant.UpdateOperation.upsert_points(points))
            number += len(points)
    while shard.optimize():
        pass
    shard.close()


def qdrant_edge(folder: Path, chosen: int) -> Search:
    import qdrant_edge as qdrant  # pyright: ignore[reportMissingImports]

    shard = qdrant.EdgeShard.load(str(folder))

    def search(query: torch.Tensor) -> list[int]:
        mean = qdrant.Query.Nearest(query.mean(dim=0).tolist(), using="mean")
        tokens = qdrant.Query.Nearest(query.tolist(), using="tokens")
        first = [qdrant.Prefetch(limit=chosen, query=mean)]
        return [int(point.id) for point in shard.query(qdrant.QueryRequest(limit=K, query=tokens, prefetches=first))]

    return search


IN_MEMORY: dict[str, Callable[[Vectors], Search]] = {
    "exact": exact,
    "prefetch-float16": prefetch_float16,
    "qdrant": qdrant,
}
ON_DISK: dict[str, tuple[Callable[[Vectors, Path], None], Callable[[Path], Search]]] = {
    "prefetch": (build_prefetch, prefetch),
    "plaid": (build_plaid, plaid),
    "fast-plaid": (build_fast_plaid, fast_plaid),
    "pylate": (build_pylate, pylate),
    **{name: (build_qdrant_edge, partial(qdrant_edge, chosen=chosen)) for name, chosen in EDGE_CHOSEN.items()},
}


def peak_bytes() -> int:
    """The most memory that this process has had, files that it has mapped and looked at included."""
    if found := _status("VmHWM"):  # getrusage would give the parent's peak where that is higher
        return found
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


def own_bytes() -> int | None:
    """The memory that this process has, without files: what the system cannot take back. None where it doesn't say."""
    return _status("RssAnon")


def _status(name: str) -> int | None:
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.is_file() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), None)


def build(engine: str, folder: Path) -> dict[str, Any]:
    before, start = peak_bytes(), time.perf_counter()
    if engine in ON_DISK:
        ON_DISK[engine][0](Vectors(folder / "vectors"), folder / engine)
    else:
        IN_MEMORY[engine](Vectors(folder / "vectors"))
    seconds = time.perf_counter() - start
    files = (folder / engine if engine in ON_DISK else folder / "vectors").rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    return {"build_s": seconds, "bytes": size, "build_peak": peak_bytes() - before}


def search(engine: str, folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    before, own, start = peak_bytes(), own_bytes(), time.perf_counter()
    found = ON_DISK[engine][1](folder / engine) if engine in ON_DISK else IN_MEMORY[engine](Vectors(folder / "vectors"))
    opened = time.perf_counter() - start
    tensors = load_file(folder / "queries.safetensors")
    queries = tensors["vectors"].split(tensors["lengths"].tolist())
    for query in queries[:5]:
        found(query)
    hits, times, computed = [], [], []
    for query in queries:
        start, cpu = time.perf_counter(), time.process_time()
        hits.append(found(query))
        times.append(1000 * (time.perf_counter() - start))
        computed.append(1000 * (time.process_time() - cpu))
    now = own_bytes()
    return {
        "open_s": opened,
        "p50_ms": float(np.percentile(times, 50)),
        "p95_ms": float(np.percentile(times, 95)),
        "cpu_ms": float(np.percentile(computed, 50)),
        "search_peak": peak_bytes() - before,
        **({} if own is None or now is None else {"search_own": now - own}),
        "hits": hits,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("build", "search"))
    parser.add_argument("engine", choices=(*IN_MEMORY, *ON_DISK))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with torch.inference_mode():
        measured = {"build": build, "search": search}[args.action](args.engine, args.folder)
    json.dump(measured, sys.stdout)


if __name__ == "__main__":
    main()
