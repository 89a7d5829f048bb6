"""An index behind HTTP, for many processes and machines: what `raisf serve-index` runs.

`raisf.retrieval.serving.protocol` tells what goes over the wire. Each request is one connection, has a body of at most
2 MiB and must have come in after 30 seconds; its client must take the answer in as many. Anyone who reaches the port
may search: there is no password and no encryption.
"""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from raisf.retrieval.engines.base import Index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving.batcher import Batcher
from raisf.retrieval.serving.connections import ERROR, ClientConnection, DrainingServer
from raisf.retrieval.serving.protocol import identity, read_request, topk
from raisf.retrieval.serving.watcher import Watcher
from raisf.utils.errors import InputError

logger = logging.getLogger(__name__)

LARGEST_BODY = 2 << 20
"""Bytes of a request: 16 kB for each of 128 queries; one query of that size costs a tokenizer some seconds."""

LARGEST_ADDRESS = 1 << 16
"""Bytes of a request's first line and headers: a query may stand in the address."""

GRACE = 5
"""Seconds that closing waits at most for the answers that are under way: with `SETTLE`, Docker kills after 10."""


class IndexServer:
    """Serves one index, and its new state whenever its folder changes.

    As a context it is closed at the end: it listens from the first, and `serve` answers.

    Attributes:
        batcher: What searches.
        port: Where it listens.
        url: Its address.

    Args:
        index: The index.
        host: The address to listen at.
        port: 0: any free one; `url` tells which.
        reopen: Opens the index again when its folder has changed; None: it is served as it is.

    Raises:
        InputError: It cannot listen there: the port is taken or no port, or the address is not this machine's.
    """

    def __init__(self, index: Index, host: str = "127.0.0.1", port: int = 0, reopen: Callable[[], Index] | None = None):
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self.batcher = Batcher(index)
        self._watcher = Watcher(self.batcher, reopen)
        routes = [Route("/info", self._info), Route("/{path:path}", self._search, methods=["GET", "POST"])]
        self._server = DrainingServer(
            uvicorn.Config(
                Starlette(routes=routes),
                http=ClientConnection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
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
        self._watcher.close()
        self.batcher.close(seconds=1)

    def __enter__(self) -> "IndexServer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def info(self) -> dict[str, Any]:
        """What it serves, and how much it has answered."""
        index, batcher = self.batcher.index, self.batcher
        counts = {"passages": index.manifest.passages, "queries": batcher.queries, "batches": batcher.batches}
        return identity(index) | counts

    async def _info(self, request: Request) -> Response:
        return _answer(200, _dump(self.info()))

    async def _search(self, request: Request) -> Response:
        try:
            queries, k, where, single = read_request(await _given(request))
            index, found = await asyncio.wrap_future(self.batcher.submit(queries, k, where))
            # Thousands of passages take a while to write: others are answered meanwhile.
            return _answer(200, await run_in_threadpool(_found, index, found, single))
        except InputError as error:
            return _refuse(400, str(error))
        except _TooLarge as error:
            return _refuse(413, str(error))
        except asyncio.CancelledError:
            return _refuse(503, "the server was told to stop, and the search took too long: ask again")
        except Exception as error:
            logger.exception("a search failed")
            return _refuse(500, f"the search failed ({type(error).__name__}: {error})")


class _TooLarge(Exception):
    """A request beyond what is read."""


async def _given(request: Request) -> Any:
    """What a request asks for: the fields of its address, or the JSON of its body."""
    if request.method != "POST":
        # Bytes that are no UTF-8 become surrogates, which `read_request` refuses.
        query = request.scope["query_string"].decode("latin-1")
        return {name: values[-1] for name, values in parse_qs(query, True, errors="surrogateescape").items()}
    body, size = bytearray(), 0
    async for chunk in request.stream():
        # Read to its end all the same: a client that is still sending would see a broken connection, not the answer.
        size += len(chunk)
        if size <= LARGEST_BODY:
            body += chunk
    if size > LARGEST_BODY:
        raise _TooLarge(f"a request has a body of at most {LARGEST_BODY} bytes; found {size}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f'the body is not JSON ({error}): send {{"query": "...", "k": 10}}') from error


def _found(index: Index, found: list[list[Passage]], single: bool) -> bytes:
    rows = [topk(passages) for passages in found]
    return _dump({"topk": rows[0] if single else rows, "index": identity(index)})


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    # One request a connection: none is then cut off when the server stops between two.
    given = {"Connection": "close", **(headers or {})}
    return Response(body, status, given, media_type="application/json; charset=utf-8")


def _refuse(status: int, message: str) -> Response:
    # Clients that look no further than the status line show its reason; it is one line of Latin-1.
    reason = " ".join(message.split()).encode("latin-1", "replace").decode("latin-1")[:200]
    return _answer(status, _dump({"error": True, "message": message}), {ERROR: reason})


def listen(host: str, port: int) -> socket.socket:
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
