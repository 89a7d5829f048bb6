"""Searches that come from many threads: encoded together, against one by one.

    python -m bench.together INDEX QUESTIONS.jsonl [--queries 128] [--threads 1 8 32]

A ratio counts, CPU seconds beside wall clock. It says how many queries found other passages: an encoder in
bfloat16 rounds otherwise in a batch, so by default it encodes each query alone, though many are given to it together.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from raisf.data.questions import load_questions
from raisf.retrieval.encoders.encoder import QUERY_BATCH
from raisf.retrieval.index import open_index
from raisf.retrieval.search.together import MicroBatcher


def measure(index: Any, queries: Sequence[str], threads: int) -> tuple[float, float, list[list[str]]]:
    """CPU and wall-clock milliseconds a query, and what was found."""
    index._found.clear()  # what is remembered costs nothing
    encoder_of(index)._known.clear()
    cpu, wall = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda query: [passage.pid for passage in index(query, 5)], queries))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return 1000 * cpu / len(queries), 1000 * wall / len(queries), found


def encoder_of(index: Any) -> Any:
    """Of a ColBERT index, what encodes its queries."""
    return index._searchers[0]._encode._work.__self__


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("questions")
    parser.add_argument("--queries", type=int, default=128)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 8, 32])
    given = parser.parse_args()
    index: Any = open_index(given.index)
    queries = [example.question for example in load_questions(given.questions)[: given.queries]]
    search = index._searchers[0]
    together = MicroBatcher(search._encode._work)
    encoder_of(index)._batch = QUERY_BATCH
    index(queries[0], 5)
    for threads in given.threads:
        search._encode = MicroBatcher(together._work, most=1)
        alone = measure(index, queries, threads)
        search._encode = together
        both = measure(index, queries, threads)
        differ = sum(one != other for one, other in zip(alone[2], both[2], strict=True))
        print(
            f"{threads} threads, {len(queries)} queries: one by one {alone[0]:.1f} ms CPU ({alone[1]:.1f} ms), "
            f"together {both[0]:.1f} ms CPU ({both[1]:.1f} ms): {both[0] / alone[0]:.2f} of the CPU; "
            f"{differ} found otherwise"
        )


if __name__ == "__main__":
    main()
