"""What goes over the wire between an index server and its clients.

It is the protocol of DSPy's `ColBERTv2` client: GET with `query` and `k` in the address, or POST with them as JSON,
answered by `{"topk": [{"pid", "rank", "score", "prob", "text", "long_text", ...}, ...]}`. Beyond that a request may
have a filter, `where`, and a POST `queries`, a list, answered by a list of such lists. Each answer tells under `index`
in which index it was found, since the server takes up a new state of its folder at any time. GET /info tells the same,
and how much was answered. POST /passages with a `where` gives all passages that satisfy it, 10,000 at most.

A request has at most 128 queries, a `k` of at most 1,000, and a `where` of at most 10,000 characters, all of them valid
Unicode: else one client would keep all others waiting. What is beyond that, or no request at all, is answered by the
status 400 (413 for a body that is too large) and `{"error": true, "message": "..."}`.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from raisf.retrieval.engines.base import Index

MOST_QUERIES = 128
"""Queries of one request, and queries searched in one go: an encoder's batch."""

LARGEST_K = 1_000
"""Passages for one query: ten times what DSPy's client asks for at most."""

MOST_LISTED = 10_000
"""Passages that satisfy a filter, of one request: a document of five million characters."""

LONGEST_WHERE = 10_000
"""Characters of a filter: some hundred ids."""

SERVED = ("engine", "search", "checkpoint_sha256", "corpus_sha256")
"""What a server tells, of itself and with each answer, that decides what it finds."""


def read_request(given: Any) -> tuple[list[str], int, str | None, bool]:
    """What a client asks for: queries, k, filter, and whether a single query was asked.

    Raises:
        InputError: It is no request, or beyond the limits.
    """
    if not isinstance(given, dict):
        raise InputError(f'a request is an object such as {{"query": "...", "k": 10}}; found {type(given).__name__}')
    single = "queries" not in given
    queries: Any = [given.get("query")] if single else given["queries"]
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise InputError("a request has a 'query', a text, or 'queries', a list of texts")
    if len(queries) > MOST_QUERIES:
        raise InputError(f"a request has {len(queries)} queries; send at most {MOST_QUERIES} at a time")
    k: Any = given.get("k", 10)
    if isinstance(k, str) and k.strip().isdecimal():  # as in an address
        k = int(k.strip()[:20])
    if not isinstance(k, int) or isinstance(k, bool):
        raise InputError(f"k is {k!r:.40}; give a whole number")
    if k > LARGEST_K:
        raise InputError(f"k is {k}; an index that is served gives at most {LARGEST_K} passages for a query")
    for text in queries:
        _check_unicode(text)
    where = given.get("where")
    return queries, k, None if where is None else read_where(where), single


def read_where(where: Any) -> str:
    """A request's filter.

    Raises:
        InputError: It is none, or beyond the limits.
    """
    if not isinstance(where, str):
        raise InputError("'where' is a text such as \"source = 'handbook.pdf'\"")
    if len(where) > LONGEST_WHERE:
        raise InputError(f"'where' has {len(where)} characters; an index that is served reads at most {LONGEST_WHERE}")
    _check_unicode(where)
    return where


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"character {error.start + 1} of {text!r:.60} is not valid Unicode; send UTF-8") from error


def identity(index: "Index") -> dict[str, Any]:
    """All that decides what an index finds: `SERVED`."""
    return {
        "engine": index.manifest.kind,
        "search": index.ranking,
        "checkpoint_sha256": index.manifest.checkpoint_sha256,
        "corpus_sha256": index.corpus_hash,
    }


def topk(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """The passages as the client expects them; `prob` is the softmax of their scores."""
    scores = [passage.score or 0.0 for passage in passages]
    best = max(scores, default=0.0)
    weights = [math.exp(score - best) for score in scores]
    total = sum(weights)
    return [
        {
            "pid": passage.pid,
            "rank": rank,
            "score": score,
            "prob": weight / total,
            "text": passage.prompt_text,
            "long_text": passage.prompt_text,
            "passage": passage.text,
            "title": passage.title,
            "source": passage.source,
            "metadata": dict(passage.metadata),
        }
        for rank, (passage, score, weight) in enumerate(zip(passages, scores, weights, strict=True), start=1)
    ]
