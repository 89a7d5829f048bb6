"""Recall of the gold paragraphs of real questions: BM25, dense, ColBERT and their fusion over the same paragraphs.

    python -m bench.recall --questions dev.jsonl [musique.json ...] [--checkpoint minilm checkpoints/mine ...]
        [--extra corpus.json] [--keep FOLDER] [--out results.json] [--json]

Each question file brings its paragraphs (HotpotQA, 2WikiMultihopQA, MuSiQue): those of all its questions together are
its corpus, and, of the extra file (a JSON list or JSON Lines of title and text), every paragraph with a title that they
do not have. A hit is a passage with the title of a gold paragraph. MRR is of the first gold paragraph, 0 where none is
among the first 100. A kept index is used for the same corpus and checkpoint only. Differences are paired by question;
two systems differ where the interval leaves 0 out.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from raisf.data.questions import load_questions
from raisf.evaluation.intervals import Score, bootstrap, paired_difference
from raisf.evaluation.metrics import recall_at_k
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.engines.hybrid import DEPTH, fuse
from raisf.retrieval.index import ENGINES, EngineName, build_index, open_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.search.maxsim import Hits
from raisf.retrieval.store.manifest import MANIFEST
from raisf.retrieval.store.rows import CorpusHash
from raisf.retrieval.training.triples import brought_passages
from raisf.utils.files import read_json, read_jsonl, write_json
from raisf.utils.text import print_of

KS = (2, 5, 20)
COMPARED = "recall@5"
Values = dict[str, list[float]]
"""Measure -> one number a question."""


def corpus(questions: Path, extra: Path | None) -> Iterator[Passage]:
    """The passages: whole paragraphs, as the data sets have them."""
    titles = set()
    for passage in brought_passages(questions):
        titles.add(passage.title)
        yield passage
    rows = [] if extra is None else read_json(extra) if extra.suffix == ".json" else read_jsonl(extra)
    for number, row in enumerate(rows):
        if row["title"] not in titles:
            yield Passage(f"extra-{number}", row["text"], row["title"])


def measure(rankings: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Values:
    """The measures of each question, from the titles of its passages and its gold titles."""
    values: Values = {f"recall@{k}": [recall_at_k(r, g, k) for r, g in zip(rankings, gold, strict=True)] for k in KS}
    ranks = [
        next((rank for rank, title in enumerate(ranking, start=1) if title in titles), None)
        for ranking, titles in zip(rankings, gold, strict=True)
    ]
    return {**values, "MRR": [1 / rank if rank else 0.0 for rank in ranks]}


class Bench:
    """The rankings of all systems on one question file."""

    def __init__(self, questions: Path, extra: Path | None, keep: Path, limit: int | None):
        self.name = f"{questions.parent.name}/{questions.name}"
        self.questions = [question for question in load_questions(questions) if question.gold_titles][:limit]
        self.passages = list(corpus(questions, extra))
        self.numbers = {passage.pid: number for number, passage in enumerate(self.passages)}
        self.titles = [passage.title for passage in self.passages]
        self.keep = keep / f"{questions.parent.name}-{questions.stem}"
        self._corpus = CorpusHash()
        for passage in self.passages:
            self._corpus.add(passage)
        self.values: dict[str, Values] = {}
        self.costs: dict[str, dict[str, float]] = {}
        self._hits: dict[str, list[Hits]] = {}

    def search(self, system: str, engine: EngineName, checkpoint: str = "minilm") -> None:
        """Builds or opens the index of a system, and measures it."""
        folder, start = self._folder(engine, checkpoint), time.perf_counter()
        made = not (folder / MANIFEST).is_file()
        if made:
            build_index(self.passages, folder, engine, checkpoint)
        built, index = time.perf_counter() - start, open_index(folder)
        start = time.perf_counter()
        found = index.search_many([question.question for question in self.questions], DEPTH)
        searched = 1000 * (time.perf_counter() - start) / len(self.questions)
        self.costs[system] = {"search_ms": searched, **({"build_s": built} if made else {})}
        self._rank(system, [[(self.numbers[passage.pid], passage.score or 0.0) for passage in row] for row in found])

    def _folder(self, engine: EngineName, checkpoint: str) -> Path:
        """Of this corpus and checkpoint alone: a kept index of others would be measured in its place."""
        made_from, name = self._corpus.hexdigest(), engine
        if find := ENGINES[engine].find:
            made_from, name = made_from + find(checkpoint).sha256, f"{engine}-{Path(checkpoint).name}"
        return self.keep / f"{name}-{hashlib.sha256(made_from.encode()).hexdigest()[:8]}"

    def fuse(self, system: str, *others: str) -> None:
        """Measures the reciprocal rank fusion of systems that were searched, of the first `DEPTH` of each."""
        rows = zip(*(self._hits[other] for other in others), strict=True)
        self._rank(system, [fuse(rankings)[:DEPTH] for rankings in rows])

    def _rank(self, system: str, hits: list[Hits]) -> None:
        self._hits[system] = hits
        titles = [[self.titles[number] for number, _ in row] for row in hits]
        self.values[system] = measure(titles, [question.gold_titles for question in self.questions])

    def scores(self) -> dict[str, dict[str, Score]]:
        """For each system its measures, and how far its recall@5 is above that of each other."""
        rows = {}
        for system, values in self.values.items():
            rows[system] = {name: bootstrap(numbers) for name, numbers in values.items()}
            for other in self.values:
                if other != system:
                    rows[system][_above(other)] = paired_difference(values[COMPARED], self.values[other][COMPARED])
        return rows

    def as_dict(self) -> dict[str, Any]:
        """All that was measured, as JSON values."""
        scores = {system: {name: s.as_dict() for name, s in row.items()} for system, row in self.scores().items()}
        facts = {"questions": len(self.questions), "passages": len(self.passages)}
        return {"file": self.name, **facts, "systems": scores, "costs": self.costs}

    def table(self) -> Table:
        """A row a system; below, the best one against the others."""
        title = f"{self.name}: {len(self.questions)} questions, {len(self.passages)} passages; % with 95% interval"
        measures = [*(f"recall@{k}" for k in KS), "MRR"]
        table = Table("system", *measures, title=title, title_justify="left", caption_justify="left")
        rows = self.scores()
        best = max(rows, key=lambda system: rows[system][COMPARED].value)
        for system, row in rows.items():
            table.add_row(system, *(_short(row[name]) for name in measures))
        above = "; ".join(f"{other} {_short(rows[best][_above(other)])}" for other in rows if other != best)
        table.caption = f"{COMPARED} of {best} above that of {above}"
        return table


def labels(checkpoints: Sequence[str]) -> dict[str, str]:
    """What each checkpoint is called in the table: its last name, or all of it where two have the same."""
    names = {checkpoint: Path(checkpoint).name for checkpoint in checkpoints}
    times = Counter(names.values())
    return {checkpoint: name if times[name] == 1 else checkpoint for checkpoint, name in names.items()}


def _above(other: str) -> str:
    return f"{COMPARED} above {other}"


def _short(score: Score) -> str:
    return f"{100 * score.value:.1f} [{100 * score.low:.1f}, {100 * score.high:.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=Path, nargs="+", required=True, help="questions with context paragraphs")
    parser.add_argument("--checkpoint", nargs="+", default=["minilm"], help="ColBERT checkpoints to compare")
    parser.add_argument("--extra", type=Path, help="more paragraphs: title and text")
    parser.add_argument("--keep", type=Path, help="keep the indexes in this folder, and use those that are there")
    parser.add_argument("--limit", type=int, help="only the first so many questions of each file")
    parser.add_argument("--out", type=Path, help="write the results there after each system")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        keep = args.keep or Path(temporary)
        benches = [Bench(questions, args.extra, keep, args.limit) for questions in args.questions]
        asked = [question.question for bench in benches for question in bench.questions]
        for checkpoint in args.checkpoint:
            known = find_checkpoint(checkpoint).seen_queries()
            if seen := [question for question in asked if print_of(question) in known]:
                parser.error(f"{checkpoint} was trained on {len(seen)} of these questions, such as {seen[0]!r}")

        def done() -> None:
            if args.out:
                write_json(args.out, [bench.as_dict() for bench in benches])

        for bench in benches:
            bench.search("BM25", "bm25")
            done()
        for bench in benches:
            bench.search("dense minilm", "dense")
            done()
        for checkpoint, label in labels(args.checkpoint).items():
            for bench in benches:
                bench.search(f"ColBERT {label}", "colbert", checkpoint)
                bench.fuse(f"hybrid {label}", f"ColBERT {label}", "BM25")
                done()
    if args.json:
        json.dump([bench.as_dict() for bench in benches], sys.stdout, indent=2)
        print()
        return
    for bench in benches:
        Console(width=120).print(bench.table())


if __name__ == "__main__":
    main()
