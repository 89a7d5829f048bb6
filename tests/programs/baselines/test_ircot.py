"""IRCoT: which sentence is kept, what is searched, what is collected, when it stops, who answers."""

import pytest

from raisf.programs.baselines.ircot import IRCoT
from raisf.programs.steps import union
from raisf.programs.trace import JudgedPassage
from tests.scripted import ScriptedLM


def script(thoughts, answer="x"):
    """Writes the thoughts in order, and answers as the reader."""

    def respond(fields):
        if "thoughts" not in fields:
            return {"reasoning": "All in all.", "evidence": "text a", "answer": answer}
        number = len(fields["thoughts"])
        return {"thought": thoughts[number]} if number < len(thoughts) else "mumble"

    return ScriptedLM(respond)


def test_each_thought_is_the_next_query_and_the_reader_gets_all_that_was_found(ask, library):
    shelf = library({"root": "a b", "Ada wrote it.": "b c", "Ada is from Velm.": "d a"})
    lm = script(["Ada wrote it.", "Ada is from Velm.", "So the answer is: Velm."], answer="Velm")
    trace = ask(IRCoT(shelf, k=2), lm)
    assert shelf.queries == ["root", "Ada wrote it.", "Ada is from Velm."]
    assert lm.calls[2]["thoughts"] == ["Ada wrote it.", "Ada is from Velm."]
    assert lm.calls[2]["passages"] == lm.calls[3]["passages"] == [f"{p.upper()} | text {p}" for p in "abcd"]
    assert "thoughts" not in lm.calls[3]  # the reader reads the passages, not the reasoning
    assert (trace.root.route, trace.root.answer) == ("passages", "Velm")
    assert [[p.pid for p in step.passages] for step in trace.root.steps] == [["a", "b"], ["c"], ["d"], [], []]
    assert trace.root.steps[3].generation == "So the answer is: Velm." and trace.root.steps[3].query is None
    assert trace.cost.lm_calls == 4 and trace.cost.retrievals == 3


def test_a_numbered_thought_is_searched_with_its_words(ask, library):
    shelf = library({"root": "a", "1. Ada wrote it.": "b"})
    ask(IRCoT(shelf), script(["1. Ada wrote it. She is from Velm.", "2. So the answer is: Velm."]))
    assert shelf.queries == ["root", "1. Ada wrote it."]


def test_of_a_rambling_thought_one_sentence_is_kept(ask, library):
    shelf = library({"root": "a"})
    lm = script(["Mr. J. Stone is from St. Ives. So the answer is: St. Ives.", "The answer is St. Ives."])
    ask(IRCoT(shelf), lm)
    assert shelf.queries == ["root", "Mr. J. Stone is from St. Ives."]


def test_it_stops_after_max_thoughts(ask, library):
    shelf = library({"root": "a"})
    trace = ask(IRCoT(shelf, max_thoughts=3), script([f"Thought {n}." for n in range(20)]))
    assert shelf.queries == ["root", "Thought 0.", "Thought 1.", "Thought 2."]
    assert trace.root.answer == "x" and trace.cost.lm_calls == 4


def test_beyond_the_cap_the_earliest_passages_stay(ask, library):
    shelf = library({"root": "a b c", "One.": "d e f", "Two.": "g"})
    trace = ask(IRCoT(shelf, k=3, max_passages=4), script(["One.", "Two.", "The answer is x."]))
    assert [passage.pid for passage in trace.root.passages] == ["a", "b", "c", "d"]
    assert [p.pid for p in trace.root.steps[1].passages] == ["d"] and not trace.root.steps[2].passages


def test_parts_of_a_document_that_share_its_id_are_all_collected():
    one, two = (JudgedPassage(pid="d", title="", text=text) for text in ("one", "two"))
    assert union([one], [two, one]) == [one, two]


def test_an_unreadable_thought_ends_the_reasoning_and_the_reader_answers(ask, library):
    trace = ask(IRCoT(library({"root": "a"})), script(["One."]))
    assert (trace.root.answer, trace.unreadable) == ("x", 1)


def test_the_plain_reader_answers_at_once(ask, library):
    lm = script(["The answer is x."])
    trace = ask(IRCoT(library({"root": "a"}), reader="answer"), lm)
    assert trace.root.evidence == "text a" and len(trace.root.steps) == 2


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_spent_budget_ends_it_with_what_was_collected(ask, library, limit):
    shelf = library({"root": "a", "One.": "b", "Two.": "c"})
    trace = ask(IRCoT(shelf, max_calls=limit), script(["One.", "Two.", "Three.", "Four."]))
    assert (trace.root.route, trace.root.answer, trace.cost.lm_calls) == ("budget", "unknown", limit)
    assert [p.pid for p in trace.root.passages] == ["a", "b", "c"][:limit]
