"""Budgets, costs, errors and unreadable output: what a user pays for, and what she is told when it goes wrong."""

import asyncio
import signal
import sys
import threading
import time
from dataclasses import replace

import dspy
import pytest
from dspy.utils.usage_tracker import UsageTracker

from raisf.lm.adapter import CompactAdapter
from raisf.lm.reading import MAX_CHARACTERS
from raisf.programs.baselines.cot import CoT
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.programs.calls import Run
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError, LMError
from tests.scripted import ScriptedLM

MODES = ["sync", "async", "inside a loop"]


def call(program, question, mode):
    if mode == "sync":
        return program(question=question)
    if mode == "async":
        return asyncio.run(program.acall(question=question))

    async def notebook():
        return program(question=question)

    return asyncio.run(notebook())


@pytest.mark.parametrize("mode", MODES)
def test_every_way_to_call_gives_the_same_answer_and_cost(scripted, plan, shelf, mode):
    lm = scripted(root=plan(subs=["a", "b of #1"]), a=plan(know=True), b=plan(relevant=1))
    with dspy.context(lm=lm):
        prediction = call(RAISF(shelf), "root", mode)
    assert prediction.answer == "A(root)"
    assert prediction.trace.cost.lm_calls == len(lm.calls) == 1 + 5 + 1 + 2 + 7 + 1


def test_many_questions_at_once_through_asyncio(scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a", "b"]), a=plan(know=True), b=plan(relevant=1), sleep=0.005)
    program = RAISF(shelf)

    async def ask_all():
        return await asyncio.gather(*(program.acall(question=f"root {n}") for n in range(70)))

    with dspy.context(lm=lm):
        predictions = asyncio.run(ask_all())
    assert [p.answer for p in predictions] == [f"A(root {n})" for n in range(70)]
    assert 1 < lm.most_at_once <= 32  # the process-wide limit


def test_a_cancelled_question_spends_no_more(scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a"]), a=plan(subs=["b"]), b=plan(subs=["c"]), sleep=0.05)

    async def give_up():
        task = asyncio.create_task(RAISF(shelf).acall(question="root"))
        await asyncio.sleep(0.08)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with dspy.context(lm=lm):
        asyncio.run(give_up())
    time.sleep(0.1)  # what was under way ends
    spent = len(lm.calls)
    time.sleep(0.2)
    assert len(lm.calls) == spent < 1 + 5 + 1 + 1


@pytest.mark.parametrize("limit", range(1, 20))
def test_max_calls_is_never_exceeded_and_the_tree_says_where_it_ended(ask, scripted, plan, shelf, limit):
    lm = scripted(root=plan(subs=["a", "b"]), a=plan(relevant=1), b=plan(relevant=2))
    trace = ask(RAISF(shelf, max_calls=limit), lm)
    assert trace.cost.lm_calls == len(lm.calls) <= limit
    if limit < 22:  # what the whole tree takes
        assert trace.root.answer == "unknown"
        assert any(node.route == "budget" and "max_calls" in node.reason for node in trace.root.walk())


def test_max_seconds_ends_the_question_soon(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a"]), a=plan(subs=["b"]), b=plan(subs=["c"]), sleep=0.05)
    trace = ask(RAISF(shelf, max_seconds=0.12), lm)
    assert trace.cost.seconds < 0.4
    assert trace.root.route == "budget" and trace.root.reason == "max_seconds=0.12 is spent"
    assert trace.root.know is not None  # what was found out until then is kept


@pytest.mark.parametrize("make", [Direct, RAG, RAISF])
def test_the_baselines_obey_the_budget_too(ask, scripted, plan, shelf, make):
    program = make(max_calls=1) if make is Direct else make(shelf, max_calls=1)
    lm = scripted(root=plan(relevant=1))
    assert ask(program, lm).cost.lm_calls == len(lm.calls) == 1


def test_an_unreadable_judgement_is_counted_and_the_program_goes_on(ask, shelf):
    lm = ScriptedLM(lambda f: "mumble" if "passages" not in f else {"evidence": "e", "answer": "yes"})
    trace = ask(RAISF(shelf), lm)
    assert trace.root.know.readable is False and trace.root.know.verdict is None
    assert all(not p.relevant and not p.judgement.readable for p in trace.root.passages)
    assert trace.root.route == "no_sub_questions"
    assert trace.unreadable == 1 + 5 + 1
    assert ask(RAISF(shelf, relevance="listwise"), ScriptedLM(lambda f: "mumble")).unreadable == 3


@pytest.mark.parametrize("make", [lambda shelf: Direct(), RAG])
def test_an_unreadable_answer_is_unknown_with_a_reason(ask, shelf, make):
    trace = ask(make(shelf), ScriptedLM(lambda f: "mumble"))
    assert trace.root.answer == "unknown" and "could not be read" in trace.root.reason
    assert trace.unreadable == 1


@pytest.mark.parametrize("answer", ["", "Unknown.", "  UNKNOWN"])
def test_an_lm_that_says_unknown_has_not_answered(ask, answer):
    lm = ScriptedLM(lambda f: {"answer": answer or " "})
    assert ask(Direct(), lm).root.answer == "unknown"


def test_the_chat_formats_second_try_in_json_counts_as_a_call(ask, shelf):
    replies = iter(["mumble", '{"answer": "Paris"}', "mumble"])
    lm = ScriptedLM(lambda f: next(replies))
    lm.adapter = dspy.ChatAdapter()
    trace = ask(Direct(), lm)
    assert (trace.root.answer, trace.cost.lm_calls, trace.unreadable) == ("Paris", 2, 0)
    assert ask(Direct(max_calls=1), lm).root.route == "budget"
    assert len(lm.calls) == 3
    assert lm.adapter.use_json_adapter_fallback  # the user's adapter is as it was


def compact(*replies):
    """An LM in the compact format that says one reply after the other, and the prompts that it was given."""
    lm, left = ScriptedLM(lambda f: next(left)), iter(replies)
    lm.adapter = CompactAdapter()
    return lm, lambda: [call["messages"][-1]["content"] for call in lm.history]


def test_a_reply_that_ends_before_the_answer_is_gone_on_with(ask):
    lm, prompts = compact(" Paris is the capital.", " Paris", " It is far", "")
    trace = ask(CoT(), lm)
    assert (trace.root.answer, trace.cost.lm_calls, trace.read, trace.unreadable) == ("Paris", 2, 1, 0)
    assert trace.root.steps[0].generation == "Paris is the capital."
    first, second = prompts()
    assert second == f"{first} Paris is the capital.\nanswer:"
    assert ask(CoT(), lm).root.answer == "unknown"  # a last output that is empty is not asked for again
    assert len(lm.calls) == 4
    assert lm.adapter.said == {}


def test_a_reply_cut_off_in_its_first_output_is_gone_on_with_as_far_as_the_budget_reaches(ask, monkeypatch):
    lm, prompts = compact(" So it is it is it is", " Paris", " So it is")
    ends = iter(["length", "stop", "length"])
    complete = lm.engine.complete
    monkeypatch.setattr(lm.engine, "complete", lambda r: replace(complete(r), finish_reason=next(ends)))
    assert ask(CoT(), lm).root.answer == "Paris"
    assert prompts()[-1].endswith("reasoning: So it is it is it is\nanswer:")
    assert ask(CoT(max_calls=1), lm).root.route == "budget"


@pytest.mark.parametrize("reply", ["<think> So it is", "x" * (MAX_CHARACTERS + 1)])
def test_what_is_no_beginning_of_an_answer_is_not_gone_on_with(ask, reply):
    lm, _ = compact(reply)
    trace = ask(CoT(), lm)
    assert (trace.root.answer, trace.unreadable, len(lm.calls)) == ("unknown", 1, 1)


def test_thinking_before_an_answer_is_no_part_of_what_is_gone_on_with(ask):
    lm, prompts = compact("<think>Hm.</think> Paris is the capital.", " Paris")
    assert ask(CoT(), lm).root.answer == "Paris"
    assert prompts()[-1].endswith("reasoning: Paris is the capital.\nanswer:")


class Down(Exception):
    pass


def test_an_endpoint_that_fails_is_an_error_and_no_answer(scripted, plan, shelf):
    failing = threading.Event()

    def answer(fields):
        if fields["question"] == "b":
            failing.set()
            raise Down("connection refused")
        return {"verdict": "unknown", "sub_questions": ["a", "b", "c", "d"], "answer": "x"}

    lm = ScriptedLM(lambda f: {"verdict": "irrelevant"} if "passage" in f else answer(f), sleep=0.02)
    before = threading.active_count()
    with dspy.context(lm=lm), pytest.raises(LMError, match="connection refused"):
        RAISF(shelf, max_depth=5)(question="root")
    spent = len(lm.calls)
    assert failing.is_set() and spent < 40  # the other branches were stopped
    time.sleep(0.1)
    assert len(lm.calls) == spent  # and nothing goes on behind the user's back
    assert threading.active_count() <= before + 64


def test_ctrl_c_ends_the_question_and_its_calls(scripted, plan, shelf):
    lm = scripted(
        root=plan(subs=["a", "b", "c"]), a=plan(subs=["d"]), b=plan(subs=["d"]), c=plan(subs=["d"]), sleep=0.05
    )
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.12, signal.pthread_kill, (main, signal.SIGINT)).start()
    with dspy.context(lm=lm), pytest.raises(KeyboardInterrupt):
        RAISF(shelf)(question="root")
    time.sleep(0.1)
    spent = len(lm.calls)
    time.sleep(0.2)
    assert len(lm.calls) == spent < 30


def test_the_search_runs_beside_the_self_knowledge_judge(ask, read, plan, shelf):
    def answer(fields):
        while not shelf.queries:  # the judge speaks once the search has begun
            time.sleep(0.001)
        return read({"root": plan(know=True)}, fields)

    cost = ask(RAISF(shelf), ScriptedLM(answer)).cost
    assert (cost.retrievals, cost.discarded_retrievals, len(shelf.queries)) == (0, 1, 1)


def test_one_at_a_time_searches_only_what_is_needed(ask, scripted, plan, shelf, one_at_a_time):
    assert ask(RAISF(shelf), scripted(root=plan(know=True))).cost.retrievals == len(shelf.queries) == 0


def test_a_retriever_that_fails_is_an_error(scripted, shelf, monkeypatch):
    def broken(self, query, k):
        raise InputError("the index is gone")

    monkeypatch.setattr(type(shelf), "__call__", broken)
    with dspy.context(lm=scripted()), pytest.raises(InputError, match="the index is gone"):
        RAISF(shelf)(question="root")


@pytest.mark.parametrize("retriever", ["indexes/mine", 7, dspy.ColBERTv2])
def test_what_cannot_search_is_refused(retriever):
    with pytest.raises(InputError, match=r"open_index.*a function of a query and k"):
        RAISF(retriever)


@pytest.mark.parametrize(
    ("question", "complaint"),
    [("", "empty"), (" \n", "empty"), (7, "found int"), (None, "found NoneType"), ("x" * 100_000, "100,000 characters"),
     ("bad \ud800", "not valid Unicode")],
)  # fmt: skip
@pytest.mark.parametrize("mode", MODES)
def test_a_question_that_cannot_be_asked(scripted, shelf, question, complaint, mode):
    lm = scripted()
    with dspy.context(lm=lm), pytest.raises(InputError, match=complaint):
        call(RAISF(shelf), question, mode)
    assert not lm.calls


def test_without_an_lm_or_a_retriever_the_remedy_is_named(scripted, shelf):
    with dspy.context(lm=None), pytest.raises(InputError, match=r"'know' needs a language model.*--lm"):
        RAISF(shelf)(question="root")
    with dspy.context(lm="openai/gpt-4o-mini"), pytest.raises(InputError, match="found 'openai/gpt-4o-mini'"):
        Direct()(question="root")
    with dspy.context(lm=scripted()), pytest.raises(InputError, match="needs a retriever"):
        RAG()(question="root")


def test_each_predictor_may_have_its_own_lm(ask, scripted, plan, shelf):
    judge, answerer = scripted(root=plan(relevant=1)), scripted(root=plan(answer="Paris"))
    program = RAISF(shelf)
    program.know.lm = program.relevant.lm = judge
    assert ask(program, answerer).root.answer == "Paris"
    assert len(judge.calls) == 6 and len(answerer.calls) == 1
    program.set_lm(judge)
    with dspy.context(lm=None):
        assert program(question="root").answer == "A(root)"


def test_each_lm_is_spoken_to_in_its_own_format(ask, scripted, plan, shelf):
    class Loud(dspy.ChatAdapter):
        def parse(self, signature, completion):
            return {name: str(value).upper() for name, value in super().parse(signature, completion).items()}

    loud, plain = scripted(root=plan(answer="Paris")), scripted(root=plan(relevant=1))
    loud.adapter = Loud(use_json_adapter_fallback=False)
    program = RAISF(shelf)
    program.answer_from.lm = loud
    assert ask(program, plain).root.answer == "PARIS"


def test_a_judges_probability_of_yes_is_kept(ask, scripted, plan, shelf):
    class Scoring(dspy.ChatAdapter):
        def _call_postprocess(self, processed_signature, original_signature, outputs, lm, lm_kwargs):
            values = super()._call_postprocess(processed_signature, original_signature, outputs, lm, lm_kwargs)
            labels = {"know": 0.25, "unknown": 0.75, "relevant": 0.5, "irrelevant": 0.5}
            return [{**value, "probabilities": labels} for value in values]

    lm = scripted(root=plan(relevant=1))
    lm.adapter = Scoring(use_json_adapter_fallback=False)
    root = ask(RAISF(shelf), lm).root
    assert root.know.probability == 0.25 and root.passages[0].judgement.probability == 0.5


def test_tokens_are_counted_here_and_in_the_callers_tracker(scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a", "b"]), a=plan(know=True), b=plan(relevant=1))
    with dspy.context(lm=lm, track_usage=True), dspy.track_usage() as outer:
        cost = RAISF(shelf)(question="root").trace.cost
    total = outer.get_total_tokens()["scripted/lm"]
    assert cost.prompt_tokens == total["prompt_tokens"] > 100
    assert cost.completion_tokens == total["completion_tokens"] > 10
    with dspy.context(lm=lm, track_usage=True):
        assert RAISF(shelf)(question="root").get_lm_usage()["scripted/lm"]["prompt_tokens"] == cost.prompt_tokens


def test_a_call_from_dspys_cache_counts_as_a_call_without_tokens(scripted, plan):
    class Cached(ScriptedLM):
        pass

    lm = Cached(lambda f: {"answer": "Paris"})
    lm.cache = True
    question = f"root {time.time_ns()}"
    with dspy.context(lm=lm):
        first, second = (Direct()(question=question).trace for _ in range(2))
    assert len(lm.calls) == 1 and first.root.answer == second.root.answer == "Paris"
    assert first.cost.prompt_tokens > 0
    assert (second.cost.lm_calls, second.cost.prompt_tokens) == (1, 0)


def test_the_cost_of_a_question_can_be_looked_at_while_its_judges_answer():
    # Judges with weights of their own are LMs of many names; a stream that looks as one of them ends must not break.
    run, usage = Run(None, None, None), UsageTracker()
    run.usage = usage

    def answers():
        for number in range(20_000):
            usage.add_usage(f"judge {number}", {"prompt_tokens": 1})

    judges = threading.Thread(target=answers)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        judges.start()
        while judges.is_alive():
            run.cost_so_far()
    finally:
        sys.setswitchinterval(interval)
        judges.join()
    assert run.cost_so_far().prompt_tokens == 20_000
