"""An index behind HTTP, for many processes and machines: what `raisf serve-index` runs.

`raisf.retrieval.serving.protocol` tells what goes over the wire. A request is one connection (HTTP/1.0), has a body of
at most 2 MiB and must have come in after 30 seconds; its client must take the answer in as many. Closing takes 8
seconds at most. Anyone who reaches the port may search: there is no password and no encryption.
"""

import contextlib
import io
import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from raisf.retrieval.engines.base import Index
from raisf.retrieval.serving.batcher import Batcher
from raisf.retrieval.serving.protocol import identity, read_request, topk
from raisf.retrieval.store.manifest import MANIFEST, read_manifest
from raisf.utils.errors import InputError

logger = logging.getLogger(__name__)

LARGEST_BODY = 2 << 20
"""Bytes of a request: 16 kB for each of 128 queries; one query of that size costs a tokenizer some seconds."""

SLOWEST = 30
"""Seconds in which a request must have come in, and in which its client must have taken the answer."""

GRACE = 8
"""Seconds that closing takes at most, whatever is under way: Docker kills after 10."""

REFRESH = 1.0
"""Seconds between two looks at whether the index has changed on the disk."""


class IndexServer(ThreadingHTTPServer):
    """Serves one index, and its new state whenever its folder changes.

    Args:
        index: The index.
        host: The address to listen at.
        port: 0: any free one; `url` tells which.
        reopen: Opens the index again when its folder has changed; None: it is served as it is.

    Raises:
        InputError: It cannot listen there: the port is taken or no port, or the address is not this machine's.
    """

    daemon_threads = True  # closing waits for the requests under way, but not for ever
    request_queue_size = 128  # connections that may wait: the library's 5 refuses a burst of a program's threads

    def __init__(self, index: Index, host: str = "127.0.0.1", port: int = 0, reopen: Callable[[], Index] | None = None):
        # The base class closes the server where it cannot listen: what closing takes is there before.
        self.batcher = Batcher(index)
        self._reopen = reopen
        self._connections: set[socket.socket] = set()
        self._ended = threading.Condition()
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._watcher.start()
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot listen at {host}, port {port} ({reason}): give a free --port (0: any) and a --host of this "
                "machine"
            ) from error

    @property
    def url(self) -> str:
        """Its address."""
        host, port = self.server_address[:2]
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}"

    def info(self) -> dict[str, Any]:
        """What it serves, and how much it has answered."""
        index, batcher = self.batcher.index, self.batcher
        counts = {"passages": index.manifest.passages, "queries": batcher.queries, "batches": batcher.batches}
        return identity(index) | counts

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers a request in a thread of its own."""
        with self._ended:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        super().shutdown_request(request)
        with self._ended:
            self._connections.discard(request)
            self._ended.notify_all()

    def server_close(self) -> None:
        """Takes no more requests, answers those that have come in, and stops; within `GRACE` seconds."""
        end = time.monotonic() + GRACE
        self._stopping.set()
        super().server_close()
        with self._ended:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RD)  # what has come in can still be read, no more comes
            self._ended.wait_for(lambda: not self._connections, GRACE)
        self.batcher.close(end - time.monotonic())
        self._watcher.join(end - time.monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no event."""
        logger.debug("the request of %s broke off", client_address, exc_info=True)

    def _watch(self) -> None:
        path = self.batcher.index.path
        if self._reopen is None or path is None:
            return
        served = failed = None
        while not self._stopping.wait(REFRESH):
            stamp = _stamp(path)
            if stamp in (None, served):
                continue
            try:
                # The first look finds out what has changed while the index was being opened.
                if read_manifest(path) != self.batcher.index.manifest:
                    self.batcher.index = self._reopen()
                    logger.warning("the index %s has changed: serving its new state", path)
                served = stamp
            except Exception as error:  # tried again until it can be opened: it may be on its way, file by file
                if stamp != failed:
                    logger.warning("the index %s has changed, but cannot be opened: serving the old (%s)", path, error)
                failed = stamp


class _Incoming(io.RawIOBase):
    """What a client sends until a moment, however slowly it comes. A request that breaks off is an error."""

    def __init__(self, connection: socket.socket, end: float):
        self._connection = connection
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the request did not come in within {SLOWEST} seconds")
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        if not count:
            raise ConnectionError("the request broke off")
        return count


class _Handler(BaseHTTPRequestHandler):
    server: IndexServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        """Reads the request as a whole within its time; the library would only time each piece."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Incoming(self.connection, time.monotonic() + SLOWEST))

    def do_GET(self) -> None:
        """A search by its address, or what the index is."""
        address = urlsplit(self.path)
        if address.path == "/info":
            self._answer(200, self.server.info())
            return
        # Bytes that are no UTF-8 become surrogates, which are refused below.
        fields = parse_qs(address.query, keep_blank_values=True, errors="surrogateescape")
        self._respond({name: values[-1] for name, values in fields.items()})

    def do_POST(self) -> None:
        """A search by a JSON body."""
        told = self.headers.get("Content-Length", "")
        try:
            length = int(told)
        except ValueError:
            length = -1
        if not 0 <= length <= LARGEST_BODY:
            self._refuse(413, f"a request has a Content-Length, of at most {LARGEST_BODY} bytes; found {told!r:.40}")
            while length > 0:  # clients that are still sending would see a broken connection instead of the answer
                length -= len(self.rfile.read1(min(length, 1 << 16)))
            return
        try:
            given = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError) as error:
            self._refuse(400, f'the body is not JSON ({error}): send {{"query": "...", "k": 10}}')
            return
        self._respond(given)

    def _respond(self, given: Any) -> None:
        try:
            queries, k, where, single = read_request(given)
            index, found = self.server.batcher.search(queries, k, where)
        except InputError as error:
            self._refuse(400, str(error))
        except Exception as error:
            logger.exception("a search failed")
            self._refuse(500, f"the search failed ({type(error).__name__}: {error})")
        else:
            rows = [topk(passages) for passages in found]
            self._answer(200, {"topk": rows[0] if single else rows, "index": identity(index)})

    def _refuse(self, status: int, message: str) -> None:
        self._answer(status, {"error": True, "message": message}, reason=message)

    def _answer(self, status: int, value: Any, reason: str | None = None) -> None:
        body = json.dumps(value, ensure_ascii=False).encode()
        if reason is not None:
            # Clients that look no further than the status line show this; it is one line of Latin-1.
            reason = " ".join(reason.split()).encode("latin-1", "replace").decode("latin-1")[:200]
        self.connection.settimeout(SLOWEST)
        self.send_response(status, reason)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line a request would drown everything else."""
        logger.debug(format, *args)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes when the manifest of an index is replaced; None while there is none."""
    try:
        status = (path / MANIFEST).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
