"""Server-sent events, and work that ends when its client goes away."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")

KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment is sent, so that proxies do not close the stream."""


class Gone(Exception):
    """The client has closed its connection."""


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """The result of some work, which is cancelled when the client closes its connection.

    Raises:
        Gone: It has.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise Gone
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event; JSON has no line breaks of its own."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return ((f"event: {event}\n" if event else "") + f"data: {text}\n\n").encode("utf-8", "replace")


class EventStream(Response):
    """A response of server-sent events.

    Args:
        chunks: Makes the events; cancelled when the client goes away.
        close: Called in any case, in the end.
        stopped: The last of them where the server stops before the end.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: Callable[[], AsyncIterator[bytes]], close: Callable[[], None], stopped: bytes) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._chunks, self._close, self._stopped = chunks, close, stopped
        self._begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            with contextlib.suppress(Gone):
                await unless_gone(receive, self._send(send))
        except asyncio.CancelledError:
            if not self._begun:
                raise
            await _put(send, self._stopped, more=False)
        finally:
            self._close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self._begun = True
        async with contextlib.aclosing(_alive(self._chunks())) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                await _put(send, chunk)
        await _put(send, b"", more=False)


async def _put(send: Send, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _alive(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks, and comments where they are long in coming."""
    async with contextlib.aclosing(chunks):  # type: ignore[type-var]
        following = asyncio.ensure_future(anext(chunks))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=KEEP_ALIVE)
                if not done:
                    yield b": still working\n\n"
                    continue
                try:
                    yield following.result()
                except StopAsyncIteration:
                    return
                following = asyncio.ensure_future(anext(chunks))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
