"""If these failed, the judges would be shown wrong examples, and nobody would see why they judge badly."""

import random
from collections import Counter
from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raisf.optimize.judges.answer_data import composition_rows, reading_rows
from raisf.optimize.judges.judge_data import (
    FEW_SEARCHES,
    Step,
    decomposition_examples,
    gold_among,
    listwise_examples,
    passage_examples,
    relevance_examples,
    steps,
    steps_asked,
    sufficiency_examples,
)
from raisf.optimize.judges.labels import know_examples
from raisf.optimize.judges.weighed import balanced
from raisf.retrieval.passage import Passage
from raisf.signatures.judges import ListwiseRelevance, PassageRelevance
from raisf.utils.errors import InputError, LMError
from tests.scripted import ScriptedLM
from tests.shelf import Shelf


def example(**fields: Any) -> dspy.Example:
    return dspy.Example(**{"question": "Q?", "answer": "A", **fields}).with_inputs("question")


TWO_HOPS = example(
    question="Where was the author of Emma born?",
    answer="Steventon",
    gold_pids=["emma", "austen"],
    sub_questions=["Who wrote Emma?", "Where was #1 born?"],
    sub_answers=["Jane Austen", "Steventon"],
)
PASSAGES = [
    Passage("emma", "Emma is by Jane Austen", "EMMA"),
    Passage("austen", "Jane Austen was born in Steventon", "AUSTEN"),
    Passage("other", "Steventon is small", "OTHER"),
]
SHELF = Shelf(lambda query: PASSAGES)


def relevant(rows: list[dspy.Example]) -> set[tuple[str, str]]:
    return {(row.question, row.passage.split(" | ")[0]) for row in rows if row.verdict == "relevant"}


def test_a_question_of_two_hops_stands_for_itself_and_its_sub_questions_with_answers_filled_in() -> None:
    whole, first, second = steps(TWO_HOPS)
    assert whole.gold == {"emma", "austen"} and whole.decomposed
    assert (first.question, first.gold) == ("Who wrote Emma?", {"emma"})
    assert (second.question, second.gold) == ("Where was Jane Austen born?", {"austen"})
    assert second.answers == ("Steventon",)


def test_what_else_is_right_of_the_question_is_so_of_the_sub_question_with_the_same_answer() -> None:
    also = TWO_HOPS.copy(answers=["Steventon", "Steventon, Hampshire"])
    assert [step.answers for step in steps(also)[1:]] == [("Jane Austen",), ("Steventon", "Steventon, Hampshire")]
    with dspy.context(lm=ScriptedLM(lambda fields: {"answer": "Steventon, Hampshire"})):
        known = {row.question: row.verdict for row in know_examples([also])}
    assert known["Where was Jane Austen born?"] == "know" != known["Who wrote Emma?"]


def test_a_number_that_names_no_earlier_sub_question_is_text() -> None:
    hit = TWO_HOPS.copy(sub_questions=["Who wrote the #1 novel of 1815, Emma?", "Where was #1 born?"])
    assert [step.question for step in steps(hit)[1:]] == [hit.sub_questions[0], "Where was Jane Austen born?"]
    fact = composition_rows([hit], random.Random(0))[0].facts[0]
    assert fact == "Who wrote the #1 novel of 1815, Emma? = Jane Austen"


def test_a_passage_is_relevant_to_its_own_hop_and_to_no_other() -> None:
    rows = relevance_examples([TWO_HOPS], SHELF, 3)
    assert len(rows) == 9
    assert relevant(rows) == {("Who wrote Emma?", "EMMA"), ("Where was Jane Austen born?", "AUSTEN")}
    assert rows[0].passage == "EMMA | Emma is by Jane Austen", "a judge must see passages as the program shows them"


def test_a_lookup_takes_its_gold_passage() -> None:
    rows = relevance_examples([example(gold_titles=["OTHER"])], SHELF, 3)
    assert relevant(rows) == {("Q?", "OTHER")}


def test_no_more_is_searched_for_than_the_rows_that_are_wanted_take() -> None:
    asked: list[str] = []

    def counted(query: str) -> list[Passage]:
        asked.append(query)
        return PASSAGES

    many = [example(question=f"Which is {n}?", gold_titles=["OTHER"]) for n in range(900)]
    for role, searches in ((PassageRelevance, 300), (ListwiseRelevance, 600)):
        passage_examples(role, many, Shelf(counted), 3, rows=300)
        assert len(asked) == searches
        again = asked.copy()
        asked.clear()
        passage_examples(role, many, Shelf(counted), 3, rows=300)
        assert asked == again, "another draw would give another judge"
        asked.clear()
    passage_examples(PassageRelevance, many, Shelf(counted), 3, rows=2)
    assert len(asked) == FEW_SEARCHES, "of two searches both may be vain"


def test_of_passages_under_one_title_those_with_the_answer_are_gold() -> None:
    parts = Shelf(lambda query: [Passage(p.pid, p.text, title="Austen") for p in PASSAGES])

    def verdicts(answer: str) -> list[str]:
        rows = relevance_examples([example(answer=answer, gold_titles=["Austen"])], parts, 3)
        return [row.verdict for row in rows]

    assert verdicts("Emma") == ["relevant", "irrelevant", "irrelevant"]
    assert verdicts("in her own words") == ["relevant"] * 3, "none holds them: gold says no more than the title"
    listwise = listwise_examples([example(answer="Emma", gold_titles=["Austen"])], parts, 3)
    assert listwise[0].relevant_ids == [1]


def test_both_facts_in_one_passage_make_it_relevant_to_the_whole_question() -> None:
    both = TWO_HOPS.copy(gold_pids=["emma", "emma"]).with_inputs("question")
    assert (TWO_HOPS.question, "EMMA") in relevant(relevance_examples([both], SHELF, 3))


def test_of_two_parts_whose_passages_have_one_title_none_stands_for_the_whole() -> None:
    named: dict[str, Any] = {**TWO_HOPS.toDict(), "gold_pids": [], "gold_titles": ["A"], "sub_titles": ["A", "A"]}
    whole, *parts = steps(example(**named))
    assert not whole.gold and [part.gold for part in parts] == [{"A"}, {"A"}]


def test_an_untitled_passage_is_no_gold_of_a_part_without_a_title() -> None:
    untitled = Step("q", ("x",), frozenset({"A", ""}), False)
    assert gold_among(untitled, [Passage("1", "x", ""), Passage("2", "y", "A")]) == [Passage("2", "y", "A")]


def test_what_does_not_suffice_for_a_lookup_is_one_passage() -> None:
    asked = example(question="Who wrote Emma?", answer="Jane Austen", gold_pids=["emma"])
    rows = sufficiency_examples([asked], SHELF, 3)
    assert [(row.verdict, len(row.passages)) for row in rows] == [("sufficient", 1), ("insufficient", 1)]


def test_a_copy_of_a_gold_passage_under_another_id_is_not_called_irrelevant() -> None:
    copies = Shelf(lambda query: [Passage("copy", "Emma is by Jane Austen", "EMMA"), *PASSAGES])
    asked = example(question="Who wrote Emma?", answer="Jane Austen", gold_pids=["emma"])
    assert [row.verdict for row in relevance_examples([asked], copies, 3)] == ["relevant", "irrelevant"]
    assert listwise_examples([asked], copies, 3)[0].relevant_ids == [1]
    verdicts = {(row.passages[0][:4], row.verdict) for row in sufficiency_examples([asked], copies, 3)}
    assert verdicts == {("EMMA", "sufficient"), ("AUST", "insufficient")}


def test_without_a_decomposition_the_gold_passage_that_holds_the_answer_is_relevant() -> None:
    hotpot = example(question="Where?", answer="Steventon", gold_titles=["EMMA", "AUSTEN"])
    assert relevant(relevance_examples([hotpot], SHELF, 3)) == {("Where?", "AUSTEN")}


def test_that_a_passage_has_the_word_no_in_it_does_not_make_it_suffice() -> None:
    houses = [Passage("ada", "She had no house.", "ADA"), Passage("bob", "He had a house.", "BOB")]

    both = example(question="Did both have a house?", answer="no", gold_titles=["ADA", "BOB"])
    assert relevant(relevance_examples([both], Shelf(lambda query: houses), 3)) == set()


def test_a_passage_about_the_answer_of_a_choice_does_not_tell_which_of_the_two_it_is() -> None:
    people = [Passage("ada", "Ada was born in 1900.", "ADA"), Passage("bob", "Bob was born in 1890.", "BOB")]
    choice = example(question="Who is older, Ada or Bob?", answer="Bob", gold_titles=["ADA", "BOB"])
    assert relevant(relevance_examples([choice], Shelf(lambda query: people), 2)) == set()
    assert listwise_examples([choice], Shelf(lambda query: people), 2)[0].relevant_ids == [1, 2]
    assert listwise_examples([choice], Shelf(lambda query: people[1:]), 1)[0].relevant_ids == []


def test_listwise_rows_number_the_passages_that_suffice_as_a_set_from_one() -> None:
    rows = {row.question: row.relevant_ids for row in listwise_examples([TWO_HOPS], SHELF, 3)}
    assert rows == {TWO_HOPS.question: [1, 2], "Who wrote Emma?": [1], "Where was Jane Austen born?": [2]}


def test_a_set_of_which_a_gold_passage_is_missing_does_not_suffice() -> None:
    rows = {row.question: row.relevant_ids for row in listwise_examples([TWO_HOPS], SHELF, 1)}
    assert rows == {TWO_HOPS.question: [], "Who wrote Emma?": [1], "Where was Jane Austen born?": []}


def test_known_is_what_the_lm_answers_rightly_without_help(world, oracle) -> None:
    lm = oracle()
    with dspy.context(lm=lm):
        rows = know_examples(world.train)
    assert {row.question: row.verdict for row in rows} == {
        step.question: "know"
        if lm.engine.answer({"question": step.question})["answer"] == step.answers[0]
        else "unknown"
        for e in world.train
        for step in steps(e)
    }
    assert set(Counter(row.verdict for row in rows)) == {"know", "unknown"}


def test_gold_labels_spare_the_lm_where_they_say_something(oracle) -> None:
    lm = oracle()
    known, unknown = TWO_HOPS.copy(known=True), example(known=False)
    with dspy.context(lm=lm):
        rows = know_examples([known, unknown], labels="gold")
    assert [row.verdict for row in rows] == ["know", "know", "know", "unknown"]
    assert lm.calls == []


def test_a_question_not_known_as_a_whole_leaves_its_parts_to_be_asked(oracle) -> None:
    lm = oracle()
    with dspy.context(lm=lm):
        know_examples([TWO_HOPS.copy(known=False)], labels="gold")
    assert sorted(call["question"] for call in lm.calls) == ["Where was Jane Austen born?", "Who wrote Emma?"]


def test_questions_that_the_lm_failed_on_are_told(caplog) -> None:
    def answer(fields: dict[str, Any]) -> dict[str, str]:
        if "Emma" in fields["question"]:
            raise LMError("the endpoint is down")
        return {"answer": "Steventon"}

    with dspy.context(lm=ScriptedLM(answer)):
        rows = know_examples([TWO_HOPS])
    assert [(row.question, row.verdict) for row in rows] == [("Where was Jane Austen born?", "know")]
    assert "2 of 3 questions failed" in caplog.text and "the endpoint is down" in caplog.text


def test_decompositions_are_gold_and_come_from_several_hops_only(world) -> None:
    rows = decomposition_examples(world.train)
    assert 0 < len(rows) < len(world.train)
    assert all(len(row.sub_questions) > 1 for row in rows)
    with_simple = decomposition_examples(world.train, simple=True)
    added = [row for row in with_simple if row not in rows]
    assert {row.question for row in added} == {one.question for one in world.train if one.hops == 1} != set()
    assert all(row.sub_questions == [row.question] for row in added) and len(with_simple) == len(rows) + len(added)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(2, 9), st.integers(0, 3))
def test_demonstrations_are_balanced_drawn_once_and_reproducible(yes: int, no: int, n: int, seed: int) -> None:
    rows = [example(question=f"k{i}", verdict="know") for i in range(yes)]
    rows += [example(question=f"u{i}", verdict="unknown") for i in range(no)]
    drawn = balanced(rows, "know", n, random.Random(seed))
    count = Counter(row.verdict for row in drawn)
    assert abs(count["know"] - count["unknown"]) <= n % 2
    assert min(count["know"], count["unknown"]) == min(n // 2, yes, no)
    assert len({row.question for row in drawn}) == len(drawn) <= n
    assert drawn == balanced(rows, "know", n, random.Random(seed))


def test_one_verdict_only_says_which_and_what_to_do() -> None:
    rows = [example(verdict="irrelevant")] * 3
    with pytest.raises(InputError, match=r"relevance judge.*0 'relevant' and 3 'irrelevant'.*gold_pids"):
        balanced(rows, "relevance", 4, random.Random(0))


def test_an_empty_set_and_missing_answers_are_refused() -> None:
    with pytest.raises(InputError, match="training set is empty"):
        decomposition_examples([])
    with pytest.raises(InputError, match="'Who\\?' has no gold answer"):
        relevance_examples([dspy.Example(question="Who?")], SHELF, 3)


def test_a_passage_belongs_to_the_step_that_names_it_whatever_the_order_of_the_gold() -> None:
    mixed = example(
        **{**TWO_HOPS.toDict(), "gold_pids": [], "gold_titles": ["AUSTEN", "EMMA"]}, sub_titles=["EMMA", "AUSTEN"]
    )
    _, first, second = steps(mixed)
    assert (first.gold, second.gold) == ({"EMMA"}, {"AUSTEN"})
    assert relevant(relevance_examples([mixed], SHELF, k=3)) == {
        ("Who wrote Emma?", "EMMA"),
        ("Where was Jane Austen born?", "AUSTEN"),
    }


@pytest.mark.parametrize(
    ("k", "rows"),
    [
        (3, [("sufficient", ["Ada | 1", "Rome | 2", "Ada | 3"]), ("insufficient", ["Rome | 2"])]),
        (1, [("insufficient", ["Ada | 1"])]),
    ],
)
def test_passages_are_insufficient_where_a_gold_title_is_missing(k: int, rows: list[Any]) -> None:
    """An article may be cut into several passages."""
    parts = [Passage("a", "1", "Ada"), Passage("r", "2", "Rome"), Passage("b", "3", "Ada")]
    asked = example(question="In which country was Ada born?", gold_titles=["Ada", "Rome"])
    assert [(row.verdict, row.passages) for row in sufficiency_examples([asked], Shelf(lambda query: parts), k)] == rows


def test_a_fact_that_no_passage_states_has_no_relevant_passage() -> None:
    """The passage that would state it was taught as relevant, though it tells of other facts."""
    asked = TWO_HOPS.copy(gold_pids=["", "austen"]).with_inputs("question")
    whole, first, second = steps(asked)
    assert first.gold == {""} and second.gold == {"austen"} and whole.decomposed
    rows = relevance_examples([asked], SHELF, 3)
    assert len(rows) == 9 and relevant(rows) == {(second.question, "AUSTEN")}
    lists = listwise_examples([asked], SHELF, 3)
    assert {row.question for row in lists if row.relevant_ids} == {second.question}
    enough = sufficiency_examples([asked], SHELF, 3)
    assert {row.question for row in enough if row.verdict == "sufficient"} == {second.question}
    assert {whole.question, first.question} < {row.question for row in enough if row.verdict == "insufficient"}
    single = example(question="Who wrote Emma?", answer="Jane Austen", gold_pids=[""])
    assert [row.verdict for row in relevance_examples([single], SHELF, 3)] == ["irrelevant"] * 3
    read = reading_rows([asked], SHELF, 3, random.Random(0))
    assert {row.question for row in read if row.answer != "unknown"} <= {second.question}


def test_equal_questions_about_different_things_accept_what_any_of_them_does() -> None:
    """A right answer to the second counted as not known: 159 of PopQA's 5,717 texts stand there more than once."""
    author = "Who is the author of Legacy?"
    twice = [example(question=author, answer=name, id=name) for name in ("Richard North Patterson", "James Michener")]
    chain = TWO_HOPS.copy(sub_questions=[author, "Where was #1 born?"], known=True).with_inputs("question")
    lm = ScriptedLM(lambda fields: {"answer": "James Michener"})
    with dspy.context(lm=lm):
        (row,) = know_examples(twice, labels="model")
        assert (row.question, row.verdict) == (author, "know")
    of = steps_asked([*twice, chain])[author]
    assert of.known is True and of.answers == ("Richard North Patterson", "James Michener", "Jane Austen")


def test_what_answers_either_of_two_equal_questions_is_relevant_and_teaches_no_reader_to_say_unknown() -> None:
    """The last one's gold alone counted: what answers the first was irrelevant, and read as if it had no answer."""
    texts = {"a": "Legacy is a song by Ada Hill.", "b": "Legacy is a novel by Bo Fell.", "c": "Elmton is a town."}
    shelf = Shelf(lambda query: [Passage(pid, text) for pid, text in texts.items()])
    asked = [
        example(question="Who wrote Legacy?", answer=answer, gold_pids=[pid])
        for pid, answer in (("a", "Ada Hill"), ("b", "Bo Fell"))
    ]
    assert [row.verdict for row in relevance_examples(asked, shelf, 3)] == ["relevant", "relevant", "irrelevant"]
    assert not reading_rows(asked, shelf, 3, random.Random(0)) and not listwise_examples(asked, shelf, 3)
    assert [row.verdict for row in relevance_examples(asked[1:], shelf, 3)] == ["irrelevant", "relevant", "irrelevant"]
