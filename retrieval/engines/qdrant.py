"""A corpus on more machines than one: an index's vectors in a collection of Qdrant, searched by late interaction there.

Qdrant keeps two vectors of a passage: the mean of its token vectors, in a graph, by which a search first takes some
hundred passages, and the token vectors themselves, which rank these by MaxSim. It shards and replicates collections
over machines; a client for its server and one in this process (`QdrantClient(":memory:")`) are used alike. The client's
mode that keeps a folder is not used: it reads pickles.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from raisf.retrieval.encoders.checkpoint import CheckpointFolder, find_checkpoint
from raisf.retrieval.engines.checkpoints import findable_name
from raisf.retrieval.passage import Passage, check_k
from raisf.retrieval.search.together import MicroBatcher
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.text import text_of
from raisf.utils.urls import check_bare

if TYPE_CHECKING:
    import torch

SCHEMES = ("qdrant+http://", "qdrant+https://")
KEY = "QDRANT_API_KEY"
MEAN, TOKENS = "mean", "tokens"

PREFETCHED = 200
"""Passages, at least, that the mean vectors choose and MaxSim then ranks; 20 times k where that is more."""

_NUMBERS = 1 << 19
"""Numbers, at most, of the vectors in one request: some 10 MB of JSON. Qdrant refuses what is above 32 MB."""

T = TypeVar("T")


class QdrantIndex:
    """Searches a collection that `push_index` has filled. Approximate, as its first choice is by mean vectors.

    Attributes:
        path: None: the vectors are Qdrant's.
        url: Its address, as it was opened; None for a client in this process.
        corpus_hash: Of the passages that were pushed.
        checkpoint_sha256: Of the checkpoint that encoded them.
        learnt_from: A print of each query that the checkpoint was trained on, as far as that is known.
        forget_searches: Forgets the vectors of queries, so that the next one takes as long as the first.

    Args:
        client: A `QdrantClient`.
        collection: The collection's name.
        checkpoint: Where the checkpoint of its encoder is now; None: where it was.
        url: The address, to be told again.

    Raises:
        InputError: No such collection, one that is not whole or not ours, or the checkpoint is gone or another.
        RaisfError: Qdrant is gone or cannot answer.
    """

    def __init__(self, client: Any, collection: str, checkpoint: str | Path | None = None, url: str | None = None):
        told = metadata_of(client, collection)
        if told is None:
            raise InputError(f"Qdrant has no collection {collection!r}; fill it with: raisf index push DIR URL")
        if not {"checkpoint", "checkpoint_sha256", "corpus_sha256", "passages"} <= told.keys():
            raise InputError(f"the collection {collection!r} was not made by `raisf index push`: give another name")
        count = count_of(client, collection)
        if count != told["passages"]:
            raise InputError(
                f"the collection {collection!r} has {count} of {told['passages']} passages: its `raisf index push` was "
                "stopped; run it again, it goes on"
            )
        found = _find_checkpoint(told, checkpoint, collection)
        self.path = None
        self.url = url
        self.corpus_hash: str = told["corpus_sha256"]
        self.checkpoint_sha256: str = told["checkpoint_sha256"]
        self.learnt_from = found.seen_queries()
        self._client, self._collection = client, collection
        self._moved_to = findable_name(found) if checkpoint else None
        encoder = found.encoder()
        self._encode, self.forget_searches = MicroBatcher(encoder.encode_queries), encoder.forget_queries

    @classmethod
    def open(cls, url: str, checkpoint: str | Path | None = None) -> "QdrantIndex":
        """Opens a collection by its address, such as `qdrant+http://127.0.0.1:6333/wiki`.

        Raises:
            InputError: Nothing answers there, or see above.
        """
        client, collection = connect_qdrant(url)
        return cls(client, collection, checkpoint, url)

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The about `k` best passages, best first, each with its score."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for several queries, in their order; they go in few requests.

        Raises:
            InputError: `k` is below 1.
            RaisfError: Qdrant is gone or cannot answer.
        """
        from qdrant_client import models  # pyright: ignore[reportMissingImports]

        k, queries = check_k(k), [text_of(query) for query in queries]
        found: list[list[Passage]] = []
        for group in groups(self._encode(queries), lambda query: query.numel()):
            requests = [
                models.QueryRequest(
                    prefetch=models.Prefetch(query=mean_of(query), using=MEAN, limit=max(PREFETCHED, 20 * k)),
                    query=query.tolist(),
                    using=TOKENS,
                    limit=k,
                    with_payload=True,
                )
                for query in group
            ]
            with asking(f"search the collection {self._collection!r}"):
                answers = self._client.query_batch_points(self._collection, requests=requests)
            found += [[_passage(point.payload, point.score) for point in answer.points] for answer in answers]
        return found

    def where(self, condition: str) -> Any:
        """Refused: filters are for index folders.

        Raises:
            InputError: Always.
        """
        raise InputError(f"a Qdrant collection is searched whole, without the filter {condition!r}: leave --where out")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as its address, which is opened again.

        Raises:
            InputError: It has none: its client is one in this process.
        """
        if self.url is None:
            raise InputError(
                "a Qdrant collection that was opened by a client cannot be pickled: open it by its address"
            )
        return QdrantIndex.open, (self.url, self._moved_to)

    def __deepcopy__(self, memo: dict[int, Any]) -> "QdrantIndex":
        """Itself: copies of a program search the same collection."""
        return self


def connect_qdrant(url: str) -> tuple[Any, str]:
    """A client for a server, and the collection that an address such as `qdrant+http://127.0.0.1:6333/wiki` names.

    The server's key, where it wants one, is taken from the environment variable QDRANT_API_KEY.

    Raises:
        InputError: No such address, the package is not installed, or nothing answers there.
    """
    check_bare(url, "the collection's address", KEY)
    parts = urlsplit(url.removeprefix("qdrant+"))
    collection = parts.path.strip("/")
    if not url.startswith(SCHEMES) or not parts.hostname or not collection or "/" in collection:
        raise InputError(f"{url} is no address of a collection: write qdrant+http://HOST:6333/NAME")
    try:
        from qdrant_client import QdrantClient  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError("Qdrant needs qdrant-client: pip install 'raisf[qdrant]'") from error
    with warnings.catch_warnings():  # that a key goes over http, which a server on this machine may well have
        warnings.simplefilter("ignore", UserWarning)
        client = QdrantClient(
            url=f"{parts.scheme}://{parts.netloc}", api_key=os.environ.get(KEY), timeout=60, check_compatibility=False
        )
    try:
        client.collection_exists(collection)
    except Exception as error:  # the client's errors share no class with each other
        raise InputError(f"no Qdrant answers at {url} ({error}); start its server, or mend the address") from error
    return client, collection


def groups(items: Iterable[T], numbers: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in their order, in groups that one request can hold."""
    group, held = list[T](), 0
    for item in items:
        if group and held + numbers(item) > _NUMBERS:
            yield group
            group, held = [], 0
        group.append(item)
        held += numbers(item)
    if group:
        yield group


@contextlib.contextmanager
def asking(what: str, remedy: str = "see that it runs, then try again") -> Iterator[None]:
    """Tells what failed. The client's errors share no class with each other."""
    try:
        yield
    except Exception as error:
        raise RaisfError(f"Qdrant cannot {what} ({' '.join(str(error).split())}): {remedy}") from error


def mean_of(tokens: "torch.Tensor") -> list[float]:
    """The mean of token vectors `(n_tokens, dim)`."""
    return tokens.mean(dim=0).tolist()


def _passage(payload: dict[str, Any], score: float) -> Passage:
    return Passage(
        payload["pid"], payload["text"], payload["title"], score, payload["source"], metadata=payload["metadata"]
    )


def metadata_of(client: Any, collection: str) -> dict[str, Any] | None:
    """What a collection tells of itself; None where there is none of that name."""
    with asking(f"look up the collection {collection!r}"):
        if not client.collection_exists(collection):
            return None
        return client.get_collection(collection).config.metadata or {}


def count_of(client: Any, collection: str) -> int:
    """How many passages a collection has."""
    with asking(f"count the passages of the collection {collection!r}"):
        return client.count(collection).count


def _find_checkpoint(told: dict[str, Any], checkpoint: str | Path | None, collection: str) -> CheckpointFolder:
    found = find_checkpoint(checkpoint or told["checkpoint"])
    if found.sha256 != told["checkpoint_sha256"]:
        raise InputError(
            f"the collection {collection!r} was made with the checkpoint {told['checkpoint']} "
            f"({told['checkpoint_sha256']}), but {found.name} is now another ({found.sha256}): give the old one back"
        )
    return found.computing_in(told.get("precision") or "float32")
