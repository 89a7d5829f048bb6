"""uvicorn's connections, with an end to patience, and its server, which loses no request when it stops."""

import asyncio
import contextlib
import ctypes
import socket
import struct
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

SLOWEST = 30
"""Seconds in which a request must have come in, and in which its client must have taken the answer, or the next piece
of one that is longer than what the system keeps for it."""

SETTLE = 3.0
"""Seconds in which who has connected before the server stops must have sent a request: a starved client is slow."""

LAST_WORDS = 1.0
"""Seconds in which those who are cut off when the server stops are told so."""

_ATTACH_FILTER = 26  # SO_ATTACH_FILTER, which Python does not name

ERROR = "Raisf-Error"
"""The header of an answer whose value is also the reason in its status line."""


class ClientConnection(H11Protocol):
    """One client, waited for `SLOWEST` seconds: uvicorn itself waits for ever for its request, and for it to read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _Http(h11.SERVER, self.config.h11_max_incomplete_event_size or 1 << 16)
        self._unread: asyncio.TimerHandle | None = None

    @property
    def arriving(self) -> bool:
        """Whether its request has not come in whole."""
        return self.cycle is None or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for a request."""
        super().connection_made(transport)
        self._patience = self.loop.call_later(SLOWEST, lambda: self.arriving and transport.abort())

    def on_response_complete(self) -> None:
        """Begins to wait until the client has taken the answer."""
        super().on_response_complete()
        self._patience.cancel()
        self._patience = self.loop.call_later(SLOWEST, self.transport.abort)

    def pause_writing(self) -> None:
        """Begins to wait until the client has read some of what lies there for it."""
        super().pause_writing()
        self._unread = self.loop.call_later(SLOWEST, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read: waits for that no more."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        for waiting in (self._patience, self._unread):
            if waiting is not None:
                waiting.cancel()
        super().connection_lost(exc)


class DrainingServer(uvicorn.Server):
    """A server that answers what has come in before it ends."""

    async def shutdown(self, sockets: Any = None) -> None:
        """Takes no new connections, reads what those that are there have sent, and answers it.

        uvicorn closes connections without a whole request at once, and what lies unread in them is lost.
        """
        for listening in sockets or []:
            _refuse_new(listening)
        await asyncio.sleep(0.05)  # those that had begun to connect end up in the queue
        for listening in sockets or []:
            await self._take_waiting(listening)
        for server in self.servers:
            server.close()
        connections: set[Any] = self.server_state.connections
        end = asyncio.get_running_loop().time() + SETTLE
        while any(one.arriving for one in connections) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        for one in [one for one in connections if one.arriving]:
            one.transport.abort()
        await super().shutdown(sockets)
        if cut_off := set(self.server_state.tasks):  # cancelled just now
            await asyncio.wait(cut_off, timeout=LAST_WORDS)

    async def _take_waiting(self, listening: socket.socket) -> None:
        """Takes the connections that wait in the system's queue: closing would reset them."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BlockingIOError):
            while True:
                taken, _ = listening.accept()
                taken.setblocking(False)
                await loop.connect_accepted_socket(
                    lambda: ClientConnection(self.config, self.server_state, self.lifespan.state), taken
                )

    def capture_signals(self) -> Any:
        """Leaves signals to the program: they are raised again after uvicorn's end, and would kill it then."""
        return contextlib.nullcontext()


def _refuse_new(listening: socket.socket) -> None:
    """Lets nobody begin to connect: who stands in the system's queue when it closes is reset.

    Linux drops what begins a connection (TCP's SYN) by a filter; the client tries again after a second, and is refused
    then. Elsewhere what comes within microseconds of the end is reset.
    """
    steps = ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
    # BPF: load the byte of flags; is SYN set? keep nothing: keep all
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HL", len(steps), ctypes.addressof(code)))


class _Http(h11.Connection):
    """Says in the status line what was wrong: DSPy's client shows nothing else of an answer."""

    def send(self, event: Any) -> Any:
        if isinstance(event, h11.Response):
            name = ERROR.lower().encode()
            reason = next((value for key, value in event.headers if key == name), event.reason)
            event = h11.Response(status_code=event.status_code, headers=event.headers, reason=reason)
        return super().send(event)
