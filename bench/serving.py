"""`raisf serve` under load: clients that stream questions against a scripted LM, some of them slow, some that leave.

    python -m bench.serving --seconds 120 --clients 64

Every question has a number and its answer must have the same one: no wrong or mixed answer goes unseen.
"""

import argparse
import http.client
import json
import random
import resource
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from raisf.programs.ra_isf import RAISF
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.serving.app import make_app
from raisf.serving.guard import Access
from raisf.serving.limits import Limits
from raisf.serving.server import AppServer
from raisf.serving.service import Served, Service
from tests.scripted import ScriptedLM


@dataclass
class Load:
    """What the clients have seen."""

    answered: int = 0
    left: int = 0
    wrong: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)


def answer(fields: dict[str, Any]) -> dict[str, Any]:
    """Every question is broken down into two, each read from a passage, and keeps its number all the way."""
    question = fields["question"]
    number = "".join(one for one in question if one.isdigit())
    verdict = (
        "relevant" if "passage" in fields and "part" in question else "irrelevant" if "passage" in fields else "unknown"
    )
    return {
        "verdict": verdict,
        "sub_questions": [f"part {number}", f"other part {number}"],
        "evidence": "e",
        "answer": number,
    }


def run(seconds: float, clients: int, pause: float = 0.0) -> Load:
    """Load a service for so long."""
    load, stop = Load(), threading.Event()
    with TemporaryDirectory() as folder:
        passages = [Passage(f"p{n}", f"part number {n} of the whole", f"T{n}") for n in range(200)]
        program = RAISF(build_index(passages, Path(folder) / "index", "bm25", progress=False), k=2)
        lm = ScriptedLM(answer, sleep=pause)
        lm.update_history = lambda entry: None  # as the commands do
        program.set_lm(lm)
        service = Service({"ra-isf": Served("ra-isf", program)}, Limits(concurrency=clients, rate=0))
        with AppServer(make_app(service, Access())) as server:
            thread = threading.Thread(target=server.serve)
            thread.start()
            askers = [
                threading.Thread(target=_client, args=(server.port, number, load, stop)) for number in range(clients)
            ]
            for asker in askers:
                asker.start()
            for _ in range(10):
                time.sleep(seconds / 10)
                lm.calls.clear()  # the script's own memory, which is not the service's
                load.memory.append(_memory())
            stop.set()
            for asker in askers:
                asker.join()
            server.stop()
            thread.join()
    return load


def _client(port: int, number: int, load: Load, stop: threading.Event) -> None:
    rng, asked = random.Random(number), 0
    while not stop.is_set():
        asked += 1
        wanted = f"{number:03}{asked:05}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        started = time.perf_counter()
        connection.request("POST", "/ask", json.dumps({"question": f"whole {wanted}"}))
        response = connection.getresponse()
        if response.status == 429:  # a question that was left still ends
            connection.close()
            time.sleep(0.05)
            continue
        leaves, slow, last = rng.random() < 0.05, rng.random() < 0.05, {}
        for line in response:
            if line.startswith(b"data: "):
                last = json.loads(line[6:])
                if last.get("type") == "question" and last["node"] == "0":
                    load.first.append(time.perf_counter() - started)
                    if leaves:
                        break
                if slow:
                    time.sleep(0.02)
        connection.close()
        if leaves:
            load.left += 1
        elif last.get("answer") == wanted and wanted in last["trace"]["root"]["question"]:
            load.answered += 1
        else:
            load.wrong.append(f"{wanted}: {last}"[:300])


def _memory() -> float:
    """Megabytes now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--clients", type=int, default=64)
    given = parser.parse_args()
    load = run(given.seconds, given.clients)
    first = statistics.quantiles(load.first, n=100)
    print(f"{given.clients} clients, {given.seconds:g} s")
    print(f"questions: {load.answered} answered, {load.left} left by their client, {len(load.wrong)} wrong")
    print(f"first event: median {1000 * first[49]:.0f} ms, 95th percentile {1000 * first[94]:.0f} ms")
    print("memory, MB: " + " ".join(f"{one:.0f}" for one in load.memory))
    assert not load.wrong, load.wrong[:3]


if __name__ == "__main__":
    main()
