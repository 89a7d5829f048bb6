"""Plain text is what most notes are: what heads a part of them must stand beside it, and rules must not fill it."""

from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.corpus.splitting import split_text
from raisf.utils.errors import InputError

GUIDE = """\
================================
Sailboat Racing Guide
================================

--------------------------------
J105
--------------------------------

Engine
~~~~~~

* cruise at 2400 RPMs
* only shift below 850 RPMs

Upwind
~~~~~~
Roll tack.

--------------------------------
Signals
--------------------------------

A red flag means that the race is off.
* * * * * * *
A blue one means that it begins.
"""


def read(folder: Path, text: str, name: str = "a.txt") -> list[tuple[str, str]]:
    (folder / name).write_text(text)
    return [(passage.title, passage.text) for passage in read_documents(folder / name)]


def test_headings_are_lines_with_rules_and_rules_are_no_text(tmp_path: Path) -> None:
    """A rule was 80 tokens of the passage, and what it sets apart stood in the middle of other passages."""
    assert read(tmp_path, GUIDE) == [
        ("Sailboat Racing Guide", "J105: Engine: * cruise at 2400 RPMs * only shift below 850 RPMs"),
        ("Sailboat Racing Guide", "J105: Upwind: Roll tack."),
        ("Sailboat Racing Guide", "Signals: A red flag means that the race is off. A blue one means that it begins."),
    ]


def test_the_title_is_the_first_line_or_the_files_name_as_before(tmp_path: Path) -> None:
    told = "The Danube\n==========\n\nIt rises in the Black Forest.\n\nMouth\n-----\nIt ends in the Black Sea.\n"
    assert read(tmp_path, told) == [
        ("The Danube", "It rises in the Black Forest."),
        ("The Danube", "Mouth: It ends in the Black Sea."),
    ]
    several = "What I saw in May.\n\nFirst\n-----\nOne.\n\nSecond\n------\nTwo.\n"
    assert read(tmp_path, several, "sailing_log.txt")[-1] == ("Sailing Log", "Second: Two.")


def test_what_only_has_a_rule_near_it_is_no_heading(tmp_path: Path) -> None:
    table = "We sell this\nto everybody:\n\nCoffee   3.00\nTea      2.50\n-----------\nTwo in all 5.50\n"
    (found,) = read(tmp_path, table, "prices.txt")
    assert found == ("Prices", "We sell this to everybody: Coffee 3.00 Tea 2.50 Two in all 5.50")
    for text in ("", "-----\n", "-----\n-----\n-----\n", "=====\n"):
        (tmp_path / "rules.txt").write_text(text)
        with pytest.raises(InputError, match="no passage with any text"):
            list(read_documents(tmp_path / "rules.txt"))


TALK = [
    "MR. OAK: What does it cost to keep a boat in the harbour all year? {}",
    "DR. ELM: Ten crowns a month\nand {} more for the key. Ask Mr. Ash for it.",
]
CHAT = ["[10:{:02}] <ann> The wharf is closed", "12/03/24, 10:{:02} PM - Bob: I have seen it, too. All of it"]


@pytest.mark.parametrize("turns", [TALK, CHAT])
def test_a_passage_of_a_talk_begins_with_who_speaks(turns: list[str], tmp_path: Path) -> None:
    """One passage of a hearing ended in `MR.`, and the next one said what nobody said."""
    text = "\n".join(turn.format(number) for number in range(20) for turn in turns)
    found = [text for _, text in read(tmp_path, text, "hearing.txt")]
    begins = tuple(turn.split(" ")[0].partition(":")[0] for turn in turns)
    assert len(found) > 3 and all(text.startswith(begins) for text in found)


def test_no_passage_ends_behind_a_title_an_initial_or_what_leads_to_a_number() -> None:
    for shortened in ("Mr. Oak", "Prof. Elm", "J. Ash", "No. 5", "Fig. 2", "e.g. tar", "in the U.S. too"):
        pieces = split_text(f"Built by {shortened} and by many others who came from the towns of the coast. " * 40)
        assert len(pieces) > 3 and all(piece.endswith("coast.") for piece in pieces)


def test_front_matter_between_rules_tells_the_title_and_is_no_text(tmp_path: Path) -> None:
    """Of a site's licences each was called by its file's name, and its first passage was what the site says of it."""
    head = "---\ntitle: MIT License\nusing:\n  Babel: https://x.example\n---\n\n"
    assert read(tmp_path, f"{head}Permission is granted.\n", "mit.txt") == [("MIT License", "Permission is granted.")]
    assert read(tmp_path, head, "mit.txt") == [("MIT License", "title: MIT License using: Babel: https://x.example")]
    entries = "Title: Minutes\nDate: 5 May\n\nAda spoke."
    assert read(tmp_path, entries, "m.txt")[0][1].endswith("Date: 5 May Ada spoke.")


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("The Project Gutenberg EBook of Dune, whole\nby Frank Herbert\n\nTitle: Dune\n\nAuthor: F. H.\n\nI.", "Dune"),
        ("Title: Dune\nAuthor: F. H.\n\nIt is dry there.", "Dune"),
        ("Title: Dune\n\nIt is dry there.", "Dune"),
        ("Name: Ada Oak\nTitle: Director\n\nShe sails.", "Books"),
        ("Our books:\n\nTitle: Dune\nPages: 412\n\nTitle: Emma\nPages: 474", "Books"),
    ],
)
def test_a_text_may_tell_its_title(text: str, title: str, tmp_path: Path) -> None:
    """Books of Project Gutenberg had none, and others were called `Title: Dune`."""
    assert {told for told, _ in read(tmp_path, text, "books.txt")} == {title}
