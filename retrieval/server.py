"""An index behind HTTP, for many processes and machines: what `raisf serve-index` runs.

It speaks the protocol of DSPy's `ColBERTv2` client: GET with `query` and `k` in the address, or POST with them as JSON,
answered by `{"topk": [{"pid", "rank", "score", "prob", "text", "long_text", ...}, ...]}`. Beyond that a request may
have a filter, `where`, and a POST `queries`, a list, answered by a list of such lists. GET /info tells what the
index is.
"""

import json
import logging
import math
import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from data.errors import InputError, RaisfError
from retrieval.base import Index
from retrieval.manifest import MANIFEST, check_k
from retrieval.passage import Passage

logger = logging.getLogger(__name__)

MOST_QUERIES = 128
"""Queries searched in one go: an encoder's batch."""

LARGEST_BODY = 16 << 20
"""Bytes of a request at most."""

SLOWEST = 30
"""Seconds that a client may take to send its request."""

REFRESH = 1.0
"""Seconds between two looks at whether the index has changed on the disk."""


@dataclass
class _Job:
    """Queries on their way, and where their passages go."""

    queries: list[str]
    k: int
    where: str | None
    found: Future[list[list[Passage]]] = field(default_factory=Future)


class Batcher:
    """Searches an index for many threads: what arrives while it searches is searched together next.

    A lone query waits for nothing. Batches are of one filter; their k is the largest asked for.

    Attributes:
        index: The index; another may be put in its place at any time.
        queries: Searched so far.
        batches: In so many goes.
    """

    def __init__(self, index: Index):
        self.index = index
        self.queries = self.batches = 0
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._worker = threading.Thread(target=self._work, name="search", daemon=True)
        self._worker.start()

    def search(self, queries: list[str], k: int, where: str | None) -> list[list[Passage]]:
        """The passages for each query.

        Raises:
            InputError: `k` is below 1, or `where` is no filter of the passages.
        """
        check_k(k)
        job = _Job(queries, k, where)
        self._waiting.put(job)
        return job.found.result()

    def close(self) -> None:
        """Answers what waits, then stops."""
        self._waiting.put(None)
        self._worker.join()

    def _work(self) -> None:
        open_ = True
        while open_:
            jobs = [self._waiting.get()]
            while sum(len(job.queries) for job in jobs if job) < MOST_QUERIES and not self._waiting.empty():
                jobs.append(self._waiting.get())
            open_ = None not in jobs
            groups: dict[str | None, list[_Job]] = {}
            for job in filter(None, jobs):
                groups.setdefault(job.where, []).append(job)
            for where, group in groups.items():
                self._search(where, group)

    def _search(self, where: str | None, jobs: list[_Job]) -> None:
        queries = [query for job in jobs for query in job.queries]
        try:
            rows = iter(self.index.search_many(queries, max(job.k for job in jobs), where))
        except Exception as error:
            for job in jobs:
                job.found.set_exception(error)
            return
        self.queries += len(queries)
        self.batches += 1
        for job in jobs:
            job.found.set_result([next(rows)[: job.k] for _ in job.queries])


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

    daemon_threads = False  # closing waits for the requests that are being answered
    request_queue_size = 128  # connections that may wait: the library's 5 refuses a burst of a program's threads

    def __init__(self, index: Index, host: str = "127.0.0.1", port: int = 0, reopen: Callable[[], Index] | None = None):
        # The base class closes the server where it cannot listen: what closing takes is there before.
        self.batcher = Batcher(index)
        self._reopen = reopen
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
        index = self.batcher.index
        return {
            "engine": index.manifest.kind,
            "search": index.manifest.shown_search,
            "checkpoint_sha256": index.manifest.checkpoint_sha256,
            "passages": index.manifest.passages,
            "corpus_sha256": index.corpus_hash,
            "queries": self.batcher.queries,
            "batches": self.batcher.batches,
        }

    def server_close(self) -> None:
        """Takes no more requests, answers those that are under way, and stops."""
        self._stopping.set()
        super().server_close()
        self.batcher.close()
        self._watcher.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no event."""
        logger.debug("the request of %s broke off", client_address, exc_info=True)

    def _watch(self) -> None:
        path = self.batcher.index.path
        if self._reopen is None or path is None:
            return
        seen = _stamp(path)
        while not self._stopping.wait(REFRESH):
            if (stamp := _stamp(path)) == seen or stamp is None:
                continue
            seen = stamp
            try:
                self.batcher.index = self._reopen()
                logger.warning("the index %s has changed: serving its new state", path)
            except (RaisfError, OSError) as error:
                logger.warning("the index %s has changed and cannot be opened: serving the old state (%s)", path, error)


class _Handler(BaseHTTPRequestHandler):
    server: IndexServer  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = SLOWEST

    def do_GET(self) -> None:
        """A search by its address, or what the index is."""
        address = urlsplit(self.path)
        if address.path == "/info":
            self._answer(200, self.server.info())
            return
        given = {name: values[-1] for name, values in parse_qs(address.query, keep_blank_values=True).items()}
        self._respond(given)

    def do_POST(self) -> None:
        """A search by a JSON body."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            self._refuse(413, f"a request has a Content-Length, of at most {LARGEST_BODY} bytes; found {length!r}")
            return
        try:
            given = json.loads(self.rfile.read(int(length)))
        except ValueError as error:
            self._refuse(400, f'the body is not JSON ({error}): send {{"query": "...", "k": 10}}')
            return
        self._respond(given)

    def _respond(self, given: Any) -> None:
        try:
            queries, k, where, single = _understand(given)
            rows = [_topk(found) for found in self.server.batcher.search(queries, k, where)]
        except InputError as error:
            self._refuse(400, str(error))
        except Exception as error:
            logger.exception("a search failed")
            self._refuse(500, f"the search failed ({type(error).__name__}: {error})")
        else:
            self._answer(200, {"topk": rows[0] if single else rows})

    def _refuse(self, status: int, message: str) -> None:
        self._answer(status, {"error": True, "message": message}, reason=message)

    def _answer(self, status: int, value: Any, reason: str | None = None) -> None:
        body = json.dumps(value, ensure_ascii=False).encode()
        if reason is not None:
            # Clients that look no further than the status line show this; it is one line of Latin-1.
            reason = " ".join(reason.split()).encode("latin-1", "replace").decode("latin-1")[:200]
        self.send_response(status, reason)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A line a request would drown everything else."""
        logger.debug(format, *args)


def _understand(given: Any) -> tuple[list[str], int, str | None, bool]:
    """Queries, k, filter, and whether a single query was asked."""
    if not isinstance(given, dict):
        raise InputError(f'a request is an object such as {{"query": "...", "k": 10}}; found {type(given).__name__}')
    single = "queries" not in given
    queries: Any = [given.get("query")] if single else given["queries"]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise InputError("a request has a 'query', a text, or 'queries', a list of texts")
    try:
        k = int(given.get("k", 10))
    except (TypeError, ValueError):
        raise InputError(f"k is {given.get('k')!r}; give a whole number") from None
    where = given.get("where") or None
    if where is not None and not isinstance(where, str):
        raise InputError("'where' is a text such as \"source = 'handbook.pdf'\"")
    return queries, k, where, single


def _topk(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """The passages as the client expects them; `prob` is the softmax of their scores."""
    scores = [passage.score or 0.0 for passage in passages]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [
        {
            "pid": passage.pid,
            "rank": rank,
            "score": score,
            "prob": weight / sum(weights),
            "text": passage.prompt_text,
            "long_text": passage.prompt_text,
            "passage": passage.text,
            "title": passage.title,
            "source": passage.source,
            "metadata": dict(passage.metadata),
        }
        for rank, (passage, score, weight) in enumerate(zip(passages, scores, weights, strict=True), start=1)
    ]


def _stamp(path: Path) -> tuple[int, int] | None:
    """Changes when the manifest of an index is replaced; None while there is none."""
    try:
        status = os.stat(path / MANIFEST)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
