"""BM25, the lexical retriever: fast, small, needs no model."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from data.errors import InputError
from retrieval.manifest import check_k, new_index, read_manifest, read_passages, write_passages
from retrieval.passage import Passage


class BM25:
    """Searches passages by the words they share with the query (stop words left out, no stemming).

    A passage that shares no word with the query is never returned, so a search may bring fewer than k.

    Source: bm25s, https://arxiv.org/abs/2407.03618, its "lucene" scoring with k1 = 1.5 and b = 0.75.
    """

    def __init__(self, path: Path, corpus_hash: str, passages: list[Passage], scorer: Any):
        self.path: Path | None = path
        self.corpus_hash = corpus_hash
        self.passages = passages
        self._scorer = scorer

    @classmethod
    def build(cls, passages: Iterable[Passage], out: Path | str) -> "BM25":
        """Makes an index in the folder `out` and opens it. One that is there is replaced when it is whole.

        Raises:
            InputError: No passage, an id that comes twice, or `out` holds other things.
        """
        import bm25s

        with new_index(out, "bm25") as (folder, facts):
            facts["search"] = "bm25"
            tokens = _tokens([passage.prompt_text for passage in write_passages(folder, passages)])
            if not any(tokens):
                # bm25s cannot count in an empty vocabulary; this word is in no query.
                tokens[0] = [" "]
            scorer = bm25s.BM25()
            scorer.index(tokens, show_progress=False)
            scorer.save(folder / "bm25", show_progress=False)
        return cls.load(out)

    @classmethod
    def load(cls, path: Path | str) -> "BM25":
        """Opens an index.

        Raises:
            InputError: There is none, it is of another kind, or it is damaged.
        """
        import bm25s

        path = Path(path)
        manifest = read_manifest(path)
        if manifest.kind != "bm25":
            raise InputError(f"{path} is a {manifest.kind} index, not bm25; open it with open_index")
        try:
            scorer = bm25s.BM25.load(path / "bm25")
        except (ValueError, KeyError, OSError) as error:
            raise InputError(f"the index {path} is damaged ({error}); make it again") from error
        return cls(path, manifest.corpus_sha256, read_passages(path, manifest), scorer)

    def __call__(self, query: str, k: int) -> list[Passage]:
        """The at most `k` best passages, best first, each with its BM25 score."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """The same for several queries, in their order."""
        check_k(k)
        if not queries:
            return []
        numbers, scores = self._scorer.retrieve(
            _tokens(queries), k=min(k, len(self.passages)), show_progress=False, backend_selection="numpy"
        )
        return [
            [
                dataclasses.replace(self.passages[number], score=score)
                for number, score in zip(row.tolist(), row_scores.tolist(), strict=True)
                if score > 0
            ]
            for row, row_scores in zip(numbers, scores, strict=True)
        ]

    def __deepcopy__(self, memo: dict[int, Any]) -> "BM25":
        """Itself: copies of a program search the same index."""
        return self


def _tokens(texts: Sequence[str]) -> list[list[str]]:
    import bm25s

    return bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)  # pyright: ignore[reportReturnType]
