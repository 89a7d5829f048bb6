"""Copying an index into a collection of Qdrant."""

import hashlib
import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raisf.retrieval.engines.qdrant import MEAN, TOKENS, asking, count_of, groups, mean_of, metadata_of
from raisf.retrieval.store.manifest import PASSAGES, SEGMENTS, IndexManifest, read_manifest
from raisf.retrieval.store.rows import read_segment
from raisf.retrieval.store.segments import alive_in, vectors_folder
from raisf.retrieval.store.vectors import Vectors
from raisf.utils.errors import InputError
from raisf.utils.progress import progress_bar

logger = logging.getLogger(__name__)


def push_index(path: Path | str, client: Any, collection: str, progress: bool = True) -> int:
    """Copies an index into a new collection, vectors and passages; nothing is encoded. One that was stopped goes on.

    Args:
        path: The folder of a ColBERT index that is not compressed: PLAID's vectors cannot be copied. Of a hybrid one
            the collection has the vectors alone, which is told.
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
            f"{path} is {manifest.kind}, searched by {manifest.shown_search}: only a colbert or hybrid index made "
            "without --search plaid has the vectors that Qdrant needs"
        )
    if manifest.kind == "hybrid":
        logger.warning("%s is hybrid: the collection is searched by its vectors alone, without BM25", path)
    # How many points there are tells where to go on, as long as the passages lie as they did.
    rows = {segment.name: f"{SEGMENTS}/{segment.name}/{PASSAGES}" for segment in manifest.segments}
    order = json.dumps([[manifest.files[rows[one.name]].sha256, one.deleted] for one in manifest.segments])
    told = {
        "checkpoint": manifest.checkpoint,
        "checkpoint_sha256": manifest.checkpoint_sha256,
        "corpus_sha256": manifest.corpus_sha256,
        "passages": manifest.passages,
        "order": hashlib.sha256(order.encode()).hexdigest()[:16],
    }
    if manifest.precision is not None:
        told["precision"] = manifest.precision
    points = _points(path, manifest)
    found = metadata_of(client, collection)
    if found is None:
        first = next(points)
        _create(client, collection, len(first["vector"][MEAN]), told)
        points = itertools.chain([first], points)
    elif found | {"order": None} != told | {"order": None}:
        raise InputError(f"the collection {collection!r} holds something else: choose a new name, or delete it")
    done = count_of(client, collection)
    if found is not None and done < manifest.passages and found.get("order") != told["order"]:
        raise InputError(
            f"the collection {collection!r} holds {done} of these passages, which may have lain in another order then: "
            "delete it, or choose a new name"
        )
    points = itertools.islice(points, done, None)
    with progress_bar(progress) as bar:
        task = bar.add_task("pushing passages", total=manifest.passages, completed=done)
        for group in groups(points, lambda point: len(point["vector"][TOKENS]) * len(point["vector"][MEAN])):
            structs = [models.PointStruct(**point) for point in group]
            # In their order, and each waited for: how many there are says where to go on.
            with asking(f"store passages in the collection {collection!r}", "push again, it goes on"):
                client.upsert(collection, structs, wait=True)
            bar.advance(task, len(group))
    return count_of(client, collection)


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
    with asking(f"make the collection {collection!r}"):
        client.create_collection(collection, vectors_config={MEAN: mean, TOKENS: tokens}, metadata=told)


def _points(path: Path, manifest: IndexManifest) -> Iterator[dict[str, Any]]:
    """The live passages of an index as Qdrant's points, numbered in their order."""
    number = 0
    for segment in manifest.segments:
        passages = zip(alive_in(segment), read_segment(path, segment), strict=True)
        for vectors, lengths in Vectors(vectors_folder(path, segment)):
            rows = vectors.float().split(lengths.tolist())
            for tokens, (alive, passage) in zip(rows, passages, strict=False):
                if not alive:
                    continue
                payload = {"pid": passage.pid, "text": passage.text, "title": passage.title}
                payload |= {"source": passage.source, "metadata": dict(passage.metadata)}
                yield {"id": number, "vector": {MEAN: mean_of(tokens), TOKENS: tokens.tolist()}, "payload": payload}
                number += 1
