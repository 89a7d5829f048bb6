"""Questions about the closed world, each with its gold answer, passages and decomposition; and worlds as folders."""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from data.errors import InputError
from data.files import atomic_folder, dump_line, write_json
from data.world import HOME_REGIONS, HOME_SEED, REGION_SIZE, Fact, Region, ask, regions
from data.world_schema import RELATIONS

# Of six regions in a row three are for training, one for selection and two for testing: no split shares an entity.
SPLITS = ("train", "train", "train", "dev", "test", "test")
KINDS = ("lookup", "bridge", "chain", "comparison", "yesno")
WEIGHTS = (40, 25, 10, 12, 13)
QUESTIONS = {"train": 600, "dev": 200, "test": 500}


@dataclass(slots=True)
class Question:
    """A question with everything that is true of it.

    Attributes:
        kind: lookup (one fact), bridge (two facts in a row), chain (three or four), comparison or yesno (two subjects).
        hops: How many facts it takes.
        sub_questions: The gold decomposition; "#1" stands for the first sub-answer. Empty for a lookup.
        sub_answers: The sub-questions' answers.
        gold_pids: The passages that state the facts, in the order of the sub-questions.
        gold_titles: Those passages' titles.
        known: Every fact was taught to the shipped pocket Llama.
        in_corpus: Every fact is stated in the corpus.
        answerable: Every fact was taught or is stated.
    """

    question: str
    answer: str
    kind: str
    sub_questions: list[str] = field(default_factory=list)
    sub_answers: list[str] = field(default_factory=list)
    gold_pids: list[str] = field(default_factory=list)
    gold_titles: list[str] = field(default_factory=list)
    hops: int = 1
    known: bool = False
    in_corpus: bool = True
    answerable: bool = True


def fill(sub_questions: list[str], sub_answers: list[str]) -> list[str]:
    """The sub-questions with every "#1" replaced by the answer it stands for."""
    filled = []
    for text in sub_questions:
        for number, answer in enumerate(sub_answers, start=1):
            text = text.replace(f"#{number}", answer)
        filled.append(text)
    return filled


def make_question(region: Region, kind: str, chance: random.Random, fact: Fact | None = None) -> Question:
    """A question of one kind about a region.

    Args:
        region: Where its entities live.
        kind: One of `KINDS`.
        chance: The source of every choice.
        fact: For a lookup, the fact to ask for; any if not given.
    """
    if kind == "lookup":
        fact = fact or chance.choice(list(region.facts.values()))
        return _with_facts(Question(ask(fact.relation, fact.subject, chance), fact.object, kind), [fact])
    if kind in ("bridge", "chain"):
        return _chained(region, kind, 2 if kind == "bridge" else chance.choice((3, 3, 4)), chance)
    return _compared(region, kind, chance)


def _with_facts(question: Question, facts: list[Fact]) -> Question:
    question.gold_pids = [fact.pid for fact in facts]
    question.gold_titles = [fact.subject for fact in facts]
    question.hops = len(facts)
    question.known = all(fact.taught for fact in facts)
    question.in_corpus = all(fact.in_corpus for fact in facts)
    question.answerable = all(fact.taught or fact.in_corpus for fact in facts)
    return question


def _chained(region: Region, kind: str, hops: int, chance: random.Random) -> Question:
    while True:
        subject = chance.choice(list(region.kinds))
        facts: list[Fact] = []
        phrase, question, subs = subject, "", []
        for step in range(hops):
            last = step == hops - 1
            options = [fact for fact in region.about(subject) if last or fact.relation.noun]
            if not options:
                break
            fact = chance.choice(options)
            subs.append(ask(fact.relation, subject if step == 0 else f"#{step}"))
            question = ask(fact.relation, phrase, chance)
            phrase = fact.relation.noun.format(s=phrase)
            facts.append(fact)
            subject = fact.object
        visited = [fact.subject for fact in facts]
        if len(facts) == hops and len(set(visited)) == hops and subject not in visited:
            made = Question(question, subject, kind, subs, [fact.object for fact in facts])
            return _with_facts(made, facts)


def _compared(region: Region, kind: str, chance: random.Random) -> Question:
    """Two subjects by one relation: who is earlier (a year), or whether they are the same (anything else)."""
    options = [
        (subject_kind, relation)
        for subject_kind, relations in RELATIONS.items()
        for relation in relations
        if relation.comparison and (relation.target == "year") == (kind == "comparison")
    ]
    while True:
        subject_kind, relation = chance.choice(options)
        a, b = chance.sample(region.entities[subject_kind], 2)
        one, two = region.fact(a, relation.name), region.fact(b, relation.name)
        if kind == "comparison":
            if one.object == two.object:
                continue
            answer = a if int(one.object) < int(two.object) else b
        else:
            # Half of the answers are yes: without this nearly all would be no.
            answer = "yes" if one.object == two.object else "no"
            if answer == "no" and chance.random() < 0.75:
                continue
        subs = [ask(relation, a), ask(relation, b)]
        made = Question(relation.comparison.format(a=a, b=b), answer, kind, subs, [one.object, two.object])
        return _with_facts(made, [one, two])


def questions(region: Region, count: int, chance: random.Random) -> Iterator[Question]:
    """Up to `count` different questions about a region, kinds mixed by `WEIGHTS`."""
    seen: set[str] = set()
    for _ in range(count * 20):
        made = make_question(region, chance.choices(KINDS, WEIGHTS)[0], chance)
        if made.question not in seen:
            seen.add(made.question)
            yield made
        if len(seen) == count:
            return


def write_world(
    out: Path | str,
    seed: int = HOME_SEED,
    entities: int = REGION_SIZE * HOME_REGIONS,
    counts: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Writes a world as a folder: corpus.jsonl, facts.jsonl, train.jsonl, dev.jsonl, test.jsonl, world.json.

    Args:
        out: The folder; replaced whole when the new world is complete.
        seed: The world. The shipped pocket Llama knows part of the world with the default seed, and of no other.
        entities: How many, rounded up to whole regions of 50; at least 300, so that every split has regions.
        counts: Questions for each split; `QUESTIONS` if not given. A small world may hold fewer.

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
    shares = {split: sum(SPLITS[n % len(SPLITS)] == split for n in range(total)) for split in counts}
    written = dict.fromkeys(("passages", "facts", *counts), 0)
    with atomic_folder(out, "world.json") as folder:
        files = {name: (folder / f"{name}.jsonl").open("w", encoding="utf-8") for name in ("corpus", "facts", *counts)}
        try:
            for made in regions(seed, entities):
                for row in made.corpus():
                    files["corpus"].write(dump_line(row))
                    written["passages"] += 1
                for fact in made.facts.values():
                    files["facts"].write(dump_line(_fact_row(fact)))
                    written["facts"] += 1
                split = SPLITS[made.number % len(SPLITS)]
                done_before = made.number // len(SPLITS) * SPLITS.count(split) + SPLITS[
                    : made.number % len(SPLITS)
                ].count(split)
                share = (
                    counts[split] * (done_before + 1) // shares[split] - counts[split] * done_before // shares[split]
                )
                for question in questions(made, share, random.Random(f"{seed}/questions/{made.number}")):
                    identity = f"w{seed}-{split}-{written[split]}"
                    row = {"id": identity, "answers": [question.answer], **asdict(question)}
                    files[split].write(dump_line(row))
                    written[split] += 1
        finally:
            for file in files.values():
                file.close()
        summary = {"seed": seed, "entities": total * REGION_SIZE, **written}
        write_json(folder / "world.json", summary)
    return summary


def _fact_row(fact: Fact) -> dict[str, Any]:
    return {
        "subject": fact.subject,
        "relation": fact.relation.name,
        "object": fact.object,
        "known": fact.taught,
        "in_corpus": fact.in_corpus,
        "passage": fact.pid,
    }
