"""A corpus on more machines than one: an index's vectors in a collection of Qdrant, searched by late interaction there.

Qdrant keeps two vectors of a passage: the mean of its token vectors, in a graph, by which a search first takes some
hundred passages, and the token vectors themselves, which rank these by MaxSim. It shards and replicates collections
over machines; a client for its server and one in this process (`QdrantClient(":memory:")`) are used alike. The client's
mode that keeps a folder is not used: it reads pickles.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from raisf.retrieval.encoders.checkpoint import CheckpointFolder, find_checkpoint
from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import SEGMENTS, check_k, read_manifest, read_segment
from raisf.retrieval.store.segments import VECTORS, index_progress
from raisf.retrieval.store.vectors import Vectors
from raisf.utils.errors import InputError, RaisfError

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
        told = _metadata(client, collection)
        if told is None:
            raise InputError(f"Qdrant has no collection {collection!r}; fill it with: raisf index push DIR URL")
        if not {"checkpoint", "checkpoint_sha256", "corpus_sha256", "passages"} <= told.keys():
            raise InputError(f"the collection {collection!r} was not made by `raisf index push`: give another name")
        count = _count(client, collection)
        if count != told["passages"]:
            raise InputError(
                f"the collection {collection!r} has {count} of {told['passages']} passages: its `raisf index push` was "
                "stopped; run it again, it goes on"
            )
        found = _find_checkpoint(told, checkpoint, collection)
        self.path: Path | None = None
        self.url = url
        self.corpus_hash: str = told["corpus_sha256"]
        self.checkpoint_sha256: str = told["checkpoint_sha256"]
        self._client, self._collection = client, collection
        self._encoder = found.encoder()

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

        check_k(k)
        found: list[list[Passage]] = []
        for group in _groups(self._encoder.encode_queries(queries), lambda query: query.numel()):
            requests = [
                models.QueryRequest(
                    prefetch=models.Prefetch(query=_mean(query), using=MEAN, limit=max(PREFETCHED, 20 * k)),
                    query=query.tolist(),
                    using=TOKENS,
                    limit=k,
                    with_payload=True,
                )
                for query in group
            ]
            with _asking(f"search the collection {self._collection!r}"):
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
        return QdrantIndex.open, (self.url,)

    def __deepcopy__(self, memo: dict[int, Any]) -> "QdrantIndex":
        """Itself: copies of a program search the same collection."""
        return self


def connect_qdrant(url: str) -> tuple[Any, str]:
    """A client for a server, and the collection that an address such as `qdrant+http://127.0.0.1:6333/wiki` names.

    The server's key, where it wants one, is taken from the environment variable QDRANT_API_KEY.

    Raises:
        InputError: No such address, the package is not installed, or nothing answers there.
    """
    parts = urlsplit(url.removeprefix("qdrant+"))
    collection = parts.path.strip("/")
    if not url.startswith(SCHEMES) or not parts.hostname or not collection or "/" in collection:
        raise InputError(f"{url} is no address of a collection: write qdrant+http://HOST:6333/NAME")
    try:
        from qdrant_client import QdrantClient  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise InputError("Qdrant needs the package qdrant-client: install the extra `qdrant`") from error
    client = QdrantClient(
        url=f"{parts.scheme}://{parts.netloc}", api_key=os.environ.get(KEY), timeout=60, check_compatibility=False
    )
    try:
        client.collection_exists(collection)
    except Exception as error:  # the client's errors share no class with each other
        raise InputError(f"no Qdrant answers at {url} ({error}); start its server, or mend the address") from error
    return client, collection


def push_index(path: Path | str, client: Any, collection: str, progress: bool = True) -> int:
    """Copies an index into a new collection, vectors and passages; nothing is encoded. One that was stopped goes on.

    Args:
        path: The folder of a ColBERT index that is not compressed: PLAID's vectors cannot be copied.
        client: A `QdrantClient`.
        collection: A name that is new, or that of a push that was stopped.
        progress: Whether to show a bar on standard error.

    Returns:
        How many passages the collection has.

    Raises:
        InputError: No such index, one of another kind or a compressed one, or the collection holds something else.
        RaisfError: Qdrant is gone, or refuses; what it has taken stays there, and a second push goes on behind it.
    """
    from qdrant_client import models  # pyright: ignore[reportMissingImports]

    path = Path(path)
    manifest = read_manifest(path)
    if manifest.kind not in ("colbert", "hybrid") or any(segment.search == "plaid" for segment in manifest.segments):
        raise InputError(
            f"{path} is {manifest.kind}, searched by {manifest.shown_search}: only a colbert index made without "
            "--search plaid has the vectors that Qdrant needs"
        )
    told = {
        "checkpoint": manifest.checkpoint,
        "checkpoint_sha256": manifest.checkpoint_sha256,
        "corpus_sha256": manifest.corpus_sha256,
        "passages": manifest.passages,
    }
    points = _points(path)
    found = _metadata(client, collection)
    if found is None:
        first = next(points)
        _create(client, collection, len(first["vector"][MEAN]), told)
        points = itertools.chain([first], points)
    elif found != told:
        raise InputError(f"the collection {collection!r} holds something else: choose a new name, or delete it")
    done = _count(client, collection)
    points = itertools.islice(points, done, None)
    with index_progress(progress) as bar:
        task = bar.add_task("pushing passages", total=manifest.passages, completed=done)
        for group in _groups(points, lambda point: len(point["vector"][TOKENS]) * len(point["vector"][MEAN])):
            structs = [models.PointStruct(**point) for point in group]
            # In their order, and each waited for: how many there are says where to go on.
            with _asking(f"store passages in the collection {collection!r}", "push again, it goes on"):
                client.upsert(collection, structs, wait=True)
            bar.advance(task, len(group))
    return _count(client, collection)


def _create(client: Any, collection: str, dim: int, told: dict[str, Any]) -> None:
    from qdrant_client import models  # pyright: ignore[reportMissingImports]

    maxsim = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    half = models.Datatype.FLOAT16
    tokens = models.VectorParams(
        size=dim,
        distance=models.Distance.DOT,
        multivector_config=maxsim,
        datatype=half,
        on_disk=True,
        hnsw_config=models.HnswConfigDiff(m=0),  # no graph: they only rank what the means have chosen
    )
    mean = models.VectorParams(size=dim, distance=models.Distance.DOT, datatype=half)
    with _asking(f"make the collection {collection!r}"):
        client.create_collection(collection, vectors_config={MEAN: mean, TOKENS: tokens}, metadata=told)


def _groups(items: Iterable[T], numbers: Callable[[T], int]) -> Iterator[list[T]]:
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
def _asking(what: str, remedy: str = "see that it runs, then try again") -> Iterator[None]:
    """Tells what failed. The client's errors share no class with each other."""
    try:
        yield
    except Exception as error:
        raise RaisfError(f"Qdrant cannot {what} ({' '.join(str(error).split())}): {remedy}") from error


def _points(path: Path) -> Iterator[dict[str, Any]]:
    """The live passages of an index as Qdrant's points, numbered in their order."""
    number = 0
    for segment in read_manifest(path).segments:
        deleted, passages = set(segment.deleted), enumerate(read_segment(path, segment))
        for vectors, lengths in Vectors(path / SEGMENTS / segment.name / VECTORS):
            rows = vectors.float().split(lengths.tolist())
            for tokens, (place, passage) in zip(rows, passages, strict=False):
                if place in deleted:
                    continue
                payload = {"pid": passage.pid, "text": passage.text, "title": passage.title}
                payload |= {"source": passage.source, "metadata": dict(passage.metadata)}
                yield {"id": number, "vector": {MEAN: _mean(tokens), TOKENS: tokens.tolist()}, "payload": payload}
                number += 1


def _mean(tokens: "torch.Tensor") -> list[float]:
    return tokens.mean(dim=0).tolist()


def _passage(payload: dict[str, Any], score: float) -> Passage:
    return Passage(
        payload["pid"], payload["text"], payload["title"], score, payload["source"], metadata=payload["metadata"]
    )


def _metadata(client: Any, collection: str) -> dict[str, Any] | None:
    """What a collection tells of itself; None where there is none of that name."""
    with _asking(f"look up the collection {collection!r}"):
        if not client.collection_exists(collection):
            return None
        return client.get_collection(collection).config.metadata or {}


def _count(client: Any, collection: str) -> int:
    """How many passages a collection has."""
    with _asking(f"count the passages of the collection {collection!r}"):
        return client.count(collection).count


def _find_checkpoint(told: dict[str, Any], checkpoint: str | Path | None, collection: str) -> CheckpointFolder:
    found = find_checkpoint(checkpoint or told["checkpoint"])
    if found.sha256 != told["checkpoint_sha256"]:
        raise InputError(
            f"the collection {collection!r} was made with the checkpoint {told['checkpoint']} "
            f"({told['checkpoint_sha256']}), but {found.name} is now another ({found.sha256}): give the old one back"
        )
    return found
