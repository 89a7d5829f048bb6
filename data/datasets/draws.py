"""Which questions of a public data set go into which split: the same from every copy of it, and none in two."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from raisf.utils.errors import InputError

DEV = 500
"""Questions of a dev split that is drawn from the training split, or a tenth of that: enough to select on."""

Alike = Callable[[Sequence[str], Sequence[str]], set[str]]
"""Which of some questions are among some others."""

# Questions compared at a time, since `Alike` may make an object of each.
_AT_ONCE = 5_000


class Asked(NamedTuple):
    """A question of a source: its number there, counted from 1, and its words."""

    number: int
    question: str


class Draw(NamedTuple):
    """What a split takes.

    Attributes:
        questions: What it takes.
        alike: How many were passed over because a split that is tested or selected on has them.
    """

    questions: list[Asked]
    alike: int = 0


def same_words(ours: Sequence[str], theirs: Sequence[str]) -> set[str]:
    """The questions of ours that are, word for word, among theirs."""
    return set(ours).intersection(theirs)


def draw_splits(
    asked: Mapping[str, list[Asked]], wanted: Collection[str], n: int | None, seed: int, alike: Alike = same_words
) -> dict[str, Draw]:
    """Draws each wanted split from the source of its name, and `dev` from that of `train` where it has none.

    A draw takes the first questions of a shuffle that depends on their words and the seed: copies of a data set in
    different orders give the same questions, and a larger `n` adds to what a smaller one took.

    Args:
        asked: The questions of each source.
        wanted: Of train, dev and test.
        n: Questions a split at most; None: all, and `DEV` for a dev split that is drawn.
        seed: Of the shuffle.
        alike: Tells what must not be trained or selected on. All of a source is compared, not only what is drawn of it,
            so that these questions stay untested whatever `n` is.

    Raises:
        InputError: Nothing is left for a wanted split.
    """
    shuffled = {split: sorted(questions, key=lambda a: _place(seed, a)) for split, questions in asked.items()}
    draws = {"test": Draw(shuffled["test"][:n])} if "test" in shuffled else {}
    if "dev" in shuffled:  # what is selected on must not be what is tested
        draws["dev"], _ = _first(shuffled["dev"], n, [one.question for one in asked.get("test", [])], alike)
    others = [question.question for split in draws for question in asked[split]]
    pool = shuffled.get("train", [])
    if "dev" in wanted and "dev" not in draws:
        # As many are kept for it whatever n is: else what a small n trains on would be what a larger one selects on.
        dev, pool = _first(pool, max(1, min(DEV, len(pool) // 10)), others, alike)
        draws["dev"] = Draw(dev.questions[:n], dev.alike)
        others += [question.question for question in dev.questions]
    if "train" in wanted:
        draws["train"], _ = _first(pool, n, others, alike)
    for split in wanted:
        if not draws[split].questions:
            raise InputError(f"no question is left for {split}: too few, or the other splits hold the same ones")
    return {split: draws[split] for split in wanted}


def _first(pool: list[Asked], size: int | None, others: list[str], alike: Alike) -> tuple[Draw, list[Asked]]:
    """The first of the pool that are not among the others, and what comes after them."""
    taken: list[Asked] = []
    place = 0
    while place < len(pool) and (size is None or len(taken) < size):
        missing = len(pool) if size is None else size - len(taken)
        chunk = pool[place : place + min(_AT_ONCE, missing)]
        same = alike([asked.question for asked in chunk], others) if others else set()
        taken += [asked for asked in chunk if asked.question not in same]
        place += len(chunk)
    return Draw(taken, place - len(taken)), pool[place:]


def _place(seed: int, asked: Asked) -> tuple[bytes, int]:
    return hashlib.sha256(f"{seed}/{asked.question}".encode("utf-8", "surrogatepass")).digest(), asked.number
