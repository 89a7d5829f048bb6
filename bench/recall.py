"""Recall of the gold paragraphs of real questions: ColBERT and BM25 over the paragraphs of all questions together.

    python -m bench.recall --hotpot dev.jsonl [--extra corpus.json] [--checkpoint minilm] [--keep FOLDER] [--json]

The corpus is every context paragraph of the HotpotQA file, and, of the extra file (a JSON list or JSON Lines of title
and text), every paragraph with a title that those do not have. A hit is a passage with the title of a gold paragraph.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from data.files import read_json, read_jsonl
from data.questions import hotpot_paragraphs, load_questions
from evaluation.intervals import bootstrap
from evaluation.metrics import recall_at_k
from retrieval.index import Engine, build_index, open_index
from retrieval.manifest import MANIFEST
from retrieval.passage import Passage

ENGINES: tuple[Engine, ...] = ("colbert", "bm25")


def corpus(hotpot: Path, extra: Path | None) -> Iterator[Passage]:
    """The passages: whole paragraphs, as HotpotQA has them."""
    titles = set()
    for row in hotpot_paragraphs(hotpot):
        titles.add(row["title"])
        yield Passage(row["id"], row["text"], row["title"])
    rows = [] if extra is None else read_json(extra) if extra.suffix == ".json" else read_jsonl(extra)
    for number, row in enumerate(rows):
        if row["title"] not in titles:
            yield Passage(f"extra-{number}", row["text"], row["title"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotpot", type=Path, required=True, help="questions with context paragraphs")
    parser.add_argument("--extra", type=Path, help="more paragraphs: title and text")
    parser.add_argument("--checkpoint", default="minilm")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="keep the indexes in this folder, and use those that are there")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    questions = [question for question in load_questions(args.hotpot) if question.gold_titles]
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        for engine in ENGINES:
            out = (args.keep or Path(temporary)) / engine
            start = time.perf_counter()
            if (out / MANIFEST).is_file():
                retriever = open_index(out)
            else:
                retriever = build_index(corpus(args.hotpot, args.extra), out, engine, checkpoint=args.checkpoint)
            built = time.perf_counter() - start
            start = time.perf_counter()
            found = retriever.search_many([question.question for question in questions], args.k)
            searched = time.perf_counter() - start
            ranked = [[passage.title for passage in passages] for passages in found]
            recalls = [
                recall_at_k(titles, question.gold_titles, args.k)
                for titles, question in zip(ranked, questions, strict=True)
            ]
            results.append(
                {
                    "retriever": engine,
                    "passages": len(retriever.passages),
                    "recall": bootstrap(recalls),
                    "all_gold": bootstrap([float(recall == 1) for recall in recalls]),
                    "build_s": built,
                    "search_ms": 1000 * searched / len(questions),
                }
            )
    if args.json:
        rows = [{**row, "recall": row["recall"].as_dict(), "all_gold": row["all_gold"].as_dict()} for row in results]
        json.dump({"k": args.k, "questions": str(args.hotpot.name), "results": rows}, sys.stdout, indent=2)
        print()
        return
    table = Table(title=f"{args.hotpot.name}: gold paragraphs among the first {args.k}, % with 95% interval")
    for column in ("retriever", "passages", f"recall@{args.k}", "all gold", "index made, s", "ms a question"):
        table.add_column(column)
    for row in results:
        times = (f"{row['build_s']:.0f}", f"{row['search_ms']:.1f}")
        table.add_row(row["retriever"], str(row["passages"]), str(row["recall"]), str(row["all_gold"]), *times)
    Console().print(table)


if __name__ == "__main__":
    main()
