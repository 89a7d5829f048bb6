"""If these failed, what an instructed LM says beside a question would be asked, and later steps would name it."""

import pytest

from raisf.lm.lists import numbers, plain, texts
from raisf.programs.questions import holds, spellings
from raisf.programs.steps import next_question
from raisf.programs.trace import Node


@pytest.mark.parametrize(
    "said",
    [
        *("No, the facts suffice.", "The given facts are sufficient.", "The facts found so far suffice."),
        *("The question can be answered now.", "We have enough information.", "All necessary facts are known."),
        *("Stop", "-", "follow_up: none", "Based on the facts, the answer is Paris."),
    ],
)
def test_who_says_in_a_sentence_that_facts_suffice_asks_no_more(said: str) -> None:
    """The sentence was judged, searched for and broken down as if it were a question."""
    assert next_question(said, []) == ""


@pytest.mark.parametrize(
    "said",
    [
        "What facts are known of Velm?",
        "Name the director of Psycho",
        "I Am Legend >> director",
        "Stop whom?",
        "Based on these facts, which city is larger",
        "The facts known about the director of Jaws",
        "This question can be answered by whom",
    ],
)
def test_what_asks_is_asked(said: str) -> None:
    assert next_question(said, [Node(question="Who?")]) == said


def test_a_remark_below_a_numbered_question_is_none_of_the_list() -> None:
    """It became a question, and "#2" named it instead of the second question."""
    asked = ["Who wrote Emma?", "Where was #1 born?", "How many live in #2?"]
    told = "".join(f"{number}. **{text}**\n   - This gives a part\n" for number, text in enumerate(asked, start=1))
    assert texts(told) == asked
    assert texts("1. Who?\n   - Who wrote Emma?\n   - Who wrote Persuasion?") == [
        "Who?",
        "Who wrote Emma?",
        "Who wrote Persuasion?",
    ]
    assert texts("1. Jaws >> director\n   - #1 >> spouse") == ["Jaws >> director", "#1 >> spouse"]
    assert texts("1. A:\n   - Find the director of Jaws\n2. Compare") is not None
    assert texts("#1 Who wrote Emma?\n#2 Where was #1 born?") == asked[:2]


def test_what_only_looks_like_a_mark_is_kept() -> None:
    assert texts('["1. FC Köln"]') == ["1. FC Köln"]
    assert texts("Which came first, 1. Ada or 2. Bob?") == ["Which came first, 1. Ada or 2. Bob?"]
    assert plain("**") == "**"


def test_numbers_may_stand_on_lines_of_their_own() -> None:
    assert numbers("[\n  1,\n  3\n]") == [1, 3] and numbers("[1,\n3]") == [1, 3]
    assert numbers("1,\n3,") is None, "it goes on"


@pytest.mark.parametrize(
    ("answer", "text", "held"),
    [
        *(("50 %", "50% of it", True), ("3km", "It is 3 km long", True), ("3,776 m", "It has 3776m.", True)),
        *(("5 °C", "below 5°C", True), ("10 MB", "of 10MB", True), ("B2B", "a B2B shop", True)),
        *(("5 km", "It is 35km long", False), ("3 km", "at 3 kmh", False), ("5", "It is 5km", True)),
        *(("A4", "a 4 km road", False), ("5 km\u00b2", "5 km 2 villages away", False), ("M1", "I'm 1 of them", False)),
    ],
)
def test_a_unit_may_stand_apart_from_its_number_or_not(answer: str, text: str, held: bool) -> None:
    """Right answers stood "in none of the passages", with the confidence 0."""
    assert holds(text, spellings(answer)) == held
