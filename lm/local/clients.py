"""How an LM reaches its engine: with one of its LoRA adapters or a probe, from an event loop, token by token."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from dspy.lm15 import (
    DataPart,
    Message,
    Request,
    Response,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    UnsupportedFeatureError,
    Usage,
)

from raisf.lm.local.engine import InferenceEngine
from raisf.lm.transport import in_time, late, seconds_left
from raisf.lm.verdicts import asked_labels, verdict_part

StreamEvent = StreamStartEvent | StreamDeltaEvent | StreamEndEvent


class EngineClient:
    """The engine as DSPy wants it, for the base, one of its LoRA adapters, or the base with a probe.

    Args:
        base: The engine of the base model.
        lora: Folder and hash (`raisf.lm.local.multi_lora.lora_hash`) of the adapter; it is read at the first request.
        probe: Likewise of the probe (`raisf.lm.local.probes.probe_hash`), which judges.
    """

    supported_params = InferenceEngine.supported_params

    def __init__(
        self, base: InferenceEngine, lora: tuple[Path, str] | None = None, probe: tuple[Path, str] | None = None
    ):
        self.base = base
        self.lora = lora
        self.probe = probe

    def __deepcopy__(self, memo: dict[int, Any]) -> "EngineClient":
        return self

    def complete(self, request: Request) -> Response:
        """Answer a request, together with those that other threads make at the same time, of whatever adapter.

        Raises:
            LateError: It takes longer than this context allows (`raisf.lm.transport.until`).
        """
        return in_time(self.submit(request))  # who waits no more frees the row

    def stream(self, request: Request) -> Iterator[StreamEvent]:
        """Answer a request token by token; it is batched with others all the same. It ends in time, as `complete`."""
        # Not a SimpleQueue, which before Python 3.13 may wait beyond its timeout, for ever.
        written: queue.Queue[str | None] = queue.Queue()
        future = self.submit(request, written.put)
        future.add_done_callback(lambda _: written.put(None))
        deltas, left = _Deltas(request), seconds_left()
        try:
            yield StreamStartEvent(model=request.model)
            while (text := written.get(timeout=seconds_left())) is not None:
                yield from deltas.of(text)
            yield from deltas.last(future.result())
        except queue.Empty:
            raise late(left) from None
        finally:
            future.cancel()  # who reads no further is written no further

    def submit(self, request: Request, listen: Callable[[str], None] | None = None) -> Future[Response]:
        """Put a request in the base's queue; see `InferenceEngine.submit`."""
        return self.base.submit(request, self.lora, listen, self.probe)


class Recorder:
    """Notes requests instead of answering them; where labels are to be scored, all are equally likely.

    Attributes:
        seen: The requests, in their order.
    """

    supported_params = InferenceEngine.supported_params

    def __init__(self) -> None:
        self.seen: list[Request] = []

    def complete(self, request: Request) -> Response:
        """Keep a request."""
        self.seen.append(request)
        content: DataPart | str = ""
        name, labels = asked_labels(request)
        if labels:
            content = verdict_part(name, dict.fromkeys(labels, 1 / len(labels)), "provider_classification")
        return Response(
            id=None, model=request.model, message=Message.assistant(content), finish_reason="stop", usage=Usage()
        )


class AsyncEngineClient:
    """The same for DSPy's async calls: the event loop is free meanwhile."""

    def __init__(self, client: EngineClient):
        self.client = client

    def __deepcopy__(self, memo: dict[int, Any]) -> "AsyncEngineClient":
        return self

    async def complete(self, request: Request) -> Response:
        """See `EngineClient.complete`."""
        left = seconds_left()
        try:
            async with asyncio.timeout(left):
                return await asyncio.wrap_future(await self._submitted(request))
        except TimeoutError:
            raise late(left) from None

    async def _submitted(self, request: Request, *listener: Any) -> Any:
        """The request's future. Where the caller stops waiting while the model is read, it is cancelled then."""
        made, left = list[Any](), threading.Event()

        def submit() -> Any:
            made.append(self.client.submit(request, *listener))
            if left.is_set():
                made[0].cancel()
            return made[0]

        try:
            return await asyncio.to_thread(submit)
        except asyncio.CancelledError:
            left.set()
            for future in made:
                future.cancel()
            raise

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """See `EngineClient.stream`."""
        loop, written = asyncio.get_running_loop(), asyncio.Queue[str | None]()

        def listen(text: str | None) -> None:
            try:
                loop.call_soon_threadsafe(written.put_nowait, text)
            except RuntimeError:
                pass  # the loop was closed meanwhile: nobody reads on

        future = await self._submitted(request, listen)
        future.add_done_callback(lambda _: listen(None))
        deltas, left = _Deltas(request), seconds_left()
        try:
            yield StreamStartEvent(model=request.model)
            while (text := await asyncio.wait_for(written.get(), seconds_left())) is not None:
                for event in deltas.of(text):
                    yield event
            for event in deltas.last(future.result()):
                yield event
        except TimeoutError:
            raise late(left) from None
        finally:
            future.cancel()


class _Deltas:
    """What is new in a text that grows."""

    def __init__(self, request: Request):
        self._stops = request.config.stop
        self._sent = ""

    def of(self, text: str) -> Iterator[StreamEvent]:
        """What can be sent of a text that is not finished."""
        text = text.rstrip("\ufffd")  # a character whose other bytes are still to come
        for stop in self._stops:
            begun = (length for length in range(len(stop) - 1, 0, -1) if text.endswith(stop[:length]))
            text = text[: len(text) - next(begun, 0)]
        yield from self._send(text)

    def last(self, response: Response) -> Iterator[StreamEvent]:
        """The rest of the answer, and its end."""
        if response.message.first(DataPart) is not None:
            raise UnsupportedFeatureError("probabilities of labels are not streamed", feature="config.probabilities")
        yield from self._send(response.text or "")
        yield StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)

    def _send(self, text: str) -> Iterator[StreamEvent]:
        new = text[len(self._sent) :]
        if new and text.startswith(self._sent):
            self._sent = text
            yield StreamDeltaEvent(TextDelta(new))
