"""The service as a process: listens, answers, and ends what has come in before it ends itself."""

import logging
import sys
from typing import Any

import uvicorn

from raisf.retrieval.serving.connections import ClientConnection, DrainingServer
from raisf.retrieval.serving.server import GRACE, LARGEST_ADDRESS, listen

SWITCH = 0.0005
"""Seconds after which Python lets another thread run: its 5 ms, times the threads of many questions, is how long the
one thread that accepts, reads and sends would wait for its turn again and again."""


class AppServer:
    """Serves an ASGI application; as a context it is closed at the end.

    Attributes:
        port: Where it listens.
        url: Its address.

    Args:
        app: The application.
        host: The address to listen at.
        port: 0: any free one.

    Raises:
        InputError: It cannot listen there.
    """

    def __init__(self, app: Any, host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._server = DrainingServer(
            uvicorn.Config(
                app,
                http=ClientConnection,
                ws="none",
                lifespan="on",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
                h11_max_incomplete_event_size=LARGEST_ADDRESS,
                timeout_graceful_shutdown=GRACE,
            )
        )

    def serve(self) -> None:
        """Answers until `stop` is called; then what has come in."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH)
        try:
            self._server.run(sockets=[self._socket])
        finally:
            sys.setswitchinterval(before)

    def stop(self) -> None:
        """Takes no more requests, and lets `serve` end once those that have come in are answered."""
        self._server.should_exit = True

    def __enter__(self) -> "AppServer":
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()
