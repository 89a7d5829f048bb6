"""One call that reasons before it answers, with and without passages."""

import pytest

from raisf.programs.baselines.cot import CoT
from raisf.programs.baselines.cot_rag import CoTRAG
from tests.scripted import ScriptedLM


def test_the_reasoning_is_kept_beside_the_answer(ask):
    lm = ScriptedLM(lambda f: {"reasoning": "Ada was born in Velm.", "answer": "Velm"})
    trace = ask(CoT(), lm)
    assert (trace.root.route, trace.root.answer, trace.cost.lm_calls) == ("direct", "Velm", 1)
    assert [step.generation for step in trace.root.steps] == ["Ada was born in Velm."]
    assert set(lm.calls[0]) == {"question"} and trace.cost.retrievals == 0


def test_with_retrieval_it_reads_all_of_the_top_k(ask, shelf):
    lm = ScriptedLM(lambda f: {"reasoning": "It says so.", "answer": "Velm"})
    trace = ask(CoTRAG(shelf, k=3), lm)
    assert (trace.root.route, trace.root.answer) == ("passages", "Velm")
    assert lm.calls[0]["passages"] == ["Title 1 | passage 1", "Title 2 | passage 2", "Title 3 | passage 3"]
    assert [passage.pid for passage in trace.root.passages] == ["p1", "p2", "p3"]
    assert (trace.cost.lm_calls, trace.cost.retrievals) == (1, 1)


@pytest.mark.parametrize("make", [lambda shelf: CoT(), CoTRAG])
def test_a_reasoning_without_an_answer_is_unknown(ask, shelf, make):
    trace = ask(make(shelf), ScriptedLM(lambda f: {"reasoning": "Let me see."}))
    assert trace.root.answer == "unknown" and "could not be read" in trace.root.reason
