"""Drawing rows."""

import random
from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")


def up_to(rows: Sequence[Row], n: int, rng: random.Random) -> list[Row]:
    """At most n of the rows, in random order."""
    return rng.sample(list(rows), min(len(rows), n))
