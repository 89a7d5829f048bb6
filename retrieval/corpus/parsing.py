"""Parsing files that strangers made, by libraries that may hang, crash or fill the memory: in a process of its own.

The process takes one file after the other. What a file may cost there grows with its size; a process that is over it,
or dies, is replaced by a new one, and the file is named.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from raisf.retrieval.corpus.bounds import seconds_for
from raisf.retrieval.corpus.kinds import KINDS, kind_of
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError, RaisfError

logger = logging.getLogger(__name__)

MEMORY, MEMORY_PER_BYTE = 1 << 30, 200
"""Bytes of memory that a file may take, and for each byte of it."""

NO_MEMORY = 77
"""What the process ends with where its memory is used up."""

PATIENCE = 20
"""Seconds that may pass for each of processor time: the machine may be busy."""

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from raisf.retrieval.corpus.parser import main
main()
"""


class ParserProcess:
    """As a context, reads files; its process starts with the first file that needs it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        # It has no name, so that nothing is left of it, however this process ends.
        self._results: IO[bytes] = tempfile.TemporaryFile()

    def __enter__(self) -> "ParserProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._results.close()

    def passages(self, file: Path, name: str, encoding: str | None) -> Iterator[Passage]:
        """The passages of a file.

        Raises:
            InputError: It cannot be read, or not within its bounds; the message says why.
            RaisfError: There is no room for its passages in the temporary folder.
        """
        kind = KINDS[kind_of(file)]
        if kind.library is None:
            yield from kind.read(file, name, encoding)
            return
        if find_spec(kind.library) is None:
            raise InputError(
                f"cannot read {name}: that needs the extra `documents` (pip install -e '.[documents]'); or leave it out"
            )
        self._parse(file, name, encoding)
        with open(os.dup(self._results.fileno()), "rb") as rows:
            rows.seek(0)
            for row in map(json.loads, rows):
                yield Passage(**row)

    def _parse(self, file: Path, name: str, encoding: str | None) -> None:
        process = self._process = self._process or _start(self._results.fileno())
        assert process.stdin is not None and process.stdout is not None
        size = file.stat().st_size
        seconds = seconds_for(size)
        limits = {"seconds": seconds, "memory": MEMORY + MEMORY_PER_BYTE * size}
        task = {"file": str(file.absolute()), "name": name, "encoding": encoding, **limits}
        timer = threading.Timer(seconds * PATIENCE, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = b""
        finally:
            timer.cancel()
        if not answer:
            raise InputError(
                f"{name}: {self._death(seconds)}; save it anew, break it into smaller files, or leave it out"
            )
        told = json.loads(answer)
        for warning in told["warnings"]:
            logger.warning("%s", warning)
        if told["disk"]:
            raise RaisfError(
                f"cannot write what {name} becomes into the temporary folder {tempfile.gettempdir()} ({told['disk']}): "
                "make room there, or name another folder in TMPDIR"
            )
        if told["error"]:
            raise InputError(told["error"])

    def _death(self, seconds: int) -> str:
        assert self._process is not None
        code = self._process.wait()
        self._end()
        if code == NO_MEMORY:
            return "reading it takes more memory than a file of its size may take"
        if -code == signal.SIGXCPU:
            return f"reading it takes more than the {seconds} seconds that a file of its size may take"
        if -code == signal.SIGKILL:  # by the timer, or by a system whose memory is used up
            return "reading it was stopped: the machine has too little memory for it, or is too busy"
        return f"the library that reads it crashed ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _start(results: int) -> "subprocess.Popen[bytes]":
    # It imports what this process would, and nothing from the folder that it happens to be in.
    path = [folder for folder in sys.path if folder]
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _START, json.dumps(path), str(results)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[results],
    )
