"""Prefix caching: what many prompts begin with, few-shot examples above all, is computed once and kept.

A judge with eight examples reads the same five hundred tokens before every question. Their keys and values stay in
memory, and a batch of such prompts computes only what comes after them.
"""

import copy
import hashlib
import itertools
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raisf.lm.local.multi_lora import Loras, Slot

if TYPE_CHECKING:
    from transformers import DynamicCache, PreTrainedModel

# Prompts are compared by whole blocks of tokens. Shorter beginnings cost less than a batch of their own.
BLOCK, SHORTEST = 32, 96
# A beginning is kept when so many earlier batches had it: what one question's prompts share goes away with it.
SEEN = 2
# Blocks remembered, those of some hundred prompts; and bytes of keys and values kept.
BLOCKS, BYTES = 8192, 2**29


@dataclass(frozen=True, eq=False)
class Prefix:
    """A beginning that is kept.

    Attributes:
        tokens: Its token ids.
        lora: The adapter that it was computed with.
    """

    tokens: list[int]
    lora: Slot
    _cache: "DynamicCache"

    @property
    def nbytes(self) -> int:
        """What its keys and values take in memory."""
        layers: list[Any] = self._cache.layers
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)

    def continued(self, rows: int = 1) -> "DynamicCache":
        """Its keys and values for a batch of so many rows, to be grown by that batch."""
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in self._cache.layers]
        if rows > 1:
            cache.batch_repeat_interleave(rows)
        return cache


class Prefixes:
    """The beginnings that a causal model keeps; the longest unused goes first.

    Args:
        model: A causal language model.
        loras: Its adapters.
    """

    def __init__(self, model: "PreTrainedModel", loras: Loras):
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        self._model, self._loras = model, loras
        # A model that forgets, by a sliding window or a state, has no beginning to share.
        self._remembers = all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._kept: OrderedDict[bytes, Prefix] = OrderedDict()

    def find(self, prompts: Sequence[tuple[Slot, list[int]]]) -> list[Prefix | None]:
        """The beginning that each prompt of a batch shares with those of earlier ones, shorter than the prompt.

        Args:
            prompts: Each one's adapter and token ids.
        """
        if not self._remembers:
            return [None] * len(prompts)
        blocks = [list(_blocks(lora, tokens)) for lora, tokens in prompts]
        found = [self._of(lora, tokens, keys) for (lora, tokens), keys in zip(prompts, blocks, strict=True)]
        for key in dict.fromkeys(key for keys in blocks for key in keys):
            self._seen[key] = self._seen.pop(key, 0) + 1
        while len(self._seen) > BLOCKS:
            self._seen.popitem(last=False)
        return found

    def _of(self, lora: Slot, tokens: list[int], keys: list[bytes]) -> Prefix | None:
        shared = list(itertools.takewhile(lambda key: self._seen.get(key, 0) >= SEEN, keys))
        best = next((key for key in reversed(keys) if key in self._kept), None)
        if best is not None:
            self._kept.move_to_end(best)
        prefix = self._kept[best] if best is not None else None
        length = len(shared) * BLOCK
        # One a little longer saves less than it costs.
        if length < SHORTEST or (prefix is not None and 4 * len(prefix.tokens) >= 3 * length):
            return prefix
        return self._keep(shared[-1], lora, tokens[:length], prefix)

    def _keep(self, key: bytes, lora: Slot, tokens: list[int], known: Prefix | None) -> Prefix:
        import torch
        from transformers import DynamicCache

        start = len(known.tokens) if known else 0
        with torch.inference_mode(), self._loras.blend([lora]) or nullcontext():
            cache = self._model(
                input_ids=torch.tensor([tokens[start:]], device=self._model.device),
                past_key_values=known.continued() if known else DynamicCache(config=self._model.config),
                logits_to_keep=1,
                use_cache=True,
            ).past_key_values
        self._kept[key] = prefix = Prefix(tokens, lora, cache)
        while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > BYTES:
            self._kept.popitem(last=False)
        return prefix


def _blocks(lora: Slot, tokens: list[int]) -> Iterator[bytes]:
    """A name for each beginning of whole blocks; the last token is never in one: something must be left to compute."""
    name = hashlib.blake2b(array("q", lora).tobytes(), digest_size=16)
    for end in range(BLOCK, len(tokens), BLOCK):
        name.update(array("q", tokens[end - BLOCK : end]).tobytes())
        yield name.digest()
