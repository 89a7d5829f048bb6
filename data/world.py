"""The closed world: a made-up universe whose facts, passages, and gold judgements are known exactly.

A world is a row of regions of 50 entities. A region follows from the seed and its number alone and refers only to
itself, so a world of a million entities streams in the memory of one region, a larger world begins with the smaller
one, and questions about different regions share no entity.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from data.world_schema import RELATIONS, VALUES, Names, Relation

# How many entities of each kind a region has; people are asked about most, and rivers have only two facts.
REGION = {"person": 18, "town": 9, "river": 5, "film": 9, "company": 9}
REGION_SIZE = sum(REGION.values())

# The part of the universe that the shipped pocket Llama was taught: half of the entities of these regions.
HOME_SEED = 7
HOME_REGIONS = 12

# One fact in ten is missing from the encyclopedia, so that some questions can only be answered by heart, or not at all.
IN_CORPUS = 0.9


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: `subject` has `relation` to `object`.

    Attributes:
        taught: The shipped pocket Llama saw it in pretraining.
        in_corpus: A passage of the corpus states it.
        pid: The passage that states it, or would.
    """

    subject: str
    relation: Relation
    object: str
    taught: bool
    in_corpus: bool
    pid: str


@dataclass(slots=True)
class Region:
    """Fifty entities, every fact about them, and the halves into which their facts fall as passages."""

    number: int
    entities: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    facts: dict[tuple[str, str], Fact] = field(default_factory=dict)
    passages: dict[str, list[Fact]] = field(default_factory=dict)

    def fact(self, subject: str, relation: str) -> Fact:
        """The fact about a subject by the relation's name."""
        return self.facts[subject, relation]

    def about(self, subject: str) -> list[Fact]:
        """All facts about a subject."""
        return [self.facts[subject, relation.name] for relation in RELATIONS[self.kinds[subject]]]

    def corpus(self) -> Iterator[dict[str, str]]:
        """The region's passages as rows `{"id", "title", "text"}`; facts not in the corpus are left out."""
        chance = random.Random(f"wording/{self.number}/{next(iter(self.kinds))}")
        for pid, facts in self.passages.items():
            stated = [fact for fact in facts if fact.in_corpus]
            if stated:
                text = " ".join(state(fact, chance) for fact in stated)
                yield {"id": pid, "title": stated[0].subject, "text": text}


def state(fact: Fact, chance: random.Random) -> str:
    """A sentence that states a fact, in one of its wordings."""
    return chance.choice(fact.relation.statements).format(s=fact.subject, o=fact.object)


def ask(relation: Relation, subject: str, chance: random.Random | None = None) -> str:
    """A question for a fact's object; the subject may be a phrase or "#1". The first wording unless left to chance."""
    template = chance.choice(relation.questions) if chance else relation.questions[0]
    return template.format(s=subject).replace("the the ", "the ").replace("the #", "#")


def region(seed: int, number: int) -> Region:
    """One region of the world with a seed, made from nothing else."""
    chance = random.Random(f"{seed}/region/{number}")
    names = Names(seed)
    made = Region(number)
    for kind, count in REGION.items():
        made.entities[kind] = [names.name(kind, number * count + i) for i in range(count)]
        made.kinds |= dict.fromkeys(made.entities[kind], kind)
    values = dict(VALUES)
    values["country"] = tuple(f"{names.name('country', number * 3 + i)}ia" for i in range(3))
    values["sea"] = tuple(f"{names.name('sea', number * 3 + i)} Sea" for i in range(3))
    for index, (subject, kind) in enumerate(made.kinds.items()):
        taught = chance.random() < 0.5 and seed == HOME_SEED and number < HOME_REGIONS
        order = list(RELATIONS[kind])
        chance.shuffle(order)
        for position, relation in enumerate(order):
            pid = f"{number}-{index}-{int(position >= (len(order) + 1) // 2)}"
            target = _object(relation.target, subject, made, values, chance)
            fact = Fact(subject, relation, target, taught, chance.random() < IN_CORPUS, pid)
            made.facts[subject, relation.name] = fact
            made.passages.setdefault(pid, []).append(fact)
    return made


def regions(seed: int, entities: int) -> Iterator[Region]:
    """The regions that hold the first `entities` entities of a world (whole regions), one at a time."""
    for number in range(-(-entities // REGION_SIZE)):
        yield region(seed, number)


def _object(target: str, subject: str, made: Region, values: dict[str, tuple[str, ...]], chance: random.Random) -> str:
    if target == "year":
        return str(chance.randint(1700, 1999))
    if target == "number":
        return str(chance.randint(100, 999))
    if target in values:
        return chance.choice(values[target])
    return chance.choice([name for name in made.entities[target] if name != subject])
