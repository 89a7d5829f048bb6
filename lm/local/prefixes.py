"""Prefix caching: what many prompts begin with, few-shot examples above all, is computed once and kept.

A judge with eight examples reads the same five hundred tokens before every question. Their keys and values stay in
memory, and prompts that begin so compute only what comes after them. Each row of a batch continues a prefix of its own,
or none: batches are put together as if nothing were cached.
"""

import copy
import hashlib
import itertools
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raisf.lm.local.multi_lora import Loras, Slot

if TYPE_CHECKING:
    import torch
    from transformers import DynamicCache, PreTrainedModel

# Prompts are compared by whole blocks of tokens. Shorter beginnings cost little.
BLOCK, SHORTEST = 32, 96
# A prefix is kept when so many earlier batches each brought a prompt that is new and begins so. What the prompts of one
# question share, or a prompt that comes again and again shares with itself, is not worth a forward pass.
SEEN = 4
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

    def first(self, length: int) -> "Prefix":
        """Its first tokens alone; they share its memory."""
        cache = self.continued()
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]  # type: ignore[index]
        return Prefix(self.tokens[:length], self.lora, cache)

    def continued(self, rows: int = 1) -> "DynamicCache":
        """Its keys and values for a batch of so many rows, to be grown by that batch."""
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in self._cache.layers]
        if rows > 1:
            cache.batch_repeat_interleave(rows)
        return cache


def joined(prefixes: "Sequence[Prefix]") -> "DynamicCache | None":
    """Keys and values of several prefixes one behind the other, for a batch of a single row; None for none."""
    import torch

    return _combined(prefixes, lambda tensors: torch.cat(tensors, -2))


def stacked(prefixes: "Sequence[Prefix | None]") -> "DynamicCache | None":
    """Keys and values for a batch that continues a prefix in each row, padded on the left; None for none at all."""
    known = [prefix for prefix in prefixes if prefix is not None]
    if known and all(prefix is known[0] for prefix in prefixes):
        return known[0].continued(len(prefixes))
    places = [known.index(prefix) if prefix is not None else None for prefix in prefixes]

    def rows(tensors: "list[torch.Tensor]") -> "torch.Tensor":
        width = max(tensor.shape[-2] for tensor in tensors)
        whole = tensors[0].new_zeros(len(places), tensors[0].shape[1], width, tensors[0].shape[-1])
        for row, place in enumerate(places):
            if place is not None:
                whole[row, :, width - tensors[place].shape[-2] :] = tensors[place][0]
        return whole

    return _combined(known, rows)


def _combined(prefixes: "Sequence[Prefix]", combine: "Callable[[list[torch.Tensor]], torch.Tensor]") -> Any:
    if not prefixes:
        return None
    cache = prefixes[0].continued()
    for place, layer in enumerate(cache.layers):
        layers: list[Any] = [prefix._cache.layers[place] for prefix in prefixes]
        layer.keys = combine([one.keys for one in layers])  # type: ignore[attr-defined]
        layer.values = combine([one.values for one in layers])  # type: ignore[attr-defined]
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
        # How many batches each beginning came up in with new prompts, and which prompts these were.
        self._seen: OrderedDict[bytes, tuple[int, frozenset[bytes]]] = OrderedDict()
        self._kept: OrderedDict[bytes, Prefix] = OrderedDict()

    def find(self, prompts: Sequence[tuple[Slot, list[int]]]) -> list[Prefix | None]:
        """The beginning that each prompt of a batch shares with those of earlier ones, shorter than the prompt.

        Args:
            prompts: Each one's adapter and token ids.
        """
        if not self._remembers:
            return [None] * len(prompts)
        named = [list(blocks(lora, tokens)) for lora, tokens in prompts]
        found = [self._of(lora, tokens, keys) for (lora, tokens), keys in zip(prompts, named, strict=True)]
        self._count([[*keys, _name(lora, tokens)] for (lora, tokens), keys in zip(prompts, named, strict=True)])
        return found

    def _count(self, named: list[list[bytes]]) -> None:
        """Takes note of a batch: for each prompt, the names of its beginnings and its own."""
        batch: dict[bytes, set[bytes]] = {}
        for *keys, prompt in named:
            for key in keys:
                batch.setdefault(key, set()).add(prompt)
        for key, prompts in batch.items():
            count, before = self._seen.pop(key, (0, frozenset()))
            if count < SEEN and prompts - before:
                # Once enough have come it no longer matters which.
                count, before = count + 1, before | prompts if count + 1 < SEEN else frozenset()
            self._seen[key] = count, before
        while len(self._seen) > BLOCKS:
            self._seen.popitem(last=False)

    def _of(self, lora: Slot, tokens: list[int], keys: list[bytes]) -> Prefix | None:
        shared = list(itertools.takewhile(lambda key: self._seen.get(key, (0,))[0] >= SEEN, keys))
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
                cache=known.continued() if known else DynamicCache(config=self._model.config),
                logits_to_keep=last_place(self._model.device),
                use_cache=True,
            ).cache
        self._kept[key] = prefix = Prefix(tokens, lora, cache)
        while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > BYTES:
            self._kept.popitem(last=False)
        return prefix


def last_place(device: "torch.device") -> "torch.Tensor":
    """Where the next token is said, as `logits_to_keep`.

    By their index, the states there are copied into one piece of memory. By a number they are not, and torch would
    multiply the vocabulary's matrix, the largest of a Llama, once a row: a hundred times as long in bfloat16 on a CPU.
    """
    import torch

    return torch.tensor([-1], device=device)


def blocks(lora: Slot, tokens: list[int]) -> Iterator[bytes]:
    """A name for each beginning of whole blocks; the last token is never in one: something must be left to compute."""
    name = hashlib.blake2b(array("q", lora).tobytes(), digest_size=16)
    for end in range(BLOCK, len(tokens), BLOCK):
        name.update(array("q", tokens[end - BLOCK : end]).tobytes())
        yield name.digest()


def _name(lora: Slot, tokens: list[int]) -> bytes:
    return hashlib.blake2b(array("q", [*lora, *tokens]).tobytes(), digest_size=16).digest()
