"""Questions about the closed world whose steps are not in their words."""

from typing import NamedTuple


class Implicit(NamedTuple):
    """A question of two hops that does not name what lies between, as in 2WikiMultihopQA's inference questions.

    Attributes:
        kind: The subject's kind.
        path: The names of the two relations.
        questions: Wordings, with `{s}`.
        yes_no: Whether two subjects have the same in the end: four facts, none of them named.
    """

    kind: str
    path: tuple[str, str]
    questions: tuple[str, ...]
    yes_no: str


class Before(NamedTuple):
    """A yes/no question that compares years of two kinds of entity: `{a}`'s comes before `{b}`'s."""

    a: tuple[str, str]
    b: tuple[str, str]
    question: str


IMPLICIT: tuple[Implicit, ...] = (
    Implicit(
        "person",
        ("birthplace", "country"),
        ("In which country was {s} born?", "What is the native country of {s}?"),
        "Were {a} and {b} born in the same country?",
    ),
    Implicit(
        "person",
        ("employer", "seat"),
        ("In which town does {s} work?", "What is the place of work of {s}?"),
        "Do {a} and {b} work in the same town?",
    ),
    Implicit(
        "person",
        ("university", "town"),
        ("In which town did {s} study?", "Which town saw {s} as a student?"),
        "Did {a} and {b} study in the same town?",
    ),
    Implicit(
        "town",
        ("river", "mouth"),
        ("Which sea does the water of {s} reach?", "Into which sea does the water of {s} run?"),
        "Does the water of {a} and {b} reach the same sea?",
    ),
    Implicit(
        "company",
        ("seat", "country"),
        ("In which country is {s} based?", "What is the home country of {s}?"),
        "Are {a} and {b} based in the same country?",
    ),
    Implicit(
        "book",
        ("publisher", "seat"),
        ("In which town was {s} published?", "From which town did {s} reach its readers?"),
        "Were {a} and {b} published in the same town?",
    ),
    Implicit(
        "film",
        ("literary source", "author"),
        ("Who wrote the story of {s}?", "Whose story does {s} tell?"),
        "Do {a} and {b} tell stories of the same author?",
    ),
    Implicit(
        "institution",
        ("town", "country"),
        ("In which country can one study at {s}?", "Which country is home to {s}?"),
        "Are {a} and {b} located in the same country?",
    ),
)

BEFORE: tuple[Before, ...] = (
    Before(("person", "birth year"), ("town", "founding year"), "Was {a} born before {b} was founded?"),
    Before(("person", "birth year"), ("film", "release year"), "Was {a} born before {b} was released?"),
    Before(("town", "founding year"), ("company", "year of establishment"), "Is {a} older than {b}?"),
    Before(("institution", "opening year"), ("book", "publication year"), "Did {a} exist when {b} was published?"),
)
