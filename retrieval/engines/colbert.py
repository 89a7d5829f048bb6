"""ColBERT, the default retriever: late interaction between the query's token vectors and each passage's."""

import functools
from collections.abc import Sequence

import numpy as np

from raisf.retrieval.encoders.checkpoint import default_checkpoint, find_checkpoint
from raisf.retrieval.engines.base import Index
from raisf.retrieval.search.document_words import DEPTH, DocumentWords
from raisf.retrieval.search.maxsim import Hits


class ColBERT(Index):
    """Searches passages with a ColBERT checkpoint: all of them or likely ones exactly, or with PLAID.

    A passage's score is the sum, over the query's token vectors, of the best dot product with one of its own. In an
    index of documents that are cut into passages it is more by what the document has of the query's words
    (`raisf.retrieval.search.document_words`).

    Source: ColBERT, https://arxiv.org/abs/2004.12832; PLAID, https://arxiv.org/abs/2205.09707.
    """

    kind = "colbert"
    find = staticmethod(find_checkpoint)
    default_checkpoint = staticmethod(default_checkpoint)
    compresses = True

    @functools.cached_property
    def _documents(self) -> DocumentWords | None:
        return DocumentWords.of(self._passages, self._alive)

    @property
    def ranking(self) -> str:
        """As of any index; and whether the words of documents count."""
        return super().ranking + (" words of documents" if self._documents else "")

    def _hits(self, queries: Sequence[str], k: int, allowed: np.ndarray) -> list[Hits]:
        if self._documents is None:
            return super()._hits(queries, k, allowed)
        found = super()._hits(queries, max(k, DEPTH), allowed)
        return [self._documents.ranked(query, hits)[:k] for query, hits in zip(queries, found, strict=True)]
