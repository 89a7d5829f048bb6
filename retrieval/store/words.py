"""BM25's counts. What a word is worth depends on the whole corpus, so that they are made anew at every change."""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from raisf.retrieval.search.maxsim import Hits
from raisf.retrieval.store.manifest import ALL_WORDS
from raisf.utils.errors import InputError

# Chinese, Japanese and Korean by the character, all else by the word; of "it's" the s is none.
_CJK = "\u2e80-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_WORD = rf"(?=\w)[{_CJK}]|(?:(?![{_CJK}])\w){{2,}}|(?<!\w['\u2019])\w"
_LONG_WORD = r"\b\w\w+\b"  # what was counted before `ALL_WORDS`


def write_words(texts: Iterable[str], folder: Path) -> None:
    """Counts the words of the passages and writes them into a new folder."""
    import bm25s

    tokens = _tokens(texts)
    if not any(tokens):
        # bm25s cannot count in an empty vocabulary; this word is in no query.
        tokens[0] = [" "]
    scorer = bm25s.BM25()
    scorer.index(tokens, show_progress=False)
    scorer.save(folder, show_progress=False)
    (folder / ALL_WORDS).touch()


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
        self._all_words = (folder / ALL_WORDS).is_file()
        try:
            self._scorer = bm25s.BM25.load(folder)
        except (ValueError, KeyError, OSError) as error:
            raise InputError(f"the index {folder.parent} is damaged ({error}); make it again") from error

    def search(self, queries: Sequence[str], k: int, allowed: np.ndarray) -> list[Hits]:
        """The at most `k` best passages for each query, best first, out of those whose number is allowed."""
        mask = allowed[self._numbers]
        k = min(k, int(mask.sum()))
        if not k:
            return [[] for _ in queries]
        numbers, scores = self._scorer.retrieve(
            _tokens(queries, self._all_words),
            k=k,
            show_progress=False,
            backend_selection="numpy",
            weight_mask=None if mask.all() else mask.astype(np.float32),  # pyright: ignore[reportArgumentType]
        )
        return [
            [(number, score) for number, score in zip(row.tolist(), row_scores.tolist(), strict=True) if score > 0]
            for row, row_scores in zip(self._numbers[numbers], scores, strict=True)
        ]


def _tokens(texts: Iterable[str], all_words: bool = True) -> list[list[str]]:
    """The words of texts, however their characters are composed."""
    import bm25s

    return bm25s.tokenize(  # pyright: ignore[reportReturnType]
        [unicodedata.normalize("NFKC", text) if all_words else text for text in texts],
        token_pattern=_WORD if all_words else _LONG_WORD,
        stopwords="en",
        return_ids=False,
        show_progress=False,
    )
