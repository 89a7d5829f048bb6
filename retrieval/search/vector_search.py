"""Searching the vectors of an index: of all its segments, exact and compressed."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from raisf.retrieval.search.maxsim import Hits, MaxSim
from raisf.retrieval.search.plaid import Plaid
from raisf.retrieval.search.prefetch import Prefetch
from raisf.retrieval.search.together import MicroBatcher
from raisf.retrieval.store.encoding import Encoder
from raisf.retrieval.store.manifest import PLAID, SEGMENTS, VECTORS, IndexManifest
from raisf.retrieval.store.vectors import Vectors


class VectorSearch:
    """Searches the exact or packed segments together, and each of PLAID's by itself.

    Args:
        path: The index folder.
        manifest: Its manifest.
        encoder: Encodes the queries.
    """

    def __init__(self, path: Path, manifest: IndexManifest, encoder: Encoder):
        self._encode = MicroBatcher(encoder.encode_queries)
        self._parts: list[tuple[np.ndarray, Any]] = []
        together, start = defaultdict(list), 0
        for segment in manifest.segments:
            folder, numbers = path / SEGMENTS / segment.name, np.arange(start, start + segment.passages)
            start += segment.passages
            if segment.search == "plaid":
                self._parts.append((numbers, Plaid(folder / PLAID)))
            else:
                chosen = segment.packing is not None or manifest.prefetches
                together[Prefetch if chosen else MaxSim].append((numbers, folder / VECTORS))
        for engine, parts in together.items():
            numbers, folders = zip(*parts, strict=True)
            self._parts.append((np.concatenate(numbers), engine(Vectors(*folders))))

    def search(self, queries: Sequence[str], k: int, allowed: np.ndarray) -> list[Hits]:
        """The at most `k` best passages for each query, best first, out of those whose number is allowed."""
        vectors = self._encode(queries)
        rows: list[Hits] = [[] for _ in queries]
        for numbers, engine in self._parts:
            for row, hits in zip(rows, engine.search(vectors, k, allowed[numbers]), strict=True):
                row += [(int(numbers[number]), score) for number, score in hits]
        return [sorted(row, key=lambda hit: (-hit[1], hit[0]))[:k] for row in rows]
