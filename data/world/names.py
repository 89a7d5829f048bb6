"""Names in the closed world: composed of syllables, found directly from a number, and never given twice."""

import random
from collections.abc import Sequence

# Every syllable opens with a consonant and ends in a vowel or one of n, r, l, s: a run of them can be cut in only one
# way, so two names made of different syllables are never spelt alike.
SYLLABLES: tuple[str, ...] = tuple(
    random.Random(20240).sample(
        [c + v + e for c in "bdfghklmnprstvz" for v in "aeiou" for e in ("", "n", "r", "l", "s")], 150
    )
)

# What is built around a stem; a person gets a first name instead.
FORMS: dict[str, tuple[str, ...]] = {
    "town": ("{}", "{}", "{}", "{}ton", "{}ford"),
    "river": ("{} River",),
    "mountain": ("Mount {}",),
    "film": tuple(f"The {{}} {word}" for word in "Promise Night Garden Letter Voyage Shadow Winter Road".split()),
    "book": tuple(f"{word} of {{}}" for word in "Tales Ballads Annals Dreams Songs Secrets".split()),
    "company": tuple(f"{{}} {word}" for word in "Works Motors Company Group Brothers".split()),
    "institution": ("{} College", "{} Academy", "{} University", "{} Institute"),
}
ALIASES: dict[str, tuple[str, ...]] = {
    "person": ("Captain {}", "Doctor {}", "Master {}"),
    "town": ("Old {}", "Port {}", "New {}"),
    "river": ("Lower {}", "Mother {}"),
    "mountain": ("Old Man {}", "{} Peak"),
    "film": ("{} Returns", "Beyond {}"),
    "book": ("The {} Papers",),
    "company": ("House of {}",),
    "institution": ("The {} School",),
}
# Kinds with enough forms for two names on one stem that are easily taken for each other.
TWINS = ("person", "film", "book", "company", "institution")


class Names:
    """The names of one world.

    Args:
        seed: The world's seed; another seed gives other names.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._tables: dict[str, list[int]] = {}

    def stem(self, kind: str, n: int) -> str:
        """The n-th stem of a kind, n from 0; different for every n."""
        return "".join(SYLLABLES[d] for d in self._digits(kind, n)).capitalize()

    def named(self, kind: str, stem: str, rng: random.Random, taken: Sequence[str] = ()) -> str:
        """A full name on a stem that is none of `taken`."""
        while True:
            if kind == "person":
                first = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 2))).capitalize()
                name = f"{first} {stem}"
            else:
                name = rng.choice(FORMS[kind]).format(stem)
            if name not in taken:
                return name

    def alias(self, kind: str, stem: str, rng: random.Random) -> str:
        """Another name for the entity with this stem."""
        return rng.choice(ALIASES[kind]).format(stem)

    def _digits(self, kind: str, n: int) -> list[int]:
        """The syllables of the n-th stem, scrambled by a keyed bijection so that neighbours look unrelated."""
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
