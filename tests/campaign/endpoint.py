"""Asks questions through an endpoint that fails, and compares what comes back with what it says when it does not."""

import json
from pathlib import Path

from campaign.kills import Tally, run_command
from faulty_endpoint import serve

# Of the questions asked through an endpoint that fails so often, at least this share must end with an answer.
RATES = {0.1: 0.99, 0.5: 0.0}


def ask_through_faults(home: Path, work: Path, seconds: float, seed: int) -> list[Tally]:
    """`raisf eval` at each rate of faults: an error must be named, an answer must be the one of a sound endpoint.

    Args:
        home: A folder with `world` and `index`.
        work: Where the records go.
        seconds: Not used: an evaluation takes as long as its retries.
        seed: Of the faults.
    """
    tallies = []
    for rate, least in RATES.items():
        tally = Tally(f"endpoint: {rate:.0%} faults")
        tallies.append(tally)
        sound, faulty = _records(home, work / "sound", 0.0, seed), _records(home, work / f"{rate:g}", rate, seed)
        answered = 0
        for identity, row in faulty.items():
            tally.tried += 1
            if row["error"]:
                continue
            answered += 1
            changed = row["prediction"] != sound[identity]["prediction"]
            if changed and not row["unreadable"]:
                tally.wrong += 1
                tally.notes.append(f"{tally.name}: {row['question']!r} became {row['prediction']!r} without a word")
        tally.lost = len(sound) - len(faulty)
        if faulty and answered < least * len(faulty):
            tally.lost += len(faulty) - answered
            tally.notes.append(f"{tally.name}: only {answered} of {len(faulty)} questions ended with an answer")
        if "Traceback" in (work / f"{rate:g}" / "log").read_text(errors="replace"):
            tally.crashed += 1
            tally.notes.append(f"{tally.name}: a traceback in the log")
    return tallies


def _records(home: Path, folder: Path, rate: float, seed: int) -> dict[str, dict]:
    with serve(rate, seed) as endpoint:
        argv = [
            "eval",
            "--program",
            "ra-isf",
            "--index",
            str(home / "index"),
            "--test",
            str(home / "world/train.jsonl"),
        ]
        argv += ["--lm", "openai/x", "--api-base", endpoint.url, "--timeout", "2", "--out", "eval.jsonl"]
        run_command([*argv, "--threads", "16"], folder)
    rows = map(json.loads, (folder / "eval.jsonl").read_text().splitlines())
    return {row["id"]: row for row in rows}
