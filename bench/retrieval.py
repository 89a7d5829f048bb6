"""Search latency, size and faithfulness: PLAID, exact MaxSim and BM25 over the same passages.

    python -m bench.retrieval [--passages 10000] [--corpus DOCS] [--queries 200] [--threads 1] [--json]

Without a corpus of your own the passages are made up (seeded). Queries are known items: some words of a passage each;
a hit is that passage among the first 10. ColBERT's rows share one encoding of the passages; a search also needs the
query's encoding, which has a row of its own. Overlap is with the first 10 of exact MaxSim.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.maxsim import MaxSim
from raisf.retrieval.search.plaid import Plaid, compress
from raisf.retrieval.store.vectors import Vectors
from raisf.utils.sampling import up_to

K = 10
SYLLABLES = "ba ce di fo gu ka le mi no pu ra se ti vo zu an el in or us".split()
SENTENCES = (
    "{a} is a {thing} in the {side} of {b}, first mentioned in {year}.",
    "Its {part} was {made} by {c}, who had come from {d} in {year}.",
    "The {thing} has {number} {part}s and is known for its {colour} {part}.",
    "After the fire of {year} the people of {a} moved to {d}.",
    "{c} wrote about the {colour} {thing} of {b} in a letter to {e}.",
    "Every {number} years a fair is held between {b} and {d}.",
    "In {year} {e} sold the {part} to a {colour} company of {number} merchants.",
)
WORDS = {
    "thing": "village castle river company museum school bridge newspaper theatre mill garden harbour".split(),
    "side": "north south east west centre hills valley".split(),
    "part": "tower gate roof library hall wall archive fountain engine clock".split(),
    "made": "built painted founded moved restored measured described bought".split(),
    "colour": "red blue green white black golden grey".split(),
}


def made_up(count: int, seed: int = 0) -> Iterator[Passage]:
    """Passages of some 90 words about invented places and people."""
    rng = random.Random(seed)
    names = ["".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))).capitalize() for _ in range(max(50, count // 4))]
    for number in range(count):
        title = rng.choice(names)
        sentences = []
        for sentence in rng.choices(SENTENCES, k=7):
            fields = {name: rng.choice(words) for name, words in WORDS.items()}
            fields |= {name: rng.choice(names) for name in "bcde"}
            sentences.append(
                sentence.format(a=title, year=rng.randint(1100, 1990), number=rng.randint(2, 900), **fields)
            )
        yield Passage(f"m{number}", " ".join(sentences), title)


def known_items(passages: Sequence[Passage], count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Queries of 8 words drawn, in their order, from the title and text of a passage, with its id."""
    rng = random.Random(seed)
    items = []
    for passage in up_to(passages, count, rng):
        words = passage.prompt_text.replace("|", "").split()
        chosen = sorted(rng.sample(range(len(words)), min(8, len(words))))
        items.append((" ".join(words[i] for i in chosen), passage.pid))
    return items


def timed(search: Callable[[Any], Any], queries: Sequence[Any]) -> tuple[list[Any], dict[str, float]]:
    """What each call brings, and its median and 95th percentile in milliseconds, one after the other."""
    search(queries[0])
    found, times = [], []
    for query in queries:
        start = time.perf_counter()
        found.append(search(query))
        times.append(1000 * (time.perf_counter() - start))
    return found, {"p50_ms": float(np.percentile(times, 50)), "p95_ms": float(np.percentile(times, 95))}


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def measure(passages: Sequence[Passage], items: Sequence[tuple[str, str]], checkpoint: str) -> list[dict[str, Any]]:
    texts, wanted = [text for text, _ in items], [pid for _, pid in items]
    rows: list[dict[str, Any]] = []

    def add(name: str, found: list[list[str]], times: dict[str, float], built: float, folder: Path) -> None:
        exact = found if not rows else rows[0]["found"]
        shared = [len(set(ours) & set(theirs)) / max(1, len(theirs)) for ours, theirs in zip(found, exact, strict=True)]
        hits = float(np.mean([pid in pids for pid, pids in zip(wanted, found, strict=True)]))
        facts = {"overlap": float(np.mean(shared)), "hit": hits, "bytes_a_passage": size(folder) / len(passages)}
        rows.append({"engine": name, **times, **facts, "build_s": built, "found": found})

    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        start = time.perf_counter()
        ColBERT.build(passages, root / "exact", checkpoint, search="exact")
        encoding = time.perf_counter() - start
        encoder = find_checkpoint(checkpoint).encoder()
        queries, query_times = timed(lambda text: encoder.encode_queries([text])[0], texts)
        folder = root / "exact" / "segments" / "1" / "vectors"
        vectors = Vectors(folder)

        def pids(hits: list[list[tuple[int, float]]]) -> list[list[str]]:
            return [[passages[number].pid for number, _ in row] for row in hits]

        engine, allowed = MaxSim(vectors), np.ones(len(passages), dtype=bool)
        found, times = timed(lambda query: engine.search([query], K, allowed)[0], queries)
        add("exact MaxSim", pids(found), times, encoding, folder)
        start = time.perf_counter()
        compress(vectors, root / "plaid")
        compressing = time.perf_counter() - start
        plaid = Plaid(root / "plaid")
        found, times = timed(lambda query: plaid.search([query], K, allowed)[0], queries)
        add("PLAID", pids(found), times, encoding + compressing, root / "plaid")
        start = time.perf_counter()
        bm25 = BM25.build(passages, root / "bm25")
        built = time.perf_counter() - start
        found, times = timed(lambda text: bm25(text, K), texts)
        add("BM25", [[p.pid for p in row] for row in found], times, built, next((root / "bm25").glob("words-*")))
    encoded = {"engine": "(encoding the query)", **query_times}
    return [{key: value for key, value in row.items() if key != "found"} for row in [*rows, encoded]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=10_000, help="how many, at most")
    parser.add_argument("--corpus", type=Path, help="a file or folder of documents; without: made up")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    import torch

    torch.set_num_threads(args.threads)
    source = read_documents(args.corpus) if args.corpus else made_up(args.passages)
    passages = list(itertools.islice(source, args.passages))
    rows = measure(passages, known_items(passages, args.queries), args.checkpoint)
    if args.json:
        facts = {"passages": len(passages), "queries": args.queries, "threads": args.threads, "k": K, "results": rows}
        json.dump(facts, sys.stdout, indent=2)
        print()
        return
    table = Table(title=f"{len(passages)} passages, {args.queries} queries, k={K}, {args.threads} thread(s)")
    columns = {
        "p50_ms": ("p50, ms", "{:.1f}"),
        "p95_ms": ("p95, ms", "{:.1f}"),
        "overlap": ("overlap@10", "{:.2f}"),
        "hit": ("hit@10", "{:.2f}"),
        "bytes_a_passage": ("bytes a passage", "{:,.0f}"),
        "build_s": ("index made, s", "{:.0f}"),
    }
    table.add_column("engine")
    for heading, _ in columns.values():
        table.add_column(heading, justify="right")
    for row in rows:
        cells = (form.format(row[key]) if key in row else "" for key, (_, form) in columns.items())
        table.add_row(row["engine"], *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
