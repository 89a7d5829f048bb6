"""An application behind HTTP at a port of this machine: the one set-up of all servers of the project."""

import contextlib
import ipaddress
import logging
import socket
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from raisf.retrieval.serving.connections import ClientConnection, DrainingServer
from raisf.utils.errors import InputError

LARGEST_ADDRESS = 1 << 16
"""Bytes of a request's first line and headers: a query may stand in the address."""

GRACE = 5
"""Seconds that closing waits at most for the answers that are under way: with `SETTLE` and `LAST_WORDS`, less than the
10 after which Docker kills."""


class HttpServer:
    """Serves an ASGI application. As a context it is closed at the end: it listens from the first, `serve` answers.

    A connection is for one request: none is cut off by the patience with the one before, or as the server stops.

    Attributes:
        port: Where it listens.
        url: Its address.

    Args:
        app: The application.
        host: The address to listen at.
        port: 0: any free one; `url` tells which.
        lifespan: Whether the application is told of its beginning and its end.
        proxied: Whether requests come through a proxy of this machine, or of $FORWARDED_ALLOW_IPS, which tells the
            client's address and scheme (X-Forwarded-For, X-Forwarded-Proto). Else any client could tell another.

    Raises:
        InputError: It cannot listen there: the port is taken or no port, or the address is not this machine's.
    """

    def __init__(
        self,
        app: Any,
        host: str = "127.0.0.1",
        port: int = 0,
        lifespan: Literal["on", "off"] = "off",
        proxied: bool = False,
    ) -> None:
        self._socket = _listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._server = DrainingServer(
            uvicorn.Config(
                app,
                http=ClientConnection,
                ws="none",
                lifespan=lifespan,
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
                headers=[("Connection", "close")],
                proxy_headers=proxied,
                h11_max_incomplete_event_size=LARGEST_ADDRESS,
                timeout_graceful_shutdown=GRACE,
            )
        )

    def serve(self) -> None:
        """Answers until `stop` is called, from another thread or a signal's handler; then what has come in."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Takes no more requests, and lets `serve` end once those that have come in are answered."""
        self._server.should_exit = True

    def close(self) -> None:
        """Frees what it holds, once `serve` has ended."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def own_pages(host: str) -> list[Middleware]:
    """Where `host` is loopback, refuses requests that name another, and posts of other sites' pages.

    So no website can read what is served by a name of its own that leads here (DNS rebinding), or have this machine
    work for it.
    """
    if not is_loopback(host):
        return []
    hosts = ["127.0.0.1", "localhost", "[::1]", "::1", host]
    return [Middleware(TrustedHostMiddleware, allowed_hosts=hosts), Middleware(_OwnPosts)]


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own, which no other machine reaches."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def from_another_site(headers: Headers) -> bool:
    """Whether a browser says that a page of another site asks."""
    origin = headers.get("origin")
    if headers.get("sec-fetch-site") == "cross-site":
        return True
    return origin is not None and _place(origin) != headers.get("host", "")


class _OwnPosts:
    """ASGI middleware: refuses what a page of another site posts. A link that leads here may be followed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posts = scope["type"] == "http" and scope["method"] == "POST"
        refuses = posts and from_another_site(Headers(scope=scope))
        app = PlainTextResponse("a page of another site may not ask here", 403) if refuses else self._app
        await app(scope, receive, send)


def _place(origin: str) -> str:
    """The host and port of an origin; "" for one that has none ("null")."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections: what comes before `serve` waits."""
    with contextlib.ExitStack() as unless:
        try:
            kind = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
            listening = unless.enter_context(socket.socket(kind, socket.SOCK_STREAM))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(1024)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot listen at {host}, port {port} ({reason}): give a free --port (0: any) and a --host of this "
                "machine"
            ) from error
        unless.pop_all()
    return listening
