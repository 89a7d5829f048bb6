"""RA-ISF over an LM of fixed latency: side by side, one call after another, and the least that the tree allows.

    python -m bench.concurrency [--latency 0.05] [--k 5] [--limit 32] [--json]

Aims: a bushy tree at least 5 times as fast as one call after another, and at most 1.3 times its critical path.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy
from rich import box
from rich.console import Console
from rich.table import Table

from raisf.programs.concurrency import set_concurrency
from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import Node, Trace
from raisf.retrieval.passage import Passage
from tests.scripted import ScriptedLM

# Name -> for each depth, the sub-questions of an unknown question there; the deepest ones are read from a passage.
TREES: dict[str, list[list[str]]] = {
    "no sub-questions": [],
    "3 sub-questions": [["a?", "b?", "c?"]],
    "3 in a chain": [["a?", "b of #1?", "c of #2?"]],
    "4 x 3 sub-questions": [["a?", "b?", "c?", "d?"], ["e?", "f?", "g?"]],
    "3 x 3 x 3 sub-questions": [["a?", "b?", "c?"]] * 3,
}


class Shelf:
    """The same k passages for every question, at once."""

    path: Path | None = None
    corpus_hash = "bench"

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The first k passages."""
        return [Passage(pid=f"{n}", title=f"Title {n}", text=f"passage {n} on {query}") for n in range(k)]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for each query."""
        return [self(query, k) for query in queries]


def script(levels: list[list[str]]):
    """An LM that knows nothing, breaks a question down level by level, and finds the last level in passage 0."""

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        depth = fields["question"].count(">")
        read = depth == len(levels)
        if "passage" in fields:
            return {"verdict": "relevant" if read and "Title 0" in fields["passage"] else "irrelevant"}
        subs = [] if read else [f"{fields['question']} > {sub}" for sub in levels[depth]]
        return {"verdict": "unknown", "sub_questions": subs, "evidence": "e", "answer": f"answer {depth}"}

    return answer


def critical_path(node: Node) -> int:
    """The calls that must follow one another, whatever runs beside them: what an endless machine would wait for."""
    if node.route == "duplicate":
        return 0
    calls = (node.know is not None) + bool(node.passages) + (node.route in ("direct", "passages", "no_sub_questions"))
    if node.route == "decomposed":
        ends: list[int] = []
        for sub in node.sub_questions:
            ends.append(max((ends[number - 1] for number in sub.waits_for), default=0) + critical_path(sub))
        calls += 1 + max(ends) + 1
    return calls


def timed(program: RAISF, lm: ScriptedLM, repeats: int) -> tuple[float, Trace]:
    """Median seconds of a question, and its trace."""

    def once() -> tuple[float, Trace]:
        started = time.perf_counter()
        trace = program(question="root").trace
        return time.perf_counter() - started, trace

    with dspy.context(lm=lm):
        runs = [once() for _ in range(repeats)]
    return statistics.median(seconds for seconds, _ in runs), runs[0][1]


def measure(latency: float, k: int, limit: int, repeats: int) -> list[dict[str, Any]]:
    """One row a tree; seconds throughout."""
    rows = []
    for name, levels in TREES.items():
        set_concurrency(limit)
        lm, program = ScriptedLM(script(levels), sleep=latency), RAISF(Shelf(), k=k)
        together, trace = timed(program, lm, repeats)
        set_concurrency(1)
        alone, _ = timed(program, lm, 1)
        least = critical_path(trace.root) * latency
        rows.append(
            {
                "tree": name,
                "lm_calls": trace.cost.lm_calls,
                "one_by_one": alone,
                "side_by_side": together,
                "critical_path": least,
                "speedup": alone / together,
                "over_critical_path": together / least,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.concurrency", description=__doc__)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds of an LM call (default: 0.05)")
    parser.add_argument("--k", type=int, default=5, help="passages a question (default: 5)")
    parser.add_argument("--limit", type=int, default=32, help="LM calls under way at once (default: 32)")
    parser.add_argument("--repeats", type=int, default=5, help="runs side by side, of which the median counts")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    dspy.configure(disable_history=True)
    RAISF()  # pays for dspy's first imports
    rows = measure(options.latency, options.k, options.limit, options.repeats)
    if options.json:
        json.dump(
            {"latency": options.latency, "k": options.k, "limit": options.limit, "rows": rows}, sys.stdout, indent=2
        )
        return
    calls = f"{options.latency * 1000:.0f} ms a call, at most {options.limit} at once"
    table = Table(box=box.SIMPLE_HEAD, title=f"RA-ISF, k={options.k}, {calls}; seconds a question")
    for column in ("tree", "calls", "1 by 1", "at once", "path", "speedup", "x path"):
        table.add_column(column, justify="left" if column == "tree" else "right", no_wrap=column == "tree")
    for row in rows:
        table.add_row(
            row["tree"],
            str(row["lm_calls"]),
            *(f"{row[name]:.2f}" for name in ("one_by_one", "side_by_side", "critical_path")),
            f"{row['speedup']:.1f}x",
            f"{row['over_critical_path']:.2f}x",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
