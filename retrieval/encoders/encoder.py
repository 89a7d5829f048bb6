"""A ColBERT checkpoint at work: texts become token vectors."""

import functools
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.lm.local.soundness import unreadable
from raisf.retrieval.encoders import colbert_shims
from raisf.retrieval.store.encoding import Reading
from raisf.utils.errors import InputError
from raisf.utils.kept import Kept
from raisf.utils.model_loading import ONE_AT_A_TIME, without_bars

if TYPE_CHECKING:
    import torch

QUERY_BATCH = 128
PASSAGE_BATCH = 32
"""Texts a forward pass: on a CPU larger batches only pad more."""
KEPT = 32 << 20
"""Bytes of queries' vectors that are kept, 16 KB each of 32 tokens: searches with another k ask the same ones."""


@functools.lru_cache(maxsize=2)
def load_encoder(path: Path, sha256: str, augment: bool, precision: str) -> "ColBERTEncoder":
    """The encoder of a checkpoint, shared by all indexes of the process that use it.

    The SHA-256 is of its files: where they have changed, they are read again. For the others see `ColBERTEncoder`.
    """
    return ColBERTEncoder(path, augment, precision)


class ColBERTEncoder:
    """Encodes queries and passages with a ColBERT checkpoint. Safe to call from several threads.

    Attributes:
        reading: What it has read of passages.

    Args:
        path: The absolute folder of the checkpoint.
        augment: Whether queries are filled up with [MASK] tokens to the checkpoint's query length.
        precision: "float32", or "bfloat16": matrices are then multiplied in it.
    """

    def __init__(self, path: Path, augment: bool, precision: str = "float32"):
        colbert_shims.colbert()
        from colbert.modeling.checkpoint import Checkpoint

        self._checkpoint = colbert_shims.without_amp(load_colbert(path, Checkpoint, verbose=0))
        self.reading = Reading(self._checkpoint.colbert_config.doc_maxlen)
        self._augment, self._precision = augment, precision
        # In bfloat16, 3 of 64 queries had their passages in another order beside others: what a query finds must not
        # depend on what else is asked.
        self._batch = 1 if precision == "bfloat16" else QUERY_BATCH
        self._known: Kept[torch.Tensor] = Kept(KEPT)
        # Fast tokenizers keep their padding as state and fail when two threads use one.
        self._lock = threading.Lock()

    def encode_queries(self, queries: Sequence[str]) -> list["torch.Tensor"]:
        """Token vectors `(n_tokens, dim)` of unit length for each query, float32 on the CPU; long queries are cut.

        They are shared with whoever asks for the same query: do not change them.
        """
        import torch

        with self._lock, torch.inference_mode():
            found = {query: kept for query in queries if (kept := self._known.get(query)) is not None}
            new = [query for query in dict.fromkeys(queries) if query not in found]
            for start in range(0, len(new), self._batch):
                texts = new[start : start + self._batch]
                ids, mask, lengths = query_tokens(self._checkpoint.query_tokenizer, texts, self._augment)
                with computing_in(self._precision, self._checkpoint.device.type):
                    batch = self._checkpoint.query(ids, mask, to_cpu=True).float()
                for query, vectors, length in zip(texts, batch, lengths.tolist(), strict=True):
                    # Its own memory: a part of the batch would keep all of it.
                    found[query] = vectors[:length].clone()
                    self._known.put(query, found[query], found[query].nbytes + sys.getsizeof(query))
        return [found[query] for query in queries]

    def forget_queries(self) -> None:
        """Keeps no query's vectors any more."""
        with self._lock:
            self._known.clear()

    def encode_passages(self, texts: Sequence[str]) -> tuple["torch.Tensor", "torch.Tensor"]:
        """Token vectors of all texts, one after the other, and how many each has; punctuation has none.

        Returns:
            Vectors `(n_vectors, dim)` of unit length, float16 on the CPU, and lengths `(n_texts,)`, int64.
        """
        import torch

        # Texts of like length together: a batch is padded to its longest.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        rows: list[torch.Tensor] = [torch.empty(0)] * len(texts)
        for start in range(0, len(order), PASSAGE_BATCH):
            batch = order[start : start + PASSAGE_BATCH]
            with self._lock, torch.inference_mode():
                ids, mask = self._checkpoint.doc_tokenizer.tensorize([texts[i] for i in batch])
                self.reading.add(ids, mask, self._checkpoint.doc_tokenizer.tok.unk_token_id)
                with computing_in(self._precision, self._checkpoint.device.type):
                    vectors, kept = self._checkpoint.doc(ids, mask, keep_dims="return_mask")
                for i, row, keep in zip(batch, vectors.half().cpu(), kept.squeeze(-1).cpu(), strict=True):
                    rows[i] = row[keep]
        return torch.cat(rows), torch.tensor([len(row) for row in rows])


def load_colbert(path: Path, kind: type, **options: Any) -> Any:
    """One of colbert-ai's model classes with the weights of a checkpoint, without the messages of its libraries.

    Args:
        path: The absolute folder of the checkpoint.
        kind: Its `Checkpoint`, which encodes, or its `ColBERT`, which can be trained; from the corrected package.
        **options: The constructor's others.

    Raises:
        InputError: It cannot be read, lacks weights, or has some that are no numbers.
    """
    from colbert.infra import ColBERTConfig

    config = ColBERTConfig(checkpoint=str(path))
    config.configure(model_name=None)  # the checkpoint's own names the model it grew from, and that would be fetched
    try:
        with ONE_AT_A_TIME, without_bars(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kind(str(path), colbert_config=config, **options)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a damaged folder makes transformers raise what it likes
        raise unreadable(path, error) from error


def fastest_precision() -> str:
    """In which precision this machine encodes best: bfloat16 where the processor multiplies it fast, or a GPU.

    With AMX a CPU encodes 2.5 times as many passages; the cosine of a vector with its float32 twin is 0.9996 at least
    (all-MiniLM-L6-v2, 28,863 tokens of HotpotQA). Without it float32 encodes 1.45 times as many.
    """
    import torch

    from raisf.lm.local.weights import multiplies_bfloat16

    return "bfloat16" if torch.cuda.is_available() or multiplies_bfloat16() else "float32"


def computing_in(precision: str, device: str) -> "torch.autocast":
    """A context in which matrices are multiplied in a precision, on a device of a type such as "cpu"."""
    import torch

    return torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")


def query_tokens(
    tokenizer: Any, queries: Sequence[str], augment: bool
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Queries as tokens: ids and attention mask `(n_queries, n_tokens)`, and how many tokens of each count.

    Args:
        tokenizer: colbert-ai's `QueryTokenizer`.
        queries: At least one.
        augment: Whether they are filled up with [MASK] tokens, which then count like others.
    """
    import torch

    ids, mask = tokenizer.tensorize(list(queries))
    lengths = torch.full((len(ids),), ids.shape[1]) if augment else mask.sum(dim=1)
    longest = int(lengths.max())
    return ids[:, :longest], mask[:, :longest], lengths
