"""How a learning rate goes over a training."""


def linear(step: int, total: int, warm_up: float) -> float:
    """The share of the learning rate that a step takes: up over the first steps, then to 0 in a straight line.

    Args:
        step: Steps taken before.
        total: Steps in all.
        warm_up: The share of them in which the rate rises.
    """
    return min((step + 1) / max(1.0, warm_up * total), 1 - step / total, 1.0)
