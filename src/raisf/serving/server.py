"""The service as a process: listens, answers, and ends what has come in before it ends itself."""

import sys
from typing import Any

from raisf.retrieval.serving.listening import HttpServer

SWITCH = 0.0005
"""Seconds after which Python lets another thread run: its 5 ms, times the threads of many questions, is how long the
one thread that accepts, reads and sends would wait for its turn again and again."""


class AppServer(HttpServer):
    """Serves the service's application; see `HttpServer`."""

    def __init__(self, app: Any, host: str = "127.0.0.1", port: int = 0, proxied: bool = False) -> None:
        super().__init__(app, host, port, "on", proxied)

    def serve(self) -> None:
        """Answers until `stop` is called; then what has come in."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        try:
            super().serve()
        finally:
            sys.setswitchinterval(before)
