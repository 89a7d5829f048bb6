"""The service as a process: listens, answers, and ends what has come in before it ends itself."""

import contextlib
import resource
import sys
from typing import Any

from raisf.retrieval.serving.listening import HttpServer

SWITCH = 0.0005
"""Seconds after which Python lets another thread run: its 5 ms, times the threads of many questions, is how long the
one thread that accepts, reads and sends would wait for its turn again and again."""
FILES = 65_536
"""That may be open at a time."""


class AppServer(HttpServer):
    """Serves the service's application; see `HttpServer`."""

    def __init__(self, app: Any, host: str = "127.0.0.1", port: int = 0, proxied: bool = False) -> None:
        super().__init__(app, host, port, "on", proxied)

    def serve(self) -> None:
        """Answers until `stop` is called; then what has come in."""
        _raise_open_files()
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        try:
            super().serve()
        finally:
            sys.setswitchinterval(before)


def _raise_open_files() -> None:
    """Raise the limit of open files, as far as the system lets this process.

    Each thread that asks DSPy's cache holds some files of it: the usual 1,024 is too few for a hundred calls at a time,
    and a server without a file left accepts nobody.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS has a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
