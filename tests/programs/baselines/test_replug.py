"""REPLUG: what weighs how much, what it costs, and that it says so where an LM cannot do it."""

import math

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.optimize.optimizers.few_shot import BootstrapJudges
from raisf.programs.baselines.replug import REPLUG, shares
from raisf.programs.trace import JudgedPassage
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def passages(*scores):
    return [JudgedPassage(pid=str(n), title="", text="", score=score) for n, score in enumerate(scores)]


def test_a_passage_weighs_by_the_softmax_of_its_cosine():
    assert shares(passages(1.0, 0.0)) == pytest.approx([math.e / (math.e + 1), 1 / (math.e + 1)])
    assert shares(passages(0.8, 0.5)) == pytest.approx([1 / (1 + math.exp(-0.3)), 1 / (1 + math.exp(0.3))])


def test_no_retrievers_scale_alone_gives_one_passage_all_the_weight():
    bm25 = shares(passages(14.2, 10.9, 9.6, 9.1, 8.8))
    assert 0.2 < bm25[0] < 0.3 and bm25 == sorted(bm25, reverse=True)
    assert bm25 == pytest.approx(shares(passages(142.0, 109.0, 96.0, 91.0, 88.0)))
    assert max(shares(passages(-3.0, -40.0))) < 0.75


def test_a_lower_temperature_trusts_the_ranking_more(ask, shelf):
    assert shares(passages(0.8, 0.5), 0.1)[0] == pytest.approx(1 / (1 + math.exp(-3)))
    for wrong in (0, "hot", True):
        with pytest.raises(InputError, match=f"temperature is {wrong!r}: give a number, more than 0"):
            REPLUG(shelf, temperature=wrong)
    trace = ask(REPLUG(shelf, k=2, temperature=0.1, evidence=False), connect("pocket", max_tokens=8), "Who is Title 1?")
    assert trace.root.route == "passages" and trace.root.evidence is None


def test_passages_without_scores_weigh_the_same():
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


def test_what_compiling_it_costs_counts_each_passages_prompt(shelf, tmp_path):
    program = REPLUG(shelf, k=2)
    program.set_lm(connect("pocket", max_tokens=8))
    examples = [dspy.Example(question=f"Who is Title {n}?", answer="x").with_inputs("question") for n in range(3)]
    optimizer = BootstrapJudges(metric=lambda *run: 1.0, work=tmp_path, progress=False)
    assert optimizer.compile(program, trainset=examples).compile_report["lm_calls"] == 6


def test_an_endpoint_is_refused_with_the_reason(shelf):
    with dspy.context(lm=ScriptedLM(lambda f: {"answer": "x"})), pytest.raises(InputError, match="token probabilities"):
        REPLUG(shelf)(question="root")
