"""What the document says beside a passage: a club's handbook names the club on its first page alone."""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Self

import numpy as np

from raisf.retrieval.passage import Passage, row_of
from raisf.retrieval.search.maxsim import Hits
from raisf.retrieval.store.words import words_of

WEIGHT = 4.0
"""What a document adds to ColBERT's score that has all of a question's words. A passage that fits has 10 to 20."""

DEPTH = 50
"""The best passages, which are ranked anew."""

_KEPT = 1024
"""Documents whose words are remembered."""

_OF_ROWS = (".jsonl", ".json", ".csv", ".tsv")
"""Ends of the names of files each of whose rows is for itself."""


class DocumentWords:
    """Ranks what was found anew, by how many of a question's words the passage's document has, each at its rarity.

    A passage that is no part of a document is one by itself.

    Args:
        passages: Of the index, by number.
        parts: By document, the numbers of its passages.
    """

    def __init__(self, passages: Sequence[Passage], parts: Mapping[str, Sequence[int]]):
        self._passages, self._parts = passages, parts
        # It does not hold this object, which would else hold itself and outlive its last user.
        self._words = functools.lru_cache(maxsize=_KEPT)(functools.partial(_count, passages, parts))

    @classmethod
    def of(cls, passages: Sequence[Passage], alive: np.ndarray) -> Self | None:
        """Of the passages, by number, that an index finds, bool `(n_passages,)`.

        None unless several documents have two passages or more: a row says what its passage says, and what a single
        document says tells none of its passages from another.
        """
        numbers = np.flatnonzero(alive).tolist()
        cut: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            if "#" in (pid := passages[number].pid):
                cut[row_of(pid)].append(number)
        found, rows = dict[str, list[int]](), defaultdict[str | None, list[str]](list)
        for name, within in cut.items():
            source = passages[within[0]].source
            if len(within) > 1 and source != name:
                # Rows may have ids such as "a/b#1" and "a/b#2": what was cut from one row stands in one place.
                if not _is_of_rows(source or "") or len({passages[number].citation for number in within}) == 1:
                    rows[source].append(name)
            elif len(within) > 1 and not _is_of_rows(name):
                found[name] = within
        # Rows with ids are documents where most are cut up: else a few long ones would be ranked by other rules.
        sizes = Counter(passages[number].source for number in numbers) if rows else Counter[str | None]()
        for source, names in rows.items():
            of_several = sum(len(cut[name]) for name in names)
            if 2 * (sizes[source] - of_several + len(names)) <= sizes[source]:
                found |= {name: cut[name] for name in names}
        return cls(passages, found) if len(found) > 1 else None

    def ranked(self, query: str, hits: Hits) -> Hits:
        """The hits in their new order, with their new scores; those beyond the first `DEPTH` stay where they are."""
        (asked,) = map(set, words_of([query]))
        best, others = hits[:DEPTH], hits[DEPTH:]
        documents = {number: self._document(number) for number, _ in best}
        found = {one: asked & self._words(one) for one in dict.fromkeys(documents.values())}
        worth = {word: _rarity(sum(word in has for has in found.values()), len(found)) for word in asked}
        whole = math.fsum(worth.values()) or 1.0  # in whatever order a set has them, which each process has its own
        shares = {one: math.fsum(worth[word] for word in has) / whole for one, has in found.items()}
        weighed = [(number, score + WEIGHT * shares[documents[number]]) for number, score in best]
        return sorted(weighed, key=lambda hit: (-hit[1], hit[0])) + others

    def _document(self, number: int) -> str | int:
        """A passage's document, or its number where it is none's part."""
        name = row_of(self._passages[number].pid)
        return name if name in self._parts else number


def _is_of_rows(name: str) -> bool:
    return any(end in _OF_ROWS for end in PurePath(name.lower()).suffixes[-2:])


def _count(passages: Sequence[Passage], parts: Mapping[str, Iterable[int]], document: str | int) -> frozenset[str]:
    numbers = [document] if isinstance(document, int) else parts[document]
    texts = [f"{(passages[n].source or '').replace('_', ' ')} {passages[n].prompt_text}" for n in numbers]
    return frozenset().union(*words_of(texts))


def _rarity(having: int, count: int) -> float:
    """What a word is worth that so many of some documents have: BM25's inverse document frequency."""
    return math.log(1 + (count - having + 0.5) / (having + 0.5))
