"""What was read and written a moment ago is not read again: prompts that grow, as IRCoT's and ReAct's do step by step.

A text that has ended leaves its keys and values here for a while. A prompt that begins like it, by whole blocks of
tokens, goes on from there. Unlike the prefixes of `raisf.lm.local.prefixes` this costs no forward pass, only memory.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

from raisf.lm.local.multi_lora import Slot
from raisf.lm.local.prefixes import BLOCK, SHORTEST, Prefix, blocks

if TYPE_CHECKING:
    import torch

# Texts kept, and bytes of their keys and values: of twice as many questions as are answered at a time.
TEXTS, BYTES = 64, 2**28


class Tails:
    """The texts that ended last, by their beginnings."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Prefix] = OrderedDict()  # by the name of all its blocks
        self._of: dict[bytes, bytes] = {}  # the name of a beginning -> the text that was there last with it
        self._bytes = 0

    def keep(self, lora: Slot, tokens: list[int], layers: "list[tuple[torch.Tensor, torch.Tensor]]") -> None:
        """Remember a text.

        Args:
            lora: The adapter that it was read with.
            tokens: Its token ids.
            layers: For each layer its keys and values (1, heads, tokens, dim), which are copied.
        """
        from transformers import DynamicCache

        names = list(blocks(lora, tokens))
        whole = len(names) * BLOCK
        if whole < SHORTEST or names[-1] in self._kept:
            return
        held = [(keys[:, :, :whole].clone(), values[:, :, :whole].clone()) for keys, values in layers]
        tail = Prefix(tokens[:whole], lora, DynamicCache(held))
        self._kept[names[-1]] = tail
        self._of |= dict.fromkeys(names, names[-1])
        self._bytes += tail.nbytes
        while len(self._kept) > 1 and (len(self._kept) > TEXTS or self._bytes > BYTES):
            name, gone = self._kept.popitem(last=False)
            self._bytes -= gone.nbytes
            for begin in blocks(gone.lora, [*gone.tokens, 0]):
                if self._of.get(begin) == name:
                    del self._of[begin]

    def longest(self, lora: Slot, tokens: list[int], known: Prefix | None) -> Prefix | None:
        """What a prompt begins with: the longest beginning of a text that is kept, or `known` if that is longer."""
        names = list(blocks(lora, tokens))
        for count in range(len(names), 0, -1):
            length = count * BLOCK
            if length < SHORTEST or (known is not None and length <= len(known.tokens)):
                return known
            if (name := self._of.get(names[count - 1])) is not None:
                self._kept.move_to_end(name)
                return self._kept[name].first(length)
        return known
