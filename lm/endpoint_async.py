"""An endpoint's engine for coroutines."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

from dspy.lm15 import Request, Response

from raisf.lm import replies
from raisf.lm.keeping import Heard, keep


class AsyncEndpoint:
    """The engine of an endpoint, awaited.

    Args:
        endpoint: A `raisf.lm.endpoint.Endpoint`.
    """

    def __init__(self, endpoint: Any) -> None:
        self._endpoint = endpoint

    def __deepcopy__(self, memo: dict[int, Any]) -> "AsyncEndpoint":
        return self

    async def complete(self, request: Request) -> Response:
        """Answer a request; cancelling it closes the connection."""
        response = await asyncio.wrap_future(self._endpoint.submit(request))
        keep(replies.lasting(response))
        return response

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """The events of an answer, as they come."""
        here, events = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def emit(event: Any) -> None:
            here.call_soon_threadsafe(events.put_nowait, event)

        future = self._endpoint.submit(request, emit)
        future.add_done_callback(emit)
        try:
            heard = Heard()
            while not isinstance(event := await events.get(), Future):
                heard.note(event)
                yield event
            event.result()
            keep(heard.lasting)
        finally:
            future.cancel()
