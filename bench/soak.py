"""A long run in one process: its memory must not grow with the questions.

    python -m bench.soak [--questions 5000] [--every 500] [--threads 8] [--program ra-isf] [--lm pocket] [--json]

Questions of a closed world, all of them different, so many at a time. DSPy's cache and trace, which grow up to their
own limits, are off, as in `raisf serve`. At the start, with the model read, and after every so many questions: resident
memory in MiB, how much of it the C library keeps free, questions a second, and CPU milliseconds a question.

What is in use, the resident memory less the free, is flat where the line through the second half of the curve rises by
less than a MiB in 1,000 questions. Resident memory itself goes on rising for long, as tensors of all sizes, made and
freed in many threads, leave holes. Over 3,000 questions of the pocket Llama it rose by 23 MiB in 1,000, and what was in
use by 0.6; at the end 96 MiB were free, of which `malloc_trim` gave back 84, and as many of Python's objects lived as
after 1,500 (until then the names of beginnings fill their table, `raisf.lm.local.prefixes`). Fewer arenas
(MALLOC_ARENA_MAX=2) leave as many holes: 98 to 115 MiB after 2,500 to 4,000 questions, no more after 4,000 than before.
"""

import argparse
import ctypes
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import Any

import dspy
import numpy as np
from rich.console import Console

import raisf
from bench.prefixes import world
from raisf.programs.registry import build

# What a flat curve may rise by, MiB in 1,000 questions.
FLAT = 1.0


class _Mallinfo2(ctypes.Structure):
    """What glibc's malloc says of itself, in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def resident() -> float:
    """MiB of this process's memory that are in RAM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status does not say VmRSS: this bench runs on Linux")


def kept_free() -> float:
    """MiB that the C library has free, to be used again; 0 where it is not glibc 2.33 or newer, which would say."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0.0
    mallinfo.restype = _Mallinfo2
    return mallinfo().fordblks / 2**20


def soak(program: Any, questions: list[str], every: int, threads: int) -> Iterator[dict[str, float]]:
    """Asks all questions; a point after every so many. The first is after one question more, which reads the model."""
    program(question=questions[0])
    yield {"questions": 0, "mib": resident(), "free_mib": kept_free(), "questions_a_second": 0.0, "cpu_ms": 0.0}
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(questions), every):
            wall, cpu, part = time.perf_counter(), time.process_time(), questions[start : start + every]
            for run in [pool.submit(copy_context().run, program, question=question) for question in part]:
                run.result()
            yield {
                "questions": start + len(part),
                "mib": resident(),
                "free_mib": kept_free(),
                "questions_a_second": len(part) / (time.perf_counter() - wall),
                "cpu_ms": 1000 * (time.process_time() - cpu) / len(part),
            }


def growth(points: list[dict[str, float]]) -> float | None:
    """MiB in use in 1,000 questions, by the line through the second half; None for fewer than two points there."""
    half = points[len(points) // 2 :]
    if len(half) < 2:
        return None
    used = [one["mib"] - one["free_mib"] for one in half]
    return 1000 * float(np.polyfit([one["questions"] for one in half], used, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--lm", default="pocket", help="an LM in the process (default: pocket)")
    parser.add_argument("--program", default="ra-isf", help="default: ra-isf")
    parser.add_argument("--questions", type=int, default=5000, help="how many (default: 5000)")
    parser.add_argument("--every", type=int, default=500, help="questions between two points (default: 500)")
    parser.add_argument("--threads", type=int, default=8, help="questions at a time (default: 8)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args()
    dspy.configure(disable_history=True, trace=None)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    points, say = [], Console(stderr=options.json).print
    with tempfile.TemporaryDirectory() as folder:
        # The same question with another number before it is another question.
        index, found = world(Path(folder), min(options.questions, 500))
        questions = [f"{n}. {found[n % len(found)]}" for n in range(options.questions)]
        program: Any = build(options.program, index)
        program.set_lm(raisf.connect(options.lm))
        for point in soak(program, questions, options.every, options.threads):
            points.append(point)
            say(
                "{questions:>6} questions  {mib:7.1f} MiB, {free_mib:5.1f} free  {questions_a_second:5.2f}/s  "
                "{cpu_ms:6.1f} CPU ms".format(**point)
            )
    rises = growth(points)
    if options.json:
        json.dump({"points": points, "used_mib_in_1000_questions": rises}, sys.stdout, indent=2)
    elif rises is not None:
        say(
            f"{rises:+.2f} MiB in use in 1,000 questions over the second half: {'flat' if rises < FLAT else 'it grows'}"
        )


if __name__ == "__main__":
    main()
