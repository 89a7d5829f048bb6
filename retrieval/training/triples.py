"""What a ColBERT checkpoint learns from: a query, a passage that answers it, and passages that only look as if.

The queries are a user's questions with known passages, or, where she has none, *known items* made out of the passages.
"""

import itertools
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raisf.data.rows import read_rows
from raisf.data.schemas import new_paragraphs, paragraphs
from raisf.retrieval.engines.base import Index
from raisf.retrieval.passage import Passage, row_of
from raisf.utils.errors import InputError
from raisf.utils.progress import progress_bar
from raisf.utils.text import clean, composed
from raisf.utils.wording import apart

HARD = 8
"""Hard negatives kept for each triple; a step of the training draws from them."""

DEPTH = 30
"""Passages of a ranking among which hard negatives are looked for: further down they are easy."""

SHORTEST, LONGEST = 4, 12
"""Words of a cropped sentence, about those of a question. What is left of its passage must have LONGEST at least."""

HIDDEN = 0.5
"""How often a known item's sentence is cut out of its passage. The inverse cloze task cuts nine of ten; but words that
query and passage share are evidence too, and are not to be unlearnt."""

_SENTENCE = re.compile(r"""(?<=[.!?\u2026])["')\u201d\u2019\]]*\s+|(?<=[\u3002\uff01\uff1f])""")
_BATCH = 128


@dataclass(frozen=True, slots=True)
class Triple:
    """A query and passages, as the encoder reads them.

    Attributes:
        query: What is asked.
        positive: A passage that answers it, or what a known item's query has left of its passage.
        negatives: Passages near it that do not answer it, the nearest first.
        answers: All passages that answer it: in a batch with other queries they are never its negatives.
    """

    query: str
    positive: str
    negatives: tuple[str, ...]
    answers: tuple[str, ...]


def brought_passages(*files: Path) -> Iterator[Passage]:
    """The paragraphs that question files bring along (HotpotQA, 2WikiMultihopQA, MuSiQue), each title and text once.

    Raises:
        InputError: A file is missing or broken.
    """
    seen: set[bytes] = set()
    for file in files:
        for number, row in enumerate(read_rows(file), start=1):
            try:
                found = list(new_paragraphs(paragraphs(row), seen))
            except (ValueError, TypeError, KeyError) as error:
                raise InputError(f"{file}, question {number}: {error}") from error
            for pid, title, text in found:
                yield Passage(pid, text, clean(composed(title)))


def question_triples(questions: Sequence[Any], index: Index, progress: bool = True) -> Iterator[Triple]:
    """A triple for each passage that answers a question; none for a question of which nothing in the index is known.

    The negatives are what the index itself ranks high: words in common for BM25, the checkpoint's own mistakes for
    ColBERT. A passage that holds an answer is none, since it may well be one that nobody has marked.

    Args:
        questions: Examples of `raisf.data.questions`, with `gold_pids` or `gold_titles`.
        index: Holds the passages and finds the negatives.
        progress: Whether to show a bar on standard error.
    """
    by_pid: dict[str, list[Passage]] = {}
    by_title: dict[str, list[Passage]] = {}
    for passage in index.passages:
        by_title.setdefault(composed(passage.title), []).append(passage)
        for name in {composed(passage.pid), composed(row_of(passage.pid))}:
            by_pid.setdefault(name, []).append(passage)
    known = []
    for question in questions:
        gold = [by_pid[pid] for pid in map(composed, question.gold_pids) if pid and pid in by_pid]
        # An empty id is a fact that no passage states, whatever its title.
        if not gold and "" not in question.gold_pids:
            gold = [by_title[title] for title in question.gold_titles if title and title in by_title]
        if gold:
            known.append((question, gold))
    rankings = _rankings(index, [question.question for question, _ in known], progress)
    for (question, gold), ranking in zip(known, rankings, strict=True):
        answers = {passage.pid: passage for group in gold for passage in group}
        ranks = {passage.pid: rank for rank, passage in enumerate(ranking)}
        negatives = _hard(p for p in ranking if p.pid not in answers and not _holds(p, question))
        for group in gold:
            # Of a document that was cut into several passages, the likeliest is the one that is meant.
            positive = min(group, key=lambda passage: ranks.get(passage.pid, DEPTH))
            texts = tuple(passage.prompt_text for passage in answers.values())
            yield Triple(question.question, positive.prompt_text, negatives, texts)


def known_items(index: Index, count: int, seed: int = 0, progress: bool = True) -> Iterator[Triple]:
    """Triples whose query is made out of the passage itself: its title, its first sentence, or a crop of any sentence.

    Half of the time the sentence is then cut out of the passage, so that its place must be known by what it means.

    Args:
        index: Holds the passages and finds the negatives.
        count: How many; at most one a passage.
        seed: Of all that is drawn.
        progress: Whether to show a bar on standard error.

    Source: the inverse cloze task, Lee et al. 2019, https://arxiv.org/abs/1906.00300, section 4; crops, Izacard et al.
    2022 (Contriever), https://arxiv.org/abs/2112.09118, section 3.1.
    """
    rng = random.Random(f"{seed}/known items")
    passages = index.passages
    items = []
    for passage in rng.sample(passages, min(count, len(passages))):
        item = _known_item(passage, rng)
        if item is not None:
            items.append((passage, *item))
    rankings = _rankings(index, [query for _, query, _ in items], progress)
    for (passage, query, positive), ranking in zip(items, rankings, strict=True):
        # Passages of one title are parts of one document: a title alone cannot tell them apart.
        others = (p for p in ranking if p.pid != passage.pid and (not p.title or p.title != passage.title))
        yield Triple(query, positive, _hard(others), (passage.prompt_text,))


def _known_item(passage: Passage, rng: random.Random) -> tuple[str, str] | None:
    """A query made out of a passage, and what is left of the passage; None where it is too short for one."""
    sentences = [sentence for sentence in _SENTENCE.split(passage.text) if len(sentence.split()) >= SHORTEST]
    kinds = [*(["title"] if passage.title else []), *(["first", "crop"] if sentences else [])]
    if not kinds:
        return None
    kind = rng.choice(kinds)
    if kind == "title":
        return passage.title, passage.prompt_text
    sentence = sentences[0] if kind == "first" else rng.choice(sentences)
    words = sentence.split()
    size = min(len(words), rng.randint(SHORTEST, LONGEST))
    start = 0 if kind == "first" else rng.randint(0, len(words) - size)
    query = sentence if kind == "first" else " ".join(words[start : start + size])
    left = " ".join(passage.text.replace(sentence, " ", 1).split())
    if rng.random() >= HIDDEN or len(left.split()) < LONGEST:
        left = passage.text
    return query, f"{passage.title} | {left}" if passage.title else left


def _rankings(index: Index, queries: Sequence[str], progress: bool) -> Iterator[list[Passage]]:
    with progress_bar(progress) as bar:
        task = bar.add_task("finding hard negatives", total=len(queries))
        for start in range(0, len(queries), _BATCH):
            batch = queries[start : start + _BATCH]
            yield from index.search_many(batch, DEPTH)
            bar.advance(task, len(batch))


def _hard(passages: Iterable[Passage]) -> tuple[str, ...]:
    return tuple(passage.prompt_text for passage in itertools.islice(passages, HARD))


def _holds(passage: Passage, question: Any) -> bool:
    """Whether an answer stands in a passage; yes and no stand everywhere and say nothing."""
    text = f" {_plain(passage.prompt_text)} "
    answers = {_plain(answer) for answer in question.answers} - {"", "yes", "no"}
    return any(f" {answer} " in text for answer in answers)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", apart(text).lower()))


def check_triples(triples: Sequence[Triple]) -> None:
    """Raises an InputError where there is too little to learn from."""
    queries = {triple.query for triple in triples}
    if len(queries) < 2:
        raise InputError(
            f"{len(queries)} queries with a known passage are too few to train on: give questions with gold_pids or "
            "gold_titles of passages of the corpus, or --known-items"
        )
