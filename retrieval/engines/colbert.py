"""ColBERT, the default retriever: late interaction between the query's token vectors and each passage's."""

from raisf.retrieval.encoders.checkpoint import default_checkpoint, find_checkpoint
from raisf.retrieval.engines.base import Index


class ColBERT(Index):
    """Searches passages with a ColBERT checkpoint: all of them or likely ones exactly, or with PLAID.

    A passage's score is the sum, over the query's token vectors, of the best dot product with one of its own.

    Source: ColBERT, https://arxiv.org/abs/2004.12832; PLAID, https://arxiv.org/abs/2205.09707.
    """

    kind = "colbert"
    find = staticmethod(find_checkpoint)
    default_checkpoint = staticmethod(default_checkpoint)
    compresses = True
