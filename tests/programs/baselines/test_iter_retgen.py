"""Iter-RetGen: what each turn searches for and reads."""

from raisf.programs.baselines.iter_retgen import IterRetGen
from tests.scripted import ScriptedLM


def script(turns):
    """Writes the reasonings and answers in order."""
    left = iter(turns)
    return ScriptedLM(lambda f: dict(zip(("reasoning", "answer"), next(left), strict=False)))


def test_each_turn_searches_with_the_last_generation_and_reads_only_what_that_finds(ask, library):
    shelf = library({"root": "a b", "Ada, I think. Ada root": "c", "Ada, from Velm. Velm root": "d a"})
    lm = script([("Ada, I think.", "Ada"), ("Ada, from Velm.", "Velm"), ("Velm it is.", "Velm!")])
    trace = ask(IterRetGen(shelf), lm)
    assert shelf.queries == ["root", "Ada, I think. Ada root", "Ada, from Velm. Velm root"]
    assert [call["passages"] for call in lm.calls] == [
        ["A | text a", "B | text b"],
        ["C | text c"],
        ["D | text d", "A | text a"],
    ]
    assert trace.root.answer == "Velm!"
    assert [p.pid for p in trace.root.passages] == ["d", "a"]
    assert [step.generation for step in trace.root.steps] == [
        "",
        "Ada, I think. Ada",
        "Ada, from Velm. Velm",
        "Velm it is.",
    ]
    assert (trace.cost.lm_calls, trace.cost.retrievals) == (3, 3)


def test_an_unreadable_generation_searches_with_the_question_again_at_no_cost(ask, library):
    shelf = library({"root": "a"})
    trace = ask(IterRetGen(shelf, turns=2), script([("no answer in it",), ("So.", "x")]))
    assert shelf.queries == ["root"]
    # The same passages and the same question: the same call, which is not made again.
    assert trace.cost.lm_calls == 1 and trace.root.answer == "unknown"


def test_an_answer_of_unknown_is_nothing_to_search_with(ask, library):
    shelf = library({})
    ask(IterRetGen(shelf, turns=2), script([("Nothing here.", "unknown"), ("So.", "x")]))
    assert shelf.queries == ["root", "Nothing here. root"]


def test_one_turn_is_cot_with_retrieval(ask, library):
    trace = ask(IterRetGen(library({"root": "a"}), turns=1), script([("So.", "x")]))
    assert (trace.root.answer, trace.cost.lm_calls, trace.cost.retrievals) == ("x", 1, 1)


def test_a_spent_budget_ends_it(ask, library):
    trace = ask(IterRetGen(library({"root": "a"}), max_calls=1), script([("So.", "x")] * 3))
    assert (trace.root.route, trace.root.answer) == ("budget", "unknown")
    assert trace.root.reason == "max_calls=1 is spent"
