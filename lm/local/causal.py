"""The rows of a causal Llama: what stands in them, and its next tokens."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from raisf.lm.local.decoding import Draft
from raisf.lm.local.multi_lora import Blend, Loras, Slot
from raisf.lm.local.prefixes import last_place, stacked
from raisf.lm.local.tails import Tails

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class CausalRows:
    """See `raisf.lm.local.decoding.Rows`.

    Rows begin at different columns and end at the same one, so that one token of each is one column.

    Args:
        model: A causal language model with rotary (or other explicit) positions.
        loras: Its adapters; None where no draft names one.
        tails: Where rows that leave are kept; None: nowhere.
    """

    def __init__(self, model: "PreTrainedModel", loras: Loras | None = None, tails: Tails | None = None):
        self._model, self._loras, self._tails = model, loras, tails
        self._slots: list[Slot] = []
        self._lengths: list[int] = []  # tokens whose keys and values are there
        self._width = 0  # columns
        self._cache: Any = None
        self._blend: Blend | None = None

    @property
    def joins(self) -> bool:
        """Not where the model forgets, by a sliding window or a state: what it keeps of a row cannot be moved."""
        from raisf.lm.local.shelf import Shelf

        return self._cache is None or isinstance(self._cache.layers[0], Shelf)

    def join(self, drafts: Sequence[Draft]) -> "torch.Tensor":
        """See `Rows`; the new rows are read by a pass of their own."""
        import torch

        from raisf.lm.local.shelf import shelved

        heads = [draft.prefix for draft in drafts]
        known = [len(head.tokens) if head else 0 for head in heads]
        lengths = [len(draft.prompt) - start for draft, start in zip(drafts, known, strict=True)]
        before, width = max(known), max(lengths)
        ids = torch.zeros(len(drafts), width, dtype=torch.long)
        for row, (draft, length) in enumerate(zip(drafts, lengths, strict=True)):
            ids[row, width - length :] = torch.tensor(draft.prompt[-length:])
        # In each row its prefix and then the rest, both padded on the left.
        mask = torch.cat([_last(known, before), _last(lengths, width)], 1)
        positions = mask.cumsum(1)[:, before:].sub(1).clamp(min=0)
        slots = [draft.lora for draft in drafts]
        logits, cache = self._forward(ids, mask, positions, stacked(heads), self._blended(slots))
        blend = self._blended([*self._slots, *slots])
        wholes = [len(draft.prompt) for draft in drafts]
        shelves = self._cache if self._cache is not None else shelved(cache)
        if shelves is None:
            self._cache, self._width = cache, width
        else:
            places: list[Any] = [slice(width - whole, width) for whole in wholes]
            if before:
                places = [own.nonzero()[:, 0] for own in mask]
            held: list[Any] = shelves.layers
            try:
                for shelf, layer in zip(held, cache.layers, strict=True):
                    shelf.admit(layer, places, wholes)
            except BaseException:  # as without memory: the rows that were there go on as if none had come
                for shelf in held:
                    shelf.keep(range(len(self._slots)), self._width)
                raise
            self._cache, self._width = shelves, max(self._width, *wholes)
        self._lengths += wholes
        self._slots += slots
        self._blend = blend
        return logits

    def step(self, picked: list[int]) -> "torch.Tensor":
        """See `Rows`."""
        import torch

        positions = torch.tensor(self._lengths)[:, None]
        self._lengths = [length + 1 for length in self._lengths]
        self._width += 1
        mask = _last(self._lengths, self._width)
        logits, _ = self._forward(torch.tensor(picked)[:, None], mask, positions, self._cache, self._blend)
        return logits

    def part(self, row: int, draft: Draft) -> None:
        """See `Rows`."""
        if self._tails is not None and self.joins:
            layers = [shelf.row(row, self._lengths[row]) for shelf in self._cache.layers]
            self._tails.keep(draft.lora, [*draft.prompt, *draft.tokens[:-1]], layers)

    def keep(self, rows: list[int]) -> None:
        """See `Rows`."""
        self._lengths = [self._lengths[row] for row in rows]
        self._slots = [self._slots[row] for row in rows]
        self._blend = self._blended(self._slots)
        if not rows:
            self._cache, self._width = None, 0
        elif self.joins:
            self._width = max(self._lengths)
            for shelf in self._cache.layers:
                shelf.keep(rows, self._width)
        else:
            import torch

            # Not `batch_select_indices`, which passes over what a layer keeps beside keys and values.
            self._cache.reorder_cache(torch.tensor(rows, dtype=torch.long, device=self._model.device))

    def _blended(self, slots: list[Slot]) -> Blend | None:
        return self._loras.blend(slots) if self._loras else None

    def _forward(self, ids: Any, mask: Any, positions: Any, cache: Any, blend: Blend | None) -> Any:
        import torch

        device = self._model.device
        with torch.inference_mode(), blend or nullcontext():
            step = self._model(
                input_ids=ids.to(device),
                position_ids=positions.to(device),
                attention_mask=None if bool(mask.all()) else mask.to(device),
                cache=cache,
                use_cache=True,
                logits_to_keep=last_place(device),
            )
        return step.logits[:, -1], step.cache


def _last(lengths: Sequence[int], width: int) -> "torch.Tensor":
    """Which places of a row are its own, 0 or 1, where rows of these lengths are padded on the left."""
    import torch

    return (torch.arange(width) >= width - torch.tensor(lengths)[:, None]).long()
