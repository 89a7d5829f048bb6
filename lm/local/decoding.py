"""The loop that writes token by token, whatever kind of model says what comes next."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class Decoding(Protocol):
    """Prompts that are being continued together, a row each."""

    def step(self, picked: list[int] | None) -> "torch.Tensor":
        """The logits (rows, V) of each row's next token, after the tokens picked last; None at the first step."""
        ...

    def keep(self, rows: list[int]) -> None:
        """Go on with these rows alone."""
        ...


def decode(
    decoding: Decoding,
    limits: list[int],
    choose: Callable[[int, "torch.Tensor"], int] | None,
    ended: Callable[[int, list[int]], bool],
) -> Iterator[tuple[int, list[int]]]:
    """Continue prompts together, and give each continuation as soon as it has ended.

    `transformers`' own loop costs more than a small model's forward pass; this one does only what is needed here.

    Args:
        decoding: The prompts with their model.
        limits: the most tokens to add to each prompt, at least 1.
        choose: picks row i's next token from its logits (V,); None takes the likeliest for every row.
        ended: whether row i is done, given its new tokens.

    Yields:
        The prompt's index and its new tokens.
    """
    alive = list(range(len(limits)))
    new: list[list[int]] = [[] for _ in limits]
    picked: list[int] | None = None
    while alive:
        logits = decoding.step(picked)
        if choose is None:
            picked = logits.argmax(-1).tolist()
        else:
            picked = [choose(index, row) for index, row in zip(alive, logits, strict=True)]
        keep = []
        for row, index in enumerate(alive):
            new[index].append(picked[row])
            if len(new[index]) >= limits[index] or ended(index, new[index]):
                yield index, new[index]
            else:
                keep.append(row)
        if 0 < len(keep) < len(alive):
            decoding.keep(keep)
        alive, picked = [alive[row] for row in keep], [picked[row] for row in keep]
