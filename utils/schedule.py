"""How a learning rate goes over a training, and a step at it."""

from collections.abc import Iterable
from typing import Any


def linear(step: int, total: int, warm_up: float) -> float:
    """The share of the learning rate that a step takes: up over the first steps, then to 0 in a straight line.

    Args:
        step: Steps taken before.
        total: Steps in all.
        warm_up: The share of them in which the rate rises.
    """
    return min((step + 1) / max(1.0, warm_up * total), 1 - step / total, 1.0)


def take_step(optimizer: Any, weights: Iterable[Any], rate: float, most: float) -> None:
    """Moves weights at a learning rate, after their gradients were cut to a norm; the gradients are gone then."""
    import torch

    torch.nn.utils.clip_grad_norm_(weights, most)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
