"""A closed world as a folder: its corpus, its facts, and questions for training, selection and testing."""

import logging
import random
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raisf.data.world.generator import HOME_REGIONS, HOME_SEED, REGION_SIZE, Fact, Region, regions
from raisf.data.world.questions import ECHOES, Question, questions
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, dump_line, write_json

logger = logging.getLogger(__name__)

# Of six regions in a row three are for training, one for selection and two for testing: no split shares an entity.
SPLITS = ("train", "train", "train", "dev", "test", "test")
WORLD = ("world.json", *(f"{name}.jsonl" for name in ("corpus", "facts", "train", "dev", "test")), "hotpot_*.json")
"""All that lies in a world's folder."""
QUESTIONS = {"train": 600, "dev": 200, "test": 500}
# HotpotQA's distractor setting shows the gold paragraphs among others, ten in all.
HOTPOT_PARAGRAPHS = 10


def write_world(
    out: Path | str,
    seed: int = HOME_SEED,
    entities: int = REGION_SIZE * HOME_REGIONS,
    counts: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Writes a world as a folder: corpus.jsonl, facts.jsonl, the splits, the splits as HotpotQA files, world.json.

    Args:
        out: The folder; replaced whole when the new world is complete.
        seed: The world. The shipped pocket Llama knows part of the world with the default seed, and of no other.
        entities: How many, rounded up to whole regions of 50; at least 300, so that every split has regions.
        counts: Questions for each split; `QUESTIONS` if not given. A small world may hold fewer: a warning says so.

    Returns:
        What world.json holds: the seed and how many entities, passages, facts and questions there are.

    Raises:
        InputError: Too few entities, or a negative count.
    """
    counts = QUESTIONS | (counts or {})
    if entities < REGION_SIZE * len(SPLITS):
        raise InputError(f"a world needs at least {REGION_SIZE * len(SPLITS)} entities to split; found {entities}")
    if min(counts.values()) < 0:
        raise InputError(f"question counts cannot be negative; found {counts}")
    total = -(-entities // REGION_SIZE)
    written = dict.fromkeys(("passages", "facts", *counts), 0)
    hotpot: dict[str, list[dict[str, Any]]] = {split: [] for split in counts}
    with atomic_folder(out, *WORLD) as folder, ExitStack() as stack:
        names = ("corpus", "facts", *counts)
        files = {name: stack.enter_context((folder / f"{name}.jsonl").open("w", encoding="utf-8")) for name in names}
        for made in regions(seed, entities):
            for row in made.corpus():
                files["corpus"].write(dump_line(row))
                written["passages"] += 1
            for fact in made.facts.values():
                files["facts"].write(dump_line(_fact_row(fact)))
                written["facts"] += 1
            split = SPLITS[made.number % len(SPLITS)]
            share = _share(counts[split], split, made.number, total)
            for question in questions(made, share, random.Random(f"{seed}/questions/{made.number}")):
                row = {"id": f"w{seed}-{split}-{written[split]}", **asdict(question), "echoes": ECHOES[question.kind]}
                files[split].write(dump_line(row))
                written[split] += 1
                if question.in_corpus:
                    hotpot[split].append(hotpot_row(row["id"], question, made))
        for split, rows in hotpot.items():
            write_json(folder / f"hotpot_{split}.json", rows)
        summary = {"seed": seed, "entities": total * REGION_SIZE, **written}
        write_json(folder / "world.json", summary)
    for split, count in counts.items():
        if written[split] < count:
            logger.warning(
                "only %d of %d %s questions: %d entities give no more, take a larger world",
                written[split],
                count,
                split,
                summary["entities"],
            )
    return summary


def hotpot_row(identity: str, question: Question, region: Region) -> dict[str, Any]:
    """A question in the schema of HotpotQA's distractor setting (Yang et al. 2018), for other systems to be run on.

    Its paragraphs are whole articles of the question's region, the gold ones among them; the supporting facts are the
    numbers of the sentences, from 0, that state the question's facts.
    """
    articles: dict[str, dict[str, str]] = {}
    for sentences in region.texts().values():
        for fact, sentence in sentences:
            articles.setdefault(fact.subject, {})[fact.relation.name] = sentence
    rng = random.Random(f"hotpot/{identity}")
    gold = list(dict.fromkeys(question.gold_titles))
    others = [title for title in articles if title not in gold]
    shown = gold + rng.sample(others, HOTPOT_PARAGRAPHS - len(gold))
    rng.shuffle(shown)
    stated = dict.fromkeys(zip(question.gold_titles, question.relations, strict=True))
    return {
        "_id": identity,
        "question": question.question,
        "answer": question.answer,
        "type": "comparison" if question.kind in ("comparison", "yesno") else "bridge",
        "level": {1: "easy", 2: "medium"}.get(question.hops, "hard"),
        "supporting_facts": [[title, list(articles[title]).index(relation)] for title, relation in stated],
        "context": [[title, list(articles[title].values())] for title in shown],
    }


def _share(count: int, split: str, number: int, total: int) -> int:
    """How many of a split's questions come from region `number`, one of the split's: equal parts, none lost."""
    before, parts = _regions_of(split, number), _regions_of(split, total)
    return count * (before + 1) // parts - count * before // parts


def _regions_of(split: str, first: int) -> int:
    """How many of the first regions are a split's."""
    rounds, rest = divmod(first, len(SPLITS))
    return rounds * SPLITS.count(split) + SPLITS[:rest].count(split)


def _fact_row(fact: Fact) -> dict[str, Any]:
    return {
        "subject": fact.subject,
        "relation": fact.relation.name,
        "object": fact.object,
        "known": fact.taught,
        "in_corpus": fact.in_corpus,
        "passage": fact.pid,
    }
