"""PLAID: compressed token vectors, searched by their nearest centroids first. For corpora too large for exact search.

Compression, file format and search are colbert-ai's. The centroids are trained here, on a sample and in a fraction of
the time: its own indexer encodes a small corpus twice and spends more time on k-means than on the encoding.

Source: PLAID, https://arxiv.org/abs/2205.09707; ColBERTv2, https://arxiv.org/abs/2112.01488, section 3.3.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raisf.retrieval.encoders import colbert_shims
from raisf.retrieval.search.cells import POINTS, centroid_count, kmeans
from raisf.retrieval.search.maxsim import Hits
from raisf.retrieval.store.vectors import Vectors
from raisf.utils.files import write_json

if TYPE_CHECKING:
    import torch

NBITS = 2
"""Bits for each number of a residual, as in ColBERTv2: 36 bytes a vector of 128 numbers."""

HELD_OUT = 20_000
"""Vectors that the buckets of the residuals are read off from."""

CELLS, THRESHOLD, CANDIDATES = 2, 0.45, 1024
"""A query vector looks into so many cells; centroids that score below the threshold are left out of the first ranking;
so many passages are ranked by their centroids, and a quarter of them by their vectors.

They are colbert-ai's settings for k up to 100. Those it takes for k up to 10 (1, 0.5, 256) share 81% of the first ten
with exact search where these share 86%, at a third of the time; 4096 candidates share 88%, at five times the time
(9,078 Wikipedia paragraphs, 300 HotpotQA questions, checkpoint minilm)."""

FEW = 1024
"""Passages that a filter lets through and that are then all ranked by their vectors: of so few, hardly one may be among
the candidates of the whole corpus."""


def compress(vectors: Vectors, folder: Path) -> None:
    """Writes a PLAID index of the vectors into a new folder."""
    colbert_shims.colbert()
    import torch
    from colbert.indexing.codecs.residual import ResidualCodec
    from colbert.indexing.utils import optimize_ivf
    from colbert.infra import ColBERTConfig

    folder.mkdir()
    count = int(vectors.lengths.sum())
    partitions = centroid_count(count)
    trained = kmeans(vectors.sample(partitions * POINTS, seed=1), partitions)
    centroids = torch.nn.functional.normalize(torch.from_numpy(trained.centroids), dim=-1)
    config = ColBERTConfig(dim=centroids.shape[1], nbits=NBITS)

    held_out = vectors.sample(HELD_OUT, seed=2)
    nearest = ResidualCodec(config, centroids).compress_into_codes(held_out, out_device="cpu")
    residuals = held_out - centroids[nearest]
    edges = torch.arange(2 * 2**NBITS) / (2 * 2**NBITS)
    codec = ResidualCodec(
        config,
        centroids,
        avg_residual=residuals.abs().mean(),
        bucket_cutoffs=residuals.quantile(edges[2::2]),
        bucket_weights=residuals.quantile(edges[1::2]),
    )
    codec.save(os.fspath(folder))

    codes = []
    for number, (shard, lengths) in enumerate(vectors):
        compressed = codec.compress(shard.float())
        compressed.save(os.fspath(folder / str(number)))
        write_json(folder / f"doclens.{number}.json", lengths.tolist())
        codes.append(compressed.codes)
    members = torch.cat(codes).long().sort()
    optimize_ivf(members.indices, torch.bincount(members.values, minlength=partitions), os.fspath(folder), verbose=0)
    # All that is read of it; its own also holds the maker's paths.
    settings = {"dim": config.dim, "nbits": NBITS}
    write_json(folder / "metadata.json", {"config": settings, "num_chunks": len(codes), "num_embeddings": count})


class Plaid:
    """Searches a folder that `compress` has written. Approximate; may find fewer than k passages in a large corpus.

    Its files are read by `torch.load`, in the mode that takes tensors only and runs no code (`weights_only`).

    Raises:
        RaisfError: The C++ extensions cannot be compiled.
    """

    def __init__(self, folder: Path):
        colbert_shims.compile_extensions()
        from colbert.infra import ColBERTConfig
        from colbert.search.index_storage import IndexScorer

        self._scorer: Any = IndexScorer(os.fspath(folder), use_gpu=False)
        self._make_config = ColBERTConfig

    def search(self, queries: Sequence["torch.Tensor"], k: int, allowed: np.ndarray) -> list[Hits]:
        """The about `k` best passages for each query; see `MaxSim.search`."""
        import torch

        candidates = max(CANDIDATES, 4 * k)
        config = self._make_config(ncells=CELLS, centroid_score_threshold=THRESHOLD, ndocs=candidates)
        mask = torch.from_numpy(allowed)
        # Where all passages are ranked by their vectors anyway, the centroids only cost time and passages.
        most = candidates // 4 if mask.all() else max(candidates // 4, FEW)
        few = mask.nonzero().flatten().tolist() if int(mask.sum()) <= most else None
        if few == []:
            return [[] for _ in queries]
        hits = []
        for query in queries:
            config.query_maxlen = len(query)
            numbers, scores = self._scorer.rank(
                config, query.unsqueeze(0), pids=few, filter_fn=None if few else lambda found: found[mask[found.long()]]
            )
            hits.append(list(zip(numbers[:k], scores[:k], strict=True)))
        return hits
