"""Keys and values of rows that come and go, in memory that stays where it is."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from transformers import DynamicCache

# Columns to write into before the memory is laid out anew.
ROOM = 64


class Shelf(DynamicLayer):
    """One layer's keys and values: its rows lie in the first places, and all of them end in the same column.

    `DynamicLayer` copies everything for each token that is written, half of the time that a small model takes for one.
    Here a step writes its column, a row that joins is written beside the others, and the last row takes the place of
    one that leaves. What a row does not reach is zero or another's remains, and must be masked.
    """

    def __init__(self, *like: torch.Tensor):
        """Empty, for keys and values such as these (rows, heads, columns, dim); some models' differ in their dim."""
        super().__init__()
        self.dtype, self.device, self.is_initialized = like[0].dtype, like[0].device, True
        self._held = [one.new_zeros(0, one.shape[1], 0, one.shape[3]) for one in like]
        self._rows = self._first = self._last = 0
        self._show()

    @torch.inference_mode()
    def admit(self, layer: DynamicLayer, places: Sequence[Any], lengths: Sequence[int]) -> None:
        """Take in the rows of another layer.

        Args:
            layer: As a model has filled it.
            places: For each row, which of its columns are its own: a slice, or their numbers.
            lengths: How many they are.
        """
        keys, values = _tensors(layer)
        self._make_room(self._rows + len(lengths), max(lengths))
        for row, (own, length) in enumerate(zip(places, lengths, strict=True), self._rows):
            for held, given in zip(self._held, (keys, values), strict=True):
                held[row, :, self._last - length : self._last] = given[row - self._rows, :, own]
        self._rows += len(lengths)
        self._first = min(self._first, self._last - max(lengths))
        self._show()

    def row(self, row: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A row's keys and values (1, heads, length, dim), until the next change."""
        keys, values = (held[row : row + 1, :, self._last - length : self._last] for held in self._held)
        return keys, values

    @torch.inference_mode()
    def keep(self, rows: Sequence[int], length: int) -> None:
        """Go on with these rows alone, in this order; none may come before its own place.

        Args:
            rows: Their places.
            length: The columns of the longest.
        """
        for place, row in enumerate(rows):
            if place != row:
                for held in self._held:
                    held[place, :, self._first : self._last] = held[row, :, self._first : self._last]
        self._rows, self._first = len(rows), self._last - length
        self._show()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a step's columns; gives all there are."""
        new = key_states.shape[-2]
        self._make_room(self._rows, self._last - self._first, new)
        for held, states in zip(self._held, (key_states, value_states), strict=True):
            held[: self._rows, :, self._last : self._last + new] = states
        self._last += new
        self._show()
        return _tensors(self)

    def _make_room(self, rows: int, length: int, new: int = 0) -> None:
        """Room for so many rows, each of so many columns, and for new columns after them."""
        places, columns = self._held[0].shape[0], self._held[0].shape[2]
        if rows <= places and length <= self._last and self._last + new <= columns:
            return
        width = max(length, self._last - self._first)
        first, size = width - (self._last - self._first), (max(rows, places), width + max(new, ROOM))
        # All of it before any: where there is no memory, what is there stays as it is.
        made = [held.new_zeros(size[0], held.shape[1], size[1], held.shape[3]) for held in self._held]
        for held, anew in zip(self._held, made, strict=True):
            anew[: self._rows, :, first:width] = held[: self._rows, :, self._first : self._last]
        self._held, self._first, self._last = made, first, width

    def _show(self) -> None:
        self.keys, self.values = (held[: self._rows, :, self._first : self._last] for held in self._held)


def shelved(cache: "DynamicCache") -> "DynamicCache | None":
    """Empty shelves for the rows of a cache; None if its model forgets, by a sliding window or a state."""
    from transformers import DynamicCache

    layers: list[Any] = cache.layers
    if any(type(layer) is not DynamicLayer for layer in layers):
        return None
    shelves: Any = DynamicCache()
    shelves.layers = [Shelf(layer.keys, layer.values) for layer in layers]
    shelves.layer_class_to_replicate = None
    return shelves


def _tensors(layer: DynamicLayer) -> tuple[torch.Tensor, torch.Tensor]:
    assert layer.keys is not None and layer.values is not None
    return layer.keys, layer.values
