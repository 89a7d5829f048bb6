"""ReAct: what counts as an action, what a search shows, when it ends."""

import pytest

from raisf.programs.baselines.react import ReAct
from tests.scripted import ScriptedLM


def script(*actions):
    """Takes the actions in order; a string stands for thought and action, None for rubbish."""
    left = iter(actions)

    def respond(fields):
        action = next(left)
        return "mumble" if action is None else {"thought": f"I want {action}.", "action": action}

    return ScriptedLM(respond)


def test_it_searches_sees_the_best_passage_and_finishes(ask, library):
    shelf = library({"who wrote it?": "a b", "where is Ada?": "c"})
    lm = script("Search[who wrote it?]", "Search[where is Ada?]", "Finish[Velm]")
    trace = ask(ReAct(shelf), lm)
    assert lm.calls[0]["steps"] == []
    assert lm.calls[2]["steps"] == [  # each step's thought, action and observation, as the paper's prompt has them
        "Thought 1: I want Search[who wrote it?]. Action 1: Search[who wrote it?] Observation 1: A | text a",
        "Thought 2: I want Search[where is Ada?]. Action 2: Search[where is Ada?] Observation 2: C | text c",
    ]
    assert (trace.root.route, trace.root.answer, trace.root.reason) == ("acted", "Velm", "after 2 searches")
    assert [passage.pid for passage in trace.root.passages] == ["a", "c"]
    assert [step.query for step in trace.root.steps] == ["who wrote it?", "where is Ada?", None]
    assert (trace.cost.lm_calls, trace.cost.retrievals) == (3, 2)


def test_with_a_larger_k_a_search_shows_more(ask, library):
    lm = script("Search[who?]", "Finish[x]")
    ask(ReAct(library({"who?": "a b c"}), k=2), lm)
    assert lm.calls[1]["steps"][0].endswith("Observation 1: A | text a B | text b")


def test_a_search_that_finds_nothing_says_so(ask, library):
    lm = script("Search[who?]", "Finish[x]")
    assert ask(ReAct(library({})), lm).root.answer == "x"
    assert lm.calls[1]["steps"][0].endswith("Observation 1: nothing found")


def test_an_lm_that_reads_only_what_it_was_trained_on_sees_its_own_form(ask, library):
    lm = script("Search[who?]", "Finish[x]")
    lm.adapter.instructions = False  # as the pocket models' adapter has it
    ask(ReAct(library({"who?": "a"})), lm)
    assert lm.calls[1]["steps"] == ["Search[who?] -> A | text a"]


@pytest.mark.parametrize("action", ["finish[Velm]", "Action 1: Finish [ Velm ].", "Finish[Velm] Search[more]"])
def test_the_first_action_counts_however_it_is_dressed(ask, library, action):
    assert ask(ReAct(library({})), script(action)).root.answer == "Velm"


@pytest.mark.parametrize("malformed", [None, "Look at Ada", "Search[]", "Search[ ]", "Lookup[Ada]", "Search[a"])
def test_a_malformed_action_is_asked_for_once_more(ask, library, malformed):
    lm = script(malformed, "Search[who?]", "Finish[x]")
    trace = ask(ReAct(library({"who?": "a"})), lm)
    assert trace.root.answer == "x"
    assert lm.calls[1]["steps"] == ["no action -> write Search[query] or Finish[answer]"]
    assert len(lm.calls[2]["steps"]) == 1 and "Observation 1: A | text a" in lm.calls[2]["steps"][0]  # the note is gone

    trace = ask(ReAct(library({})), script(malformed, malformed))
    assert (trace.root.route, trace.root.answer, trace.cost.lm_calls) == ("unreadable", "unknown", 2)
    assert "in step 1" in trace.root.reason and (trace.read, trace.unreadable) == (0, 2)


def test_a_finish_may_have_brackets_of_its_own(ask, library):
    assert ask(ReAct(library({})), script("Finish[The Beatles [band]]")).root.answer == "The Beatles [band]"


def test_it_takes_seven_steps_at_most(ask, library):
    shelf = library({f"q{n}": "a" for n in range(20)})
    trace = ask(ReAct(shelf), script(*(f"Search[q{n}]" for n in range(20))))
    assert (trace.root.route, trace.root.answer) == ("max_steps", "unknown")
    assert len(shelf.queries) == trace.cost.lm_calls == 7
    assert [passage.pid for passage in trace.root.passages] == ["a"]  # found seven times, listed once


def test_finishing_with_unknown_is_no_answer(ask, library):
    trace = ask(ReAct(library({})), script("Finish[Unknown.]"))
    assert trace.root.answer == "unknown" and "found no answer" in trace.root.reason


def test_a_spent_budget_ends_it_with_its_steps(ask, library):
    lm = script("Search[who?]", "Search[where?]", "Finish[x]")
    trace = ask(ReAct(library({"who?": "a"}), max_calls=2), lm)
    assert (trace.root.route, trace.root.answer) == ("budget", "unknown")
    assert trace.root.reason == "max_calls=2 is spent" and trace.root.passages[0].pid == "a"
