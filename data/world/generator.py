"""The closed world: a made-up universe whose facts, passages, and gold judgements are known exactly.

A world is a row of regions of 50 entities. A region follows from the seed and its number alone and refers only to
itself, so a world of a million entities streams in the memory of one region, a larger world begins with the smaller
one, and questions about different regions share no entity.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from raisf.data.world.names import TWINS, Names
from raisf.data.world.schema import REGIONAL_VALUES, RELATIONS, VALUES, Relation

# How many entities of each kind a region has; people are asked about most.
REGION = {"person": 14, "town": 7, "river": 4, "mountain": 3, "film": 7, "book": 5, "company": 5, "institution": 5}
REGION_SIZE = sum(REGION.values())

# The part of the universe that the shipped pocket Llama was taught: half of the entities of these regions, 1,050.
HOME_SEED = 7
HOME_REGIONS = 42

# One fact in ten is missing from the encyclopedia, so that some questions can only be answered by heart, or not at all.
IN_CORPUS = 0.9
# How often an entity shares its stem with the one before, and how often one with a stem of its own has a second name.
TWIN, ALIAS = 0.2, 0.4


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: `subject` has `relation` to `object`.

    Attributes:
        taught: The shipped pocket Llama saw it in pretraining; true of all facts about an entity or of none.
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
    """Fifty entities, every fact about them, and the halves into which their facts fall as passages.

    Attributes:
        entities: Kind -> names.
        kinds: Name -> kind.
        aliases: Name -> the second name of those that have one.
        facts: (Name, relation's name) -> fact.
        passages: Passage id -> the facts it states, or would.
    """

    number: int
    entities: dict[str, list[str]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    facts: dict[tuple[str, str], Fact] = field(default_factory=dict)
    passages: dict[str, list[Fact]] = field(default_factory=dict)

    def fact(self, subject: str, relation: str) -> Fact:
        """The fact about a subject by the relation's name."""
        return self.facts[subject, relation]

    def about(self, subject: str) -> list[Fact]:
        """All facts about a subject."""
        return [self.facts[subject, relation.name] for relation in RELATIONS[self.kinds[subject]]]

    def texts(self) -> dict[str, list[tuple[Fact, str]]]:
        """The passages of the corpus: id -> its facts and the sentence that states each."""
        rng = random.Random(f"wording/{self.number}/{next(iter(self.kinds))}")
        stated = {pid: [fact for fact in facts if fact.in_corpus] for pid, facts in self.passages.items()}
        return {
            pid: [(fact, told) for fact, (told, _) in zip(facts, self.write(facts, rng), strict=True)]
            for pid, facts in stated.items()
            if facts
        }

    def corpus(self) -> Iterator[dict[str, str]]:
        """The region's passages as rows `{"id", "title", "text"}`; facts not in the corpus are left out."""
        for pid, told in self.texts().items():
            yield {"id": pid, "title": told[0][0].subject, "text": " ".join(sentence for _, sentence in told)}

    def write(self, facts: Sequence[Fact], rng: random.Random) -> list[tuple[str, str]]:
        """The sentences of a passage about one entity, one a fact, in order and in wordings left to chance.

        The first names the subject, and its alias if it has one; later ones may say "it", "he" or "she".

        Returns:
            For each fact, its sentence as it stands in the passage, and as one would quote it alone: by name.
        """
        alias, kind = self.aliases.get(facts[0].subject), self.kinds[facts[0].subject]
        sentences = []
        for place, fact in enumerate(facts):
            templates = fact.relation.statements
            if place == 0:
                template = told = rng.choice(templates[:-1])
                if alias:
                    told = template.replace("{s}", f"{{s}}, also known as {alias},", 1)
            elif rng.random() < 0.4:
                template = rng.choice(templates[:-1])
                told = template.removeprefix("The ").replace("{s}", _pronoun(fact.subject, kind), 1)
            else:
                template = told = rng.choice(templates)
            named = {"s": fact.subject, "o": fact.object}
            sentences.append((told.format(**named), template.format(**named)))
        return sentences


def state(fact: Fact) -> str:
    """The plainest sentence that states a fact."""
    return fact.relation.statements[0].format(s=fact.subject, o=fact.object)


def ask(relation: Relation, subject: str, rng: random.Random | None = None) -> str:
    """A question for a fact's object; the subject may be a phrase or "#1". The first wording unless left to chance."""
    return put(rng.choice(relation.questions) if rng else relation.questions[0], s=subject)


def put(template: str, **subjects: str) -> str:
    """A template with subjects in their places, of which some begin with an article and some are "#1"."""
    return template.format(**subjects).replace("the the ", "the ").replace("the #", "#").replace("the The ", "The ")


def region(seed: int, number: int) -> Region:
    """One region of the world with a seed, made from nothing else."""
    rng = random.Random(f"{seed}/region/{number}")
    names = Names(seed)
    made = Region(number)
    for kind, count in REGION.items():
        made.entities[kind] = _name_all(names, kind, range(number * count, (number + 1) * count), made, rng)
        made.kinds |= dict.fromkeys(made.entities[kind], kind)
    values = dict(VALUES)
    for kind, (form, count) in REGIONAL_VALUES.items():
        values[kind] = tuple(form.format(names.stem(kind, number * count + i)) for i in range(count))
    home = seed == HOME_SEED and number < HOME_REGIONS
    taught = set(rng.sample(list(made.kinds), REGION_SIZE // 2)) if home else set()
    for index, (subject, kind) in enumerate(made.kinds.items()):
        order = list(RELATIONS[kind])
        rng.shuffle(order)
        for position, relation in enumerate(order):
            pid = f"{number}-{index}-{int(position >= (len(order) + 1) // 2)}"
            target = _object(relation.target, subject, made, values, rng)
            fact = Fact(subject, relation, target, subject in taught, rng.random() < IN_CORPUS, pid)
            made.facts[subject, relation.name] = fact
            made.passages.setdefault(pid, []).append(fact)
    return made


def regions(seed: int, entities: int) -> Iterator[Region]:
    """The regions that hold the first `entities` entities of a world (whole regions), one at a time."""
    for number in range(-(-entities // REGION_SIZE)):
        yield region(seed, number)


def _name_all(names: Names, kind: str, numbers: range, made: Region, rng: random.Random) -> list[str]:
    """Names for entities of one kind, some on the stem of the one before; aliases where the stem is nobody else's."""
    stems: list[str] = []
    for n in numbers:
        # Never three on one stem: some kinds have few forms.
        twin = kind in TWINS and stems.count(stems[-1] if stems else "") == 1 and rng.random() < TWIN
        stems.append(stems[-1] if twin else names.stem(kind, n))
    found: list[str] = []
    for stem in stems:
        name = names.named(kind, stem, rng, found)
        found.append(name)
        if stems.count(stem) == 1 and rng.random() < ALIAS:
            made.aliases[name] = names.alias(kind, stem, rng)
    return found


def _object(target: str, subject: str, made: Region, values: dict[str, tuple[str, ...]], rng: random.Random) -> str:
    if target == "year":
        return str(rng.randint(1700, 1999))
    if target == "number":
        return str(rng.randint(1000, 9999))
    if target in values:
        return rng.choice(values[target])
    return rng.choice([name for name in made.entities[target] if name != subject])


def _pronoun(subject: str, kind: str) -> str:
    return "It" if kind != "person" else "She" if sum(map(ord, subject)) % 2 else "He"
