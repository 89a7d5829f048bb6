"""The process that `parsing` starts: reads the files that it is told on standard input, one after the other."""

import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, TextIO

from raisf.retrieval.corpus.bounds import bounded
from raisf.retrieval.corpus.kinds import KINDS, kind_of
from raisf.retrieval.corpus.parsing import NO_MEMORY
from raisf.utils.errors import InputError


def main() -> None:
    """Answers each task, a JSON line, by a line: what was wrong, or nothing, and then the passages are in the file."""
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
        answers.write(json.dumps({"error": _read(task, results)}) + "\n")
        answers.flush()


def _read(task: dict[str, Any], results: int) -> str | None:
    """Writes the passages of a file; says what is wrong with it, if anything is."""
    file, name = Path(task["file"]), task["name"]
    os.lseek(results, 0, os.SEEK_SET)
    os.ftruncate(results, 0)
    try:
        with open(results, "w", encoding="utf-8", closefd=False) as out:
            for passage in bounded(KINDS[kind_of(file)](file, name, task["encoding"]), file, name):
                row = {"pid": passage.pid, "text": passage.text, "title": passage.title, "source": passage.source}
                out.write(json.dumps({**row, "metadata": dict(passage.metadata)}) + "\n")
    except InputError as error:
        return str(error)
    return None


def _limit(what: int, amount: int) -> None:
    _, hard = resource.getrlimit(what)
    with contextlib.suppress(ValueError, OSError):  # macOS has no such limit of memory
        resource.setrlimit(what, (amount if hard == resource.RLIM_INFINITY else min(amount, hard), hard))


if __name__ == "__main__":
    main()
