"""What bfloat16 does to verdicts: the same rows judged in float32 and in bfloat16.

    python -m bench.precision --lm local/FOLDER[@LORA] --rows rows.jsonl [--labels relevant irrelevant]
        [--limit 500] [--json]

A row is {"prompt": text, "label": one of the labels}: what the judge reads, up to where its verdict begins. For each
precision the accuracy with its 95% interval (Wilson) and CPU milliseconds a verdict; then the verdicts that flip, with
how sure float32 was of them, and by how much the probability of the first label changes (mean, 99%, greatest). Rows are
judged in batches as programs ask for them, 32 at a time, and both precisions take turns.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from dspy.lm15 import DataPart
from rich.console import Console

from bench.scoring import verdict_requests
from raisf.evaluation.intervals import proportion
from raisf.lm.connect import connect
from raisf.utils.files import read_jsonl

DTYPES = ("float32", "bfloat16")
TOGETHER = 32


def judged(lm: Any, prompts: list[str], labels: list[str]) -> list[float]:
    """The probability of the first label for each prompt."""
    found = []
    for future in [lm.engine.submit(request) for request in verdict_requests(prompts, labels, lm.model)]:
        part = future.result().message.first(DataPart)
        assert part is not None and part.probabilities is not None
        found.append(part.probabilities["verdict"][labels[0]])
    return found


def measure(lms: dict[str, Any], rows: list[dict[str, str]], labels: list[str]) -> dict[str, Any]:
    """Both precisions over all rows, in turns."""
    found: dict[str, list[float]] = {dtype: [] for dtype in lms}
    cpu = dict.fromkeys(lms, 0.0)
    for start in range(0, len(rows), TOGETHER):
        prompts = [row["prompt"] for row in rows[start : start + TOGETHER]]
        for dtype, lm in lms.items():
            began = time.process_time()
            found[dtype] += judged(lm, prompts, labels)
            cpu[dtype] += time.process_time() - began
        print(f"{len(found[DTYPES[0]])} of {len(rows)}", file=sys.stderr, flush=True)
    gold = np.array([row["label"] == labels[0] for row in rows])
    one, other = (np.array(found[dtype]) for dtype in DTYPES)
    result: dict[str, Any] = {"n": len(rows)}
    for dtype in DTYPES:
        right = int(((np.array(found[dtype]) >= 0.5) == gold).sum())
        accuracy = proportion(right, len(rows))
        result[dtype] = {
            "accuracy": accuracy.value,
            "interval": (accuracy.low, accuracy.high),
            "cpu_ms": 1000 * cpu[dtype] / len(rows),
        }
    flips, change = np.flatnonzero((one >= 0.5) != (other >= 0.5)), np.abs(one - other)
    result |= {
        "flips": len(flips),
        "probability_of_flipped": one[flips].round(3).tolist(),
        "mean_change": float(change.mean()),
        "p99_change": float(np.quantile(change, 0.99)),
        "greatest_change": float(change.max()),
        "cpu_ratio": cpu[DTYPES[0]] / cpu[DTYPES[1]],
    }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.precision", description=__doc__)
    parser.add_argument("--lm", required=True, help="a local model, with or without @LORA")
    parser.add_argument("--rows", type=Path, required=True, help="JSON Lines of prompt and label")
    parser.add_argument("--labels", nargs="+", default=["relevant", "irrelevant"], help="all that may be said")
    parser.add_argument("--limit", type=int, help="only the first N rows")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = list(read_jsonl(options.rows))[: options.limit]
    lms = {dtype: connect(options.lm, dtype=dtype, adapter="compact") for dtype in DTYPES}
    result = measure(lms, rows, options.labels)
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        return
    say = Console().print
    for dtype in DTYPES:
        of, (low, high) = result[dtype], result[dtype]["interval"]
        say(f"{dtype:>9}: accuracy {of['accuracy']:.1%} ({low:.1%} to {high:.1%}), {of['cpu_ms']:.0f} CPU ms a verdict")
    say(f"of {result['n']} verdicts {result['flips']} flip (float32 said {result['probability_of_flipped']})")
    say(
        f"probabilities change by {result['mean_change']:.4f} in the mean, {result['p99_change']:.4f} at the 99th "
        f"percentile, {result['greatest_change']:.4f} at most; float32 takes {result['cpu_ratio']:.2f} times the CPU"
    )


if __name__ == "__main__":
    main()
