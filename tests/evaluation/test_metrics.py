"""If these failed, every number we report would differ from the field's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.data.schemas import SCORINGS
from raisf.evaluation.metrics import (
    NORMALISERS,
    accuracy,
    exact_match,
    normalise,
    normalise_trivia,
    precision_at_k,
    recall_at_k,
    token_f1,
)

texts = st.text(max_size=40)
answers = st.lists(texts, min_size=1, max_size=4)
ids = st.lists(st.sampled_from("abcdefgh"), max_size=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Eiffel-Tower!", "eiffeltower"),
        ("  an  apple\ta day ", "apple day"),
        ("Theory", "theory"),
        ("U.S.", "us"),
        ("São Paulo", "são paulo"),
        ("the", ""),
    ],
)
def test_normalise_as_squad_does(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Eiffel-Tower!", "eiffel tower"),
        ("Jay_Z", "jay z"),
        ("U.S.", "u s"),
        ("\u2018Ember\u2019 by O\u00b4Dell", "ember by o dell"),
        ("Don't a-go", "don t go"),  # an article that punctuation sets free goes too
        ("  an  apple\ta day ", "apple day"),
    ],
)
def test_normalise_as_triviaqa_does(text: str, expected: str) -> None:
    assert normalise_trivia(text) == expected


@pytest.mark.parametrize("scoring", NORMALISERS)
def test_letters_with_accents_are_the_same_however_they_are_composed(scoring: str) -> None:
    for prediction, answer in (("Zu\u0308rich", "Z\u00fcrich"), ("Z\u00fcrich", "Zu\u0308rich")):
        assert exact_match(prediction, [answer], scoring) == token_f1(prediction, [answer], scoring) == 1.0
    assert exact_match("Zurich", ["Z\u00fcrich"], scoring) == 0.0


def test_an_answer_is_compared_by_the_rule_of_its_data_set() -> None:
    assert set(NORMALISERS) == set(SCORINGS)
    for measure in (exact_match, token_f1, accuracy):
        assert measure("Jay-Z", ["Jay Z"]) == 0.0
        assert measure("Jay-Z", ["Jay Z"], "triviaqa") == 1.0
        assert measure("Jayz", ["Jay-Z"]) == 1.0
        assert measure("Jayz", ["Jay-Z"], "triviaqa") == 0.0


def test_yes_and_no_are_words_like_others_to_triviaqa() -> None:
    assert token_f1("no man's land", ["no"]) == 0.0
    assert token_f1("no man's land", ["no"], "triviaqa") == pytest.approx(0.4)  # "no man s land"


def test_exact_match_takes_any_alias() -> None:
    assert exact_match("the Big Apple.", ["New York", "Big Apple"]) == 1.0
    assert exact_match("Big Apples", ["New York", "Big Apple"]) == 0.0
    assert exact_match("anything", []) == 0.0


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("Barack Hussein Obama", ["Barack Obama"], 0.8),
        ("Paris, France", ["Lyon", "Paris"], 2 / 3),
        ("yes it is", ["yes"], 0.0),
        ("yes", ["yes it is"], 0.0),
        ("no", ["yes"], 0.0),
        ("yes", ["yes"], 1.0),
        ("x", ["y"], 0.0),
        ("", ["y"], 0.0),
    ],
)
def test_token_f1_with_hotpotqa_special_case(prediction: str, gold: list[str], expected: float) -> None:
    assert token_f1(prediction, gold) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        ("Yes, because he was born there", ["yes"], 1.0),
        ("I think no. Or yes?", ["no"], 1.0),
        ("I think no. Or yes?", ["yes"], 0.0),
        ("nobody knows", ["no"], 0.0),
        ("", ["no"], 0.0),
        ("Paris", ["Paris"], 1.0),
        ("Paris yes", ["Paris"], 0.0),
        ("no", ["No", "Nope"], 1.0),
    ],
)
def test_accuracy_reads_yes_no_questions_leniently_and_others_exactly(
    prediction: str, gold: list[str], expected: float
) -> None:
    assert accuracy(prediction, gold) == expected


@pytest.mark.parametrize(
    ("prediction", "said"),
    [
        *(("“Yes”", "yes"), ("‘no’", "no"), ("No—the Earth is round", "no"), ("No--it is", "no")),  # noqa: RUF001
        *(("Answer:yes", "yes"), ("Yes.It is", "yes"), ("yes,because", "yes"), ("Yes…", "yes"), ("Yes/no", "yes")),
        *(("_Yes_", "yes"), ("**No**", "no"), ("'no'", "no"), ('{"answer": "no"}', "no"), ("NO.", "no")),
        *(("No-one knows", None), ("a no‑one", None), ("no’s", None), ("noyes", None), ("yes1", None)),  # noqa: RUF001
    ],
)
def test_a_plain_yes_or_no_is_read_whatever_punctuation_it_touches(prediction: str, said: str | None) -> None:
    assert [accuracy(prediction, [gold]) for gold in ("yes", "no")] == [float(said == gold) for gold in ("yes", "no")]


@given(texts)
def test_normalise_settles_after_one_step(text: str) -> None:
    once = normalise(text)
    # An article can appear only once punctuation is gone, never after: the second time changes nothing.
    assert normalise(once) == once


@given(texts, answers)
def test_measures_stay_in_range_and_f1_is_never_below_exact_match(prediction: str, gold: list[str]) -> None:
    em, f1 = exact_match(prediction, gold), token_f1(prediction, gold)
    assert 0.0 <= em <= f1 <= 1.0
    assert accuracy(prediction, gold) >= em
    assert exact_match(gold[0], gold) == token_f1(gold[0], gold) == 1.0


@given(texts, answers)
def test_the_order_of_aliases_does_not_matter(prediction: str, gold: list[str]) -> None:
    assert exact_match(prediction, gold) == exact_match(prediction, gold[::-1])
    assert token_f1(prediction, gold) == token_f1(prediction, gold[::-1])


@given(ids, ids.filter(bool), st.integers(1, 10))
def test_recall_grows_with_k_and_precision_counts_places(ranked: list[str], gold: list[str], k: int) -> None:
    recall, precision = recall_at_k(ranked, gold, k), precision_at_k(ranked, gold, k)
    assert 0.0 <= recall <= recall_at_k(ranked, gold, k + 1) <= 1.0
    assert 0.0 <= precision <= 1.0
    assert (recall == 0) == (precision == 0)
    assert precision * k == pytest.approx(sum(item in gold for item in ranked[:k]))


def test_retrieval_by_hand() -> None:
    assert recall_at_k(["a", "x", "b", "c"], ["a", "b", "c"], 3) == pytest.approx(2 / 3)
    assert precision_at_k(["a", "x"], ["a", "b"], 5) == pytest.approx(1 / 5)


def test_retrieval_without_gold_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="no gold"):
        recall_at_k(["a"], [], 1)
    with pytest.raises(ValueError, match="at least 1"):
        precision_at_k(["a"], ["a"], 0)
