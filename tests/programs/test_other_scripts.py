"""Questions, answers and passages in languages that put no spaces between words, or write them in their own way."""

import pytest

from raisf.programs.questions import fill, references


@pytest.mark.parametrize("question", ["哪种花是#1的市花", "いつ#1で生まれた", "ใครเขียน#1", "Where was (#1) born?"])
def test_a_reference_stands_behind_a_letter_where_no_spaces_part_words(question: str) -> None:
    """The next hop asked for "#1" itself."""
    assert references(question, 2) == [1] and "Ada" in fill(question, {1: "Ada"})


@pytest.mark.parametrize("question", ["Who fixed issue#1?", "Was heißt C#1?", "Wo ist Süd#1?", "Who sang #1000?"])
def test_what_belongs_to_a_word_is_no_reference(question: str) -> None:
    assert references(question, 2) == []
