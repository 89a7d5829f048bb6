"""What the closed world can say: kinds of entity, their relations, and the sentences and questions about them."""

import random
from typing import NamedTuple


class Relation(NamedTuple):
    """A relation of one kind of entity.

    Attributes:
        name: What the fact is called, unique within its kind.
        target: The kind of the object: a kind of entity, or a kind of plain value.
        statements: Sentences that state the fact, with `{s}` for the subject and `{o}` for the object.
        questions: Questions for the object; the first is the one that decompositions use.
        noun: A phrase that stands for the object, such as "the mayor of {s}"; empty where the object leads no further.
        comparison: How two subjects are compared by this fact, with `{a}` and `{b}`; empty where they are not.
    """

    name: str
    target: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    noun: str = ""
    comparison: str = ""


RELATIONS: dict[str, tuple[Relation, ...]] = {
    "person": (
        Relation(
            "birthplace",
            "town",
            ("{s} was born in {o}.", "The birthplace of {s} is {o}."),
            ("In which town was {s} born?", "What is the birthplace of {s}?"),
            noun="the birthplace of {s}",
            comparison="Were {a} and {b} born in the same town?",
        ),
        Relation(
            "birth year",
            "year",
            ("{s} was born in the year {o}.", "The birth year of {s} is {o}."),
            ("In which year was {s} born?", "What is the birth year of {s}?"),
            comparison="Who was born earlier, {a} or {b}?",
        ),
        Relation(
            "profession",
            "profession",
            ("{s} works as a {o}.", "The profession of {s} is {o}."),
            ("What is the profession of {s}?", "What does {s} work as?"),
            comparison="Do {a} and {b} have the same profession?",
        ),
        Relation(
            "spouse",
            "person",
            ("{s} is married to {o}.", "The spouse of {s} is {o}."),
            ("Who is the spouse of {s}?", "To whom is {s} married?"),
            noun="the spouse of {s}",
        ),
        Relation(
            "employer",
            "company",
            ("{s} is employed by {o}.", "The employer of {s} is {o}."),
            ("Who is the employer of {s}?", "Which company employs {s}?"),
            noun="the employer of {s}",
        ),
    ),
    "town": (
        Relation(
            "river",
            "river",
            ("{s} lies on the {o}.", "The river that flows through {s} is the {o}."),
            ("Which river flows through {s}?", "On which river does {s} lie?"),
            noun="the river that flows through {s}",
        ),
        Relation(
            "mayor",
            "person",
            ("The mayor of {s} is {o}.", "{s} is governed by mayor {o}."),
            ("Who is the mayor of {s}?", "Who governs {s}?"),
            noun="the mayor of {s}",
        ),
        Relation(
            "founding year",
            "year",
            ("{s} was founded in {o}.", "The founding year of {s} is {o}."),
            ("In which year was {s} founded?", "When was {s} founded?"),
            comparison="Which town was founded earlier, {a} or {b}?",
        ),
        Relation(
            "country",
            "country",
            ("{s} is a town in {o}.", "{s} belongs to the country of {o}."),
            ("In which country is {s}?", "To which country does {s} belong?"),
            comparison="Are {a} and {b} in the same country?",
        ),
    ),
    "river": (
        Relation(
            "mouth",
            "sea",
            ("The {s} flows into the {o}.", "The mouth of the {s} is at the {o}."),
            ("Into which sea does the {s} flow?", "Where is the mouth of the {s}?"),
            comparison="Do the {a} and the {b} flow into the same sea?",
        ),
        Relation(
            "length",
            "number",
            ("The {s} is {o} miles long.", "The length of the {s} is {o} miles."),
            ("How many miles long is the {s}?", "What is the length of the {s} in miles?"),
        ),
    ),
    "film": (
        Relation(
            "director",
            "person",
            ("{s} was directed by {o}.", "The director of {s} is {o}."),
            ("Who directed {s}?", "Who is the director of {s}?"),
            noun="the director of {s}",
        ),
        Relation(
            "star",
            "person",
            ("{s} stars {o}.", "The star of {s} is {o}."),
            ("Who is the star of {s}?", "Who stars in {s}?"),
            noun="the star of {s}",
        ),
        Relation(
            "release year",
            "year",
            ("{s} was released in {o}.", "The release year of {s} is {o}."),
            ("In which year was {s} released?", "When was {s} released?"),
            comparison="Which film was released earlier, {a} or {b}?",
        ),
        Relation(
            "genre",
            "genre",
            ("{s} is a {o} film.", "The genre of {s} is {o}."),
            ("What is the genre of {s}?", "To which genre does {s} belong?"),
            comparison="Do {a} and {b} belong to the same genre?",
        ),
    ),
    "company": (
        Relation(
            "founder",
            "person",
            ("{s} was founded by {o}.", "The founder of {s} is {o}."),
            ("Who founded {s}?", "Who is the founder of {s}?"),
            noun="the founder of {s}",
        ),
        Relation(
            "seat",
            "town",
            ("{s} is based in {o}.", "The headquarters of {s} is in {o}."),
            ("In which town is {s} based?", "Where is the headquarters of {s}?"),
            noun="the town where {s} is based",
        ),
        Relation(
            "product",
            "product",
            ("{s} makes {o}.", "The main product of {s} is {o}."),
            ("What does {s} make?", "What is the main product of {s}?"),
            comparison="Do {a} and {b} make the same product?",
        ),
        Relation(
            "year of establishment",
            "year",
            ("{s} was established in {o}.", "The year of establishment of {s} is {o}."),
            ("In which year was {s} established?", "When was {s} established?"),
            comparison="Which company was established earlier, {a} or {b}?",
        ),
    ),
}

VALUES: dict[str, tuple[str, ...]] = {
    "profession": tuple(
        "actor baker carpenter chemist composer engineer farmer historian judge lawyer painter pilot poet sailor "
        "singer surgeon teacher weaver".split()
    ),
    "genre": tuple("comedy drama thriller western musical documentary romance horror".split()),
    "product": tuple("bicycles clocks cameras engines furniture glass pianos radios shoes tractors watches".split()),
}

_ENDINGS = {
    "town": ("", "", "", "ton", "ford"),
    "river": (" River",),
    "film": (" Promise", " Night", " Garden", " Letter", " Voyage", " Shadow", " Winter", " Road"),
    "company": (" Works", " Motors", " Company", " Group", " Brothers"),
}

# Every syllable opens with a consonant and ends in a vowel or one of n, r, l, s: a run of them can be cut in only one
# way, so two names made of different syllables are never spelt alike.
SYLLABLES: tuple[str, ...] = tuple(
    random.Random(20240).sample(
        [c + v + e for c in "bdfghklmnprstvz" for v in "aeiou" for e in ("", "n", "r", "l", "s")], 150
    )
)


class Names:
    """The names of one world: the n-th name of a kind, found directly from n, and never given twice.

    Args:
        seed: The world's seed; another seed gives other names.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._tables: dict[str, list[int]] = {}

    def name(self, kind: str, n: int) -> str:
        """The n-th name of a kind of entity, n from 0."""
        stem = "".join(SYLLABLES[d] for d in self._digits(kind, n)).capitalize()
        chance = random.Random(f"{self._seed}/name/{kind}/{n}")
        if kind == "person":
            first = "".join(chance.choice(SYLLABLES) for _ in range(chance.randint(1, 2))).capitalize()
            return f"{first} {stem}"
        return ("The " if kind == "film" else "") + stem + chance.choice(_ENDINGS.get(kind, ("",)))

    def _digits(self, kind: str, n: int) -> list[int]:
        """The syllables of the n-th name, scrambled by a keyed bijection so that neighbours look unrelated."""
        base, length = len(SYLLABLES), 2
        while n >= base**length:
            n -= base**length
            length += 1
        digits = [n // base**i % base for i in range(length)]
        if kind not in self._tables:
            draw = random.Random(f"{self._seed}/names/{kind}")
            self._tables[kind] = [draw.randrange(base) for _ in range(base)]
        table = self._tables[kind]
        for turn in range(4):
            for i in range(length):
                # Adding a function of ANOTHER digit can be undone, so each step, and the whole, is a bijection.
                digits[i] = (digits[i] + table[(digits[i - 1] + 7 * turn) % base]) % base
        return digits
