"""BM25's counts. What a word is worth depends on the whole corpus, so that they are made anew at every change."""

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from raisf.retrieval.search.maxsim import Hits, best_hits
from raisf.retrieval.store.manifest import DOTLESS, WHOLE_WORDS
from raisf.utils.errors import InputError
from raisf.utils.wording import CJK, THAI, UNSPACED

_LONG_WORD = r"\b\w\w+\b"  # what was counted before `WHOLE_WORDS`
# The soft hyphen, and what keeps letters apart or joined in how they look.
_UNSEEN = dict.fromkeys(map(ord, "\u00ad\u200c\u200d\u2060"))
# Python's lower case has \u0130 as two characters, and I as i, which is another letter than \u0131.
_DOTLESS = {0x130: "i", 0x131: "i"}
_TURKISH = frozenset("\u0130\u0131\u0307")


@functools.cache
def _whole_word() -> str:
    """The pattern of a word: letters and digits with the marks that combine with them; of "it's" the s is none.

    Chinese, Japanese and Korean are counted by the character, Thai and the like by a letter with its vowels and tones.
    """
    letter = rf"[^\W{UNSPACED}]"
    # Asking first whether a mark may lie beyond the first 65,536 characters takes a fifth of the time.
    mark = rf"(?:[{_marks(0, 0x10000)}]|(?=[\U00010000-\U0001ffff])[{_marks(0x10000, 0x20000)}])"
    words = rf"{letter}(?:{letter}+|{mark})+|(?<!\w['\u2019])(?<!{mark}['\u2019]){letter}"
    return rf"{words}|(?=\w)[{THAI}]{mark}*|(?=\w)[{CJK}]"


def _marks(first: int, end: int) -> str:
    """The combining marks among some characters. Beyond 0x20000 they but choose between forms of a character."""
    characters = map(chr, range(first, end))
    return "".join(re.escape(one) for one in characters if unicodedata.category(one) in ("Mn", "Mc"))


def write_words(texts: Iterable[str], folder: Path) -> None:
    """Counts the words of the passages and writes them into a new folder."""
    import bm25s

    dotless = False

    def seen() -> Iterator[str]:
        nonlocal dotless
        for text in texts:
            dotless = dotless or not _TURKISH.isdisjoint(text)
            yield text

    tokens = words_of(seen())
    if not any(tokens):
        # bm25s cannot count in an empty vocabulary; this word is in no query.
        tokens[0] = [" "]
    scorer = bm25s.BM25()
    scorer.index(tokens, show_progress=False)
    scorer.save(folder, show_progress=False)
    (folder / WHOLE_WORDS).touch()
    if dotless:
        (folder / DOTLESS).touch()


class Words:
    """Scores passages by BM25. A passage that shares no word with a query is never found.

    Source: bm25s, https://arxiv.org/abs/2407.03618, its "lucene" scoring with k1 = 1.5 and b = 0.75.

    Args:
        folder: What `write_words` has written.
        numbers: The number of each passage that was counted, ascending.

    Raises:
        InputError: The folder is damaged.
    """

    def __init__(self, folder: Path, numbers: np.ndarray):
        import bm25s

        self._numbers = numbers
        self._whole, self._dotless = (folder / WHOLE_WORDS).is_file(), (folder / DOTLESS).is_file()
        try:
            self._scorer = bm25s.BM25.load(folder)
            self._dotless |= _TURKISH.isdisjoint("".join(self._scorer.vocab_dict))
            if (counted := self._scorer.scores["num_docs"]) != len(numbers):
                raise ValueError(f"{counted} passages were counted, not {len(numbers)}")
        except (ValueError, KeyError, OSError) as error:
            raise InputError(f"the index {folder.parent} is damaged ({error}); make it again") from error

    def search(
        self, queries: Sequence[str], k: int, allowed: np.ndarray, also: Sequence[Sequence[int]] = ()
    ) -> list[Hits]:
        """The at most `k` best passages for each query out of those whose number is allowed; among equals the earlier.

        bm25s's own selection leaves it to the processor's sort which of equals it takes, and in which order.

        Args:
            queries: The queries.
            k: How many passages at most.
            allowed: Which passages may be found, bool `(n_passages,)`.
            also: For each query the numbers of passages that are found beyond `k` where they are the last one's equals.
        """
        mask, found = allowed[self._numbers], []
        for place, words in enumerate(words_of(queries, self._whole, self._dotless)):
            scores = self._scorer.get_scores(words) if words else np.zeros(len(mask), np.float32)
            likely = np.flatnonzero(mask & (scores > 0))
            if len(likely) > k:  # the k best and their equals
                likely = likely[scores[likely] >= np.partition(scores[likely], -k)[-k]]
                likely = likely[np.argsort(-scores[likely], kind="stable")]
                more = np.isin(self._numbers[likely], also[place] if also else [])
                likely = likely[(np.arange(len(likely)) < k) | more]
            found.append(best_hits(scores[likely], self._numbers[likely], len(likely)))
        return found


def words_of(texts: Iterable[str], whole: bool = True, dotless: bool = True) -> list[list[str]]:
    """The words of each text that count, which such as "the" do not, in lower case.

    Args:
        texts: Whose characters may be composed in any way.
        whole: As `WHOLE_WORDS` says; False: as in an index that was made before, as the texts are composed.
        dotless: Likewise, as `DOTLESS` says.
    """
    import bm25s

    if whole:
        others = _UNSEEN | _DOTLESS if dotless else _UNSEEN
        texts = (unicodedata.normalize("NFKC", text).translate(others) for text in texts)
    return bm25s.tokenize(  # pyright: ignore[reportReturnType]
        list(texts),
        token_pattern=_whole_word() if whole else _LONG_WORD,
        stopwords="en",
        return_ids=False,
        show_progress=False,
    )
