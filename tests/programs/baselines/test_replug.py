"""REPLUG: what weighs how much, what it costs, and that it says so where an LM cannot do it."""

import math

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.lm.scripted import ScriptedLM
from raisf.programs.baselines.replug import REPLUG, shares
from raisf.programs.trace import JudgedPassage
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError


def passages(*scores):
    return [JudgedPassage(pid=str(n), title="", text="", score=score) for n, score in enumerate(scores)]


def test_a_passage_weighs_by_the_softmax_of_its_score():
    assert shares(passages(2.0, 1.0)) == pytest.approx([math.e / (math.e + 1), 1 / (math.e + 1)])
    assert shares(passages(None, None)) == [0.5, 0.5]
    assert sum(shares(passages(9000.0, 3.0, -50.0))) == pytest.approx(1.0)
    assert shares([]) == []


def test_each_passages_prompt_is_a_call_and_the_answer_is_one(ask, shelf):
    lm = connect("pocket", max_tokens=32)
    one, three = (ask(REPLUG(shelf, k=k), lm, "Who is the mayor of Title 1?") for k in (1, 3))
    assert three.root.route == "passages" and "3 passages" in three.root.reason
    assert three.cost.lm_calls == 3 and three.cost.retrievals == 1
    assert three.cost.prompt_tokens == 3 * one.cost.prompt_tokens  # the three passages are of one length
    assert three.cost.completion_tokens > 0


def test_without_room_for_all_prompts_in_the_budget_none_is_asked(ask, shelf):
    trace = ask(REPLUG(shelf, k=3, max_calls=2), connect("pocket", max_tokens=32))
    assert (trace.root.route, trace.root.answer, trace.cost.lm_calls) == ("budget", "unknown", 0)


def test_its_answers_can_be_bootstrapped_into_demonstrations(shelf, monkeypatch):
    born = Passage(pid="p1", title="Vur Misgu", text="Vur Misgu was born in Rosful.", score=1.0)
    monkeypatch.setattr(type(shelf), "__call__", lambda self, query, k: [born, born])
    program = REPLUG(shelf, k=2)
    with dspy.context(lm=connect("pocket"), trace=[]):
        program(question="Where was Vur Misgu born?")
        [(predictor, inputs, outputs)] = dspy.settings.trace
    assert predictor is program.answer_from and inputs["passages"] == [born.prompt_text]
    assert set(outputs.keys()) == {"evidence", "answer"}


def test_an_endpoint_is_refused_with_the_reason(shelf):
    with dspy.context(lm=ScriptedLM(lambda f: {"answer": "x"})), pytest.raises(InputError, match="token probabilities"):
        REPLUG(shelf)(question="root")
