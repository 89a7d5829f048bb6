"""Token sequences laid out as one tree, so that what several of them begin with is computed once."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def pack(
    sequences: list[list[int]], groups: Sequence[Any] | None = None
) -> tuple[list[int], list[int], np.ndarray, list[np.ndarray]]:
    """Lay token sequences out as one tree, so that a beginning shared by several of them is there once.

    Args:
        sequences: token ids, at least one a sequence.
        groups: one sortable value a sequence; only sequences of one group share beginnings. None: all do.

    Returns:
        tokens: (T,) the tree's tokens.
        positions: (T,) how many tokens of its sequence come before each.
        sees: (T, T) bool, whether the row's token attends to the column's: to itself and to what comes before it.
        paths: for each sequence, the places of its tokens in the tree.
    """
    tokens: list[int] = []
    positions: list[int] = []
    paths: list[np.ndarray] = [np.empty(0, int)] * len(sequences)
    branches = []
    previous, path, last = np.empty(0, int), np.empty(0, int), None
    group = groups or [0] * len(sequences)
    # In lexicographic order each sequence shares with its predecessor all that it shares with any before it.
    for index in sorted(range(len(sequences)), key=lambda index: (group[index], sequences[index])):
        sequence = np.array(sequences[index])
        shared = common_length(previous, sequence) if group[index] == last else 0
        new = np.arange(len(tokens), len(tokens) + len(sequence) - shared)
        branches.append((path[:shared], new))
        path = paths[index] = np.concatenate([path[:shared], new])
        tokens += sequence[shared:].tolist()
        positions += range(shared, len(sequence))
        previous, last = sequence, group[index]
    sees = np.zeros((len(tokens), len(tokens)), bool)
    for before, new in branches:
        if len(new):
            sees[new[0] : new[-1] + 1, before] = True
            sees[new[0] : new[-1] + 1, new] = np.tri(len(new), dtype=bool)
    return tokens, positions, sees, paths


def common_length(one: Sequence[int] | np.ndarray, other: Sequence[int] | np.ndarray) -> int:
    """How many tokens two sequences begin with alike."""
    length = min(len(one), len(other))
    different = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(different[0]) if len(different) else length
