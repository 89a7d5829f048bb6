"""An index behind HTTP, for many processes and machines: what `raisf serve-index` runs.

`raisf.retrieval.serving.protocol` tells what goes over the wire. Each request is one connection, has a body of at most
2 MiB and must have come in after 30 seconds; its client must take the answer in as many. Anyone who reaches the port
may search: there is no password and no encryption. At a loopback address, requests that name another host are refused,
and so are those that a page of another site posts.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from raisf.retrieval.engines.base import Index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving.batcher import Batcher
from raisf.retrieval.serving.connections import ERROR
from raisf.retrieval.serving.listening import HttpServer, own_pages
from raisf.retrieval.serving.protocol import MOST_LISTED, identity, read_request, read_where, topk
from raisf.retrieval.serving.watcher import Watcher
from raisf.utils.errors import InputError

logger = logging.getLogger(__name__)

LARGEST_BODY = 2 << 20
"""Bytes of a request: 16 kB for each of 128 queries; one query of that size costs a tokenizer some seconds."""


class IndexServer(HttpServer):
    """Serves one index, and its new state whenever its folder changes.

    Attributes:
        batcher: What searches.

    Args:
        index: The index.
        host: See `HttpServer`.
        port: Likewise.
        reopen: Opens the index again when its folder has changed; None: it is served as it is.
    """

    def __init__(self, index: Index, host: str = "127.0.0.1", port: int = 0, reopen: Callable[[], Index] | None = None):
        routes = [
            Route("/info", self._info),
            Route("/passages", self._passages, methods=["POST"]),
            Route("/{path:path}", self._search, methods=["GET", "POST"]),
        ]
        super().__init__(Starlette(routes=routes, middleware=own_pages(host)), host, port)
        self.batcher = Batcher(index)
        self._watcher = Watcher(self.batcher, reopen)

    def close(self) -> None:
        """Frees what it holds, once `serve` has ended."""
        super().close()
        self._watcher.close()
        self.batcher.close(seconds=1)

    def info(self) -> dict[str, Any]:
        """What it serves, and how much it has answered."""
        index, batcher = self.batcher.index, self.batcher
        counts = {"passages": index.manifest.passages, "queries": batcher.queries, "batches": batcher.batches}
        return identity(index) | counts

    async def _info(self, request: Request) -> Response:
        return _answer(200, _dump(self.info()))

    async def _search(self, request: Request) -> Response:
        return await _respond(self._found(request))

    async def _found(self, request: Request) -> bytes:
        queries, k, where, single = read_request(await _fields_of(request))
        index, found = await asyncio.wrap_future(self.batcher.submit(queries, k, where))
        # Thousands of passages take a while to write: others are answered meanwhile.
        return await run_in_threadpool(_written, index, found, single)

    async def _passages(self, request: Request) -> Response:
        return await _respond(self._listed(request))

    async def _listed(self, request: Request) -> bytes:
        given = await _fields_of(request)
        where = read_where(given.get("where") if isinstance(given, dict) else None)
        return await run_in_threadpool(_listing, self.batcher.index, where)


async def _respond(answer: Awaitable[bytes]) -> Response:
    """The response to a request: what was asked for, or why there is none."""
    try:
        return _answer(200, await answer)
    except InputError as error:
        return _refuse(400, str(error))
    except _TooLarge as error:
        return _refuse(413, str(error))
    except ClientDisconnect:  # it went while it sent: nobody reads this
        return Response(status_code=499)
    except asyncio.CancelledError:
        return _refuse(503, "the server was told to stop, and the search took too long: ask again")
    except Exception as error:
        logger.exception("a search failed")
        return _refuse(500, f"the search failed ({type(error).__name__}: {error})")


class _TooLarge(Exception):
    """A request beyond what is read."""


async def _fields_of(request: Request) -> Any:
    """The fields of a request: those of its address, or the JSON of its body."""
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


def _written(index: Index, found: list[list[Passage]], single: bool) -> bytes:
    rows = [topk(passages) for passages in found]
    return _dump({"topk": rows[0] if single else rows, "index": identity(index)})


def _listing(index: Index, where: str) -> bytes:
    found = index.passages_where(where)
    if len(found) > MOST_LISTED:
        raise InputError(f"{len(found)} passages satisfy {where!r:.80}; an index that is served lists {MOST_LISTED}")
    return _dump({"passages": topk(found), "index": identity(index)})


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json; charset=utf-8")


def _refuse(status: int, message: str) -> Response:
    # Clients that look no further than the status line show its reason; it is one line of Latin-1.
    reason = " ".join(message.split()).encode("latin-1", "replace").decode("latin-1")[:200]
    return _answer(status, _dump({"error": True, "message": message}), {ERROR: reason})
