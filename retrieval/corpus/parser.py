"""The process that `parsing` starts: reads the files that it is told on standard input, one after the other."""

import contextlib
import dataclasses
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from raisf.retrieval.corpus.bounds import bounded
from raisf.retrieval.corpus.kinds import KINDS, kind_of
from raisf.retrieval.corpus.logged import logged
from raisf.retrieval.corpus.parsing import NO_MEMORY
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError


def main() -> None:
    """Answers each task, a JSON line, by a line: what was wrong, or nothing, and then the passages are in the file.

    With it goes what the reader logged.
    """
    # Libraries print: their standard output is none of ours.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    try:
        _answer(answers, int(sys.argv[2]))
    except MemoryError:
        os._exit(NO_MEMORY)


def _answer(answers: TextIO, results: int) -> None:
    for line in sys.stdin:
        task = json.loads(line)
        _limit(resource.RLIMIT_AS, task["memory"])
        _limit(resource.RLIMIT_CPU, int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1 + task["seconds"])
        with logged("raisf") as warnings:
            answers.write(json.dumps({**_read(task, results), "warnings": warnings}) + "\n")
        answers.flush()


def _read(task: dict[str, Any], results: int) -> dict[str, str | None]:
    """Writes the passages of a file; says what is wrong with it (`error`) or with the disk (`disk`), if anything is."""
    file, name = Path(task["file"]), task["name"]
    try:
        os.lseek(results, 0, os.SEEK_SET)
        os.ftruncate(results, 0)
        with open(results, "w", encoding="utf-8", closefd=False) as out:
            for passage in bounded(_passages(file, name, task["encoding"]), file, name):
                out.write(json.dumps(dataclasses.asdict(passage)) + "\n")
    except InputError as error:
        return {"error": str(error), "disk": None}
    except OSError as error:  # of the results: what is raised of the file is an InputError
        return {"error": None, "disk": error.strerror or str(error)}
    return {"error": None, "disk": None}


def _passages(file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
    """Those of a file, which is opened with the first: what a reader raises before that is the file's fault, too."""
    yield from KINDS[kind_of(file)].read(file, name, encoding)


def _limit(what: int, amount: int) -> None:
    _, hard = resource.getrlimit(what)
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit of memory
        resource.setrlimit(what, (amount if hard == resource.RLIM_INFINITY else min(amount, hard), hard))
