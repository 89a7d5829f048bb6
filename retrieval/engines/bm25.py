"""BM25, the lexical retriever: fast, small, needs no model."""

from raisf.retrieval.engines.base import Index


class BM25(Index):
    """Searches passages by the words they share with the query (stop words left out, no stemming; CJK by character).

    A passage that shares no word with the query is never returned, so a search may bring fewer than k.

    Source: bm25s, https://arxiv.org/abs/2407.03618, its "lucene" scoring with k1 = 1.5 and b = 0.75.
    """

    kind = "bm25"
    counts_words = True
