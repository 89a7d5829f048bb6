"""Plain text is what most notes are: what heads a part of them must stand beside it, and rules must not fill it."""

from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
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
