"""A retriever on another machine or in another process: the client of `raisf serve-index`."""

import hashlib
import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from raisf.retrieval.passage import Passage, check_k, is_value
from raisf.retrieval.search.filtered import Filtered
from raisf.retrieval.serving.protocol import MOST_QUERIES, SERVED
from raisf.utils.errors import InputError, RaisfError, SearchError
from raisf.utils.text import text_of
from raisf.utils.urls import check_bare

T = TypeVar("T")

SECONDS = 60
"""How long to wait for an answer: `MOST_QUERIES` over millions of passages take some seconds."""

LARGEST_ANSWER = 1 << 30
"""Bytes of an answer: `MOST_QUERIES` with 1,000 passages of 8 kB each."""

_UNREADABLE = (OSError, http.client.HTTPException, ValueError, RecursionError)
"""What is raised where nobody answers, or not in JSON."""


class RemoteIndex:
    """Searches an index that `raisf serve-index` serves: `MOST_QUERIES` go in one request.

    It stands for what was served when it was opened. Once the server has taken up another state of its folder, every
    search is refused, so that nothing is made of answers from two corpora; `served_now` tells when to open it again.

    Attributes:
        path: None: the folder is the server's.
        url: The server's address.
        served: What it served when this was opened (`SERVED`).
        corpus_hash: Of `served`, not of the passages alone: whoever compares hashes sees only a RemoteIndex.

    Args:
        url: Such as http://127.0.0.1:8893.

    Raises:
        InputError: Nothing answers there, or no index server; or the address has a password or a query.
    """

    def __init__(self, url: str):
        check_bare(url, "the index's address")
        self.path = None
        self.url = url.rstrip("/")
        try:
            self.served = _served(_ask(f"{self.url}/info"))
        except (RaisfError, KeyError, TypeError) as error:
            raise InputError(
                f"no index server answers at {url} ({error}); start one with: raisf serve-index DIR --port N"
            ) from error
        self.corpus_hash = hashlib.sha256(" ".join(map(str, self.served.values())).encode()).hexdigest()

    def __call__(self, query: str, k: int, where: str | None = None) -> list[Passage]:
        """The at most `k` best passages, best first, each with its score; see `search_many`."""
        return self.search_many([query], k, where)[0]

    def search_many(self, queries: Sequence[str], k: int, where: str | None = None) -> list[list[Passage]]:
        """The same for several queries, in their order.

        Raises:
            InputError: `k` is below 1 or more than the server gives, or `where` is no filter of the passages.
            RaisfError: The server is gone, cannot answer, or serves another index by now.
        """
        k, queries = check_k(k), [text_of(query) for query in queries]
        found: list[list[Passage]] = []
        for start in range(0, len(queries), MOST_QUERIES):
            found += self._search(queries[start : start + MOST_QUERIES], k, where)
        return found

    def where(self, condition: str) -> Filtered:
        """The same index, reduced to the passages that satisfy a filter.

        Raises:
            InputError: It is no filter of the passages.
        """
        self("", 1, condition)
        return Filtered(self, condition)

    def passages_where(self, condition: str) -> list[Passage]:
        """The passages that satisfy a filter, in the index's order.

        Raises:
            InputError: It is no filter of the passages, or more than 10,000 satisfy it.
            RaisfError: As `search_many`.
        """

        def read(answer: Any) -> list[Passage]:
            return [replace(_passage(row), score=None) for row in answer["passages"]]

        return self._answered("passages", {"where": condition}, read)

    def served_now(self) -> dict[str, Any] | None:
        """What the server serves by now; None while it does not answer as an index server."""
        try:
            return _served(_ask(f"{self.url}/info"))
        except (RaisfError, KeyError, TypeError):
            return None

    def _search(self, queries: Sequence[str], k: int, where: str | None) -> list[list[Passage]]:
        def read(answer: Any) -> list[list[Passage]]:
            found = [[_passage(row) for row in rows[:k]] for rows in answer["topk"]]
            if len(found) != len(queries):
                raise ValueError(f"{len(found)} lists of passages for {len(queries)} queries")
            return found

        return self._answered("", {"queries": queries, "k": k, "where": where}, read)

    def _answered(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """What is read from an answer of the index that was opened."""
        answer = _ask(f"{self.url}/{path}", body)
        try:
            served, found = answer["index"], read(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SearchError(f"{self.url} does not answer as an index server of this version ({error!r})") from error
        if served != self.served:
            raise SearchError(
                f"the index served at {self.url} has changed since it was opened: open it again (start the command "
                "again; a service does so within seconds: ask again), so that no result comes from two corpora"
            )
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> "RemoteIndex":
        """Itself: copies of a program search the same index."""
        return self


def _served(told: dict[str, Any]) -> dict[str, Any]:
    return {name: told[name] for name in SERVED}


def _passage(row: dict[str, Any]) -> Passage:
    """A row of an answer, checked: whoever is at the address may send anything."""
    texts = [row["pid"], row["passage"], row["title"]]
    score, source = row["score"], row.get("source")
    if not all(isinstance(text, str) for text in texts) or not isinstance(source, str | None):
        raise ValueError(f"{texts} are no texts")
    if isinstance(score, bool) or not isinstance(score, int | float | None) or not math.isfinite(score or 0):
        raise ValueError(f"{score!r} is no score")
    metadata = {name: value for name, value in (row.get("metadata") or {}).items() if is_value(value)}
    pid, text, title = map(text_of, texts)
    return Passage(pid, text, title, score, None if source is None else text_of(source), metadata=metadata)


def _read(response: Any) -> bytes:
    """A body, piece by piece: a timeout of the socket holds for each piece alone."""
    until, pieces, size = time.monotonic() + SECONDS, list[bytes](), 0
    while piece := response.read1(1 << 20):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_ANSWER:
            raise OSError(f"more than {LARGEST_ANSWER >> 20} MiB")
        if time.monotonic() > until:
            raise TimeoutError("timed out")
    return b"".join(pieces)


def _ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """What a server answers, JSON to JSON.

    Raises:
        InputError: It refuses the request.
        RaisfError: It does not answer, or not in JSON.
    """
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            return json.loads(_read(response))
    except urllib.error.HTTPError as error:
        try:
            message = str(json.loads(_read(error))["message"])
        except (*_UNREADABLE, KeyError, TypeError):
            message = f"the index server {url} answers: {error}"
        kind = InputError if error.code in (400, 413) else SearchError
        raise kind(message) from error
    except _UNREADABLE as error:
        reason = getattr(error, "reason", error)
        raise SearchError(f"the index server {url} does not answer ({reason!s:.200})") from error
