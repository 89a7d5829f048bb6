"""If these failed, a good decomposition in other words would count as wrong, or a wrong one as right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.evaluation.decomposition import aligned_f1, same_decomposition

GOLD = ["Who wrote Emma?", "Where was #1 born?"]
SAME = {
    "itself": GOLD,
    "case, blanks and punctuation": ["who wrote  emma", "where was #1 born ?"],
    "articles and auxiliaries": ["Who has written Emma?".replace("has written", "wrote"), "Where had #1 been born?"],
}
DIFFERENT = {
    "nothing": [],
    "one too few": GOLD[:1],
    "one too many": [*GOLD, "When?"],
    "another question word": ["Who wrote Emma?", "When was #1 born?"],
    "another name": ["Who wrote Persuasion?", "Where was #1 born?"],
    "another reference": ["Who wrote Emma?", "Where was #2 born?"],
    "no reference": ["Who wrote Emma?", "Where was he born?"],
    "by and from": ["Who wrote by Emma?", "Where was #1 born?"],
}


@pytest.mark.parametrize("listed", SAME.values(), ids=SAME.keys())
def test_other_wordings_are_the_same(listed: list[str]) -> None:
    assert same_decomposition(listed, GOLD) == same_decomposition(GOLD, listed) == 1


@pytest.mark.parametrize("listed", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_other_questions_are_not(listed: list[str]) -> None:
    assert same_decomposition(listed, GOLD) == same_decomposition(GOLD, listed) == 0


def test_a_possessive_is_the_same_as_of() -> None:
    assert same_decomposition(["Who is Belrin's mayor?"], ["Who is the mayor of Belrin?"])


def test_independent_sub_questions_may_change_places_and_references_follow() -> None:
    gold = ["When did A die?", "When did B die?", "Which of #1 and #2 is earlier?"]
    swapped = ["When did B die?", "When did A die?", "Which is earlier, #2 or #1?".replace("or", "and")]
    assert same_decomposition(swapped, gold)
    chain, turned = ["Who wrote X?", "Who taught #1?"], ["Who taught #2?", "Who wrote X?"]
    assert not same_decomposition(turned, chain), "a reference to a later question cannot be filled in"


def test_token_f1_of_aligned_sub_questions_by_hand() -> None:
    assert aligned_f1(GOLD, GOLD) == 1
    assert aligned_f1(GOLD[::-1], GOLD) == 1, "the most similar are paired, wherever they stand"
    assert aligned_f1(GOLD[:1], GOLD) == 0.5
    assert aligned_f1([*GOLD, "Why?", "How?"], GOLD) == 0.5
    assert aligned_f1(["Who wrote Persuasion?"], ["Who wrote Emma?"]) == pytest.approx(2 / 3)
    assert aligned_f1([], GOLD) == 0 and aligned_f1([], []) == 1


questions = st.lists(st.text("ab #12?", max_size=8), max_size=5)


@given(questions, questions)
def test_both_measures_are_symmetric_in_range_and_full_for_the_same_list(ours: list[str], theirs: list[str]) -> None:
    assert same_decomposition(ours, ours) == 1 and aligned_f1(ours, ours) == pytest.approx(1)
    assert same_decomposition(ours, theirs) == same_decomposition(theirs, ours)
    assert 0 <= aligned_f1(ours, theirs) <= 1
