"""A judge at an endpoint gives the probability that it gives in the process; or its verdict, and never nothing."""

import asyncio
import contextlib
import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError

from raisf.lm import pocket
from raisf.lm.connect import adapter_for, connect
from raisf.lm.verdicts import LATER_MISSES, Scoring, label_probabilities
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.signatures.judges import PassageRelevance, SelfKnowledge

QUESTIONS = ["Who is the mayor of Belrin?", "Where was Ada Hill born?", "Which river runs through Velmora?"]


@pytest.fixture(scope="module")
def served(llamas):
    with llamas.serve({"pocket": pocket.path()}) as endpoint:
        yield endpoint


def ask(lm, question, signature=SelfKnowledge, **inputs):
    with dspy.context(lm=lm, adapter=adapter_for(lm)):
        return dspy.Predict(signature)(question=question, **inputs)


@pytest.mark.parametrize("completions", [False, True])
@pytest.mark.parametrize("most", [20, 5])
def test_a_served_judge_gives_the_probabilities_that_it_gives_in_the_process(llamas, completions, most):
    local = connect("pocket")
    with llamas.serve({"pocket": pocket.path()}, most=most) as served:
        remote = connect("openai/pocket", api_base=served.url, adapter="pocket", completions=completions)
        for question in QUESTIONS:
            for signature, inputs in (
                (SelfKnowledge, {}),
                (PassageRelevance, {"passage": "Belrin | Its mayor is Oda."}),
            ):
                here, there = (ask(lm, question, signature, **inputs) for lm in (local, remote))
                assert here.verdict == there.verdict
                assert there.probabilities == pytest.approx(here.probabilities, abs=1e-3)
        paths = {path for path, _ in served.seen}
        assert paths == {"/v1/completions" if completions else "/v1/chat/completions"}
        limits = [body.get("max_tokens") for _, body in served.seen]
        assert set(limits) == {1}  # a verdict is one token
        assert len(limits) == 2 * len(QUESTIONS) + (most < 20)


def test_a_verdict_is_counted_as_one_token_and_kept(served):
    lm = connect("openai/pocket", api_base=served.url, adapter="pocket")
    with dspy.track_usage() as usage:
        first = ask(lm, QUESTIONS[0])
    assert usage.get_total_tokens()["openai/pocket"]["completion_tokens"] == 1
    before = len(served.seen)
    assert ask(lm, QUESTIONS[0]).probabilities == first.probabilities
    assert len(served.seen) == before  # from DSPy's cache


def test_in_the_chat_format_one_label_is_asked_for_and_read_off_its_first_token(served):
    lm = connect("openai/pocket", api_base=served.url, max_tokens=4)
    demo = dspy.Example(question="Who wrote Emma?", verdict="know").with_inputs("question")
    with dspy.context(lm=lm, adapter=adapter_for(lm)), contextlib.suppress(AdapterParseError):  # it knows no chat
        judge = dspy.Predict(SelfKnowledge)
        judge.demos = [demo]
        judge(question=QUESTIONS[1])
    asked = [body for _, body in served.seen if body.get("top_logprobs") and len(body["messages"]) == 4][-1]
    assert asked["max_tokens"] == 1 and asked["logprobs"] is True
    assert asked["temperature"] == 1  # at the LM's 0 a server may list one token alone, as certain
    assert asked["messages"][2] == {"role": "assistant", "content": "know"}
    assert "Respond with the `verdict` alone, one of: know, unknown." in asked["messages"][-1]["content"]
    assert "completed" not in str(asked["messages"])
    assert asked["model"] == "pocket"


def verdicts(lm, threads=8):
    questions = [f"Who is the mayor of town {number}?" for number in range(16)]
    context = dspy.settings.copy()
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda question: _in(context, lm, question), questions))


def _in(context, lm, question):
    with dspy.context(**{"lm": lm, "adapter": adapter_for(lm)}):
        return dspy.Predict(SelfKnowledge)(question=question)


def refuse_any(body):
    wants = body.get("logprobs")
    return (400, "unknown parameter") if wants else None


def fail_any(body):
    return (500, "internal error") if body.get("logprobs") else None


@pytest.mark.parametrize(
    ("options", "probes"),
    [({"logprobs": False}, 1), ({"refuses": refuse_any}, 3)],
    ids=["ignores", "refuses"],
)
def test_a_server_without_log_probabilities_is_asked_as_before_and_found_out_once(llamas, options, probes):
    with llamas.serve({"pocket": pocket.path()}, **options) as endpoint:
        lm = connect("openai/pocket", api_base=endpoint.url, adapter="pocket", max_tokens=8)
        found = [*verdicts(lm), *verdicts(lm.copy(cache=False))]
        assert {one.verdict for one in found} <= {"know", "unknown"} and "probabilities" not in found[0]
        short = [body for _, body in endpoint.seen if body["max_tokens"] == 1]
        assert len(short) == probes and len(endpoint.seen) == len(found) + probes
        plain = connect("openai/pocket", api_base=endpoint.url, adapter="pocket", max_tokens=8, probabilities=False)
        assert [one.verdict for one in verdicts(plain.copy(cache=False))] == [one.verdict for one in found[:16]]
        assert len([body for _, body in endpoint.seen if body["max_tokens"] == 1]) == probes


def test_a_server_that_fails_where_it_should_refuse_loses_no_question(llamas):
    with llamas.serve({"pocket": pocket.path()}, refuses=fail_any) as endpoint:
        lm = connect("openai/pocket", api_base=endpoint.url, adapter="pocket", max_tokens=8)
        assert [ask(lm, f"{question} {number}").verdict for number, question in enumerate(QUESTIONS * 2)]
        failing = [body for _, body in endpoint.seen if body.get("logprobs")]
        assert len(failing) == 3  # then it is not asked any more


def forbid_any(body):
    return (403, "log-probabilities are not for your account") if body.get("logprobs") else None


def test_a_server_that_forbids_the_wish_alone_loses_no_question(llamas):
    with llamas.serve({"pocket": pocket.path()}, refuses=forbid_any) as endpoint:
        lm = connect("openai/pocket", api_base=endpoint.url, adapter="pocket", max_tokens=8)
        assert [ask(lm, f"{question} {number}").verdict for number, question in enumerate(QUESTIONS * 2)]
        assert len([body for _, body in endpoint.seen if body.get("logprobs")]) == 3


def test_what_is_found_out_at_the_same_time_is_not_forgotten():
    scoring = Scoring()
    scoring._missed(for_good=True)
    scoring._missed()  # another that was under way
    assert not scoring.possible


def test_a_model_that_does_not_answer_with_a_label_is_asked_as_before(llamas):
    class Animal(dspy.Signature):
        question: str = dspy.InputField()
        verdict: Literal["zebra", "quokka"] = dspy.OutputField()

    with llamas.serve({"pocket": pocket.path()}) as endpoint:
        lm = connect("openai/pocket", api_base=endpoint.url, adapter="pocket", max_tokens=2)
        for number in range(5):
            with pytest.raises(AdapterParseError):  # it writes what it knows to write
                ask(lm, f"Which animal? {number}", Animal)
        wished = [bool(body.get("logprobs")) for _, body in endpoint.seen]
        assert wished == [True, False, True, False, True, False, False, False]


def test_a_coroutine_gets_the_same(served):
    lm = connect("openai/pocket", api_base=served.url, adapter="pocket")

    async def both():
        with dspy.context(lm=lm, adapter=adapter_for(lm)):
            judge = dspy.Predict(SelfKnowledge)
            return await asyncio.gather(*(judge.acall(question=question) for question in QUESTIONS))

    found = asyncio.run(both())
    assert [one.probabilities for one in found] == [ask(lm, question).probabilities for question in QUESTIONS]


@pytest.mark.parametrize(
    ("listed", "labels", "expected"),
    [
        ([(" know", 0.6), (" unknown", 0.2), ("the", 0.1)], ["know", "unknown"], 0.75),
        ([("Know", 0.3), ("know", 0.3), ("\u0120UNKNOWN", 0.2)], ["know", "unknown"], 0.75),  # any case and space
        ([("rele", 0.6), ("ir", 0.15), ("irre", 0.05)], ["relevant", "irrelevant"], 0.75),  # by their first tokens
        ([("k", 0.6), ("un", 0.2)], ["know", "unknown"], 0.75),
        ([(" relevant", 0.6), (" r", 0.1), (" irrelevant", 0.2)], ["relevant", "irrelevant"], 0.75),  # " r": "right"?
        ([("know.", 0.6), ("unknown", 0.2)], ["know", "unknown"], 0.75),
        ([("relevant", 0.45), ("I", 0.5)], ["relevant", "irrelevant"], None),  # "I think ..." says nothing
        ([("relevant", 0.9), ("I", 0.09)], ["relevant", "irrelevant"], 0.9 / 0.91),
        ([("know", 0.98), ("yes", 0.01), ("ok", 0.001)], ["know", "unknown"], 0.98 / 0.981),  # unlisted: the least
        ([("know", 0.6), ("yes", 0.1)], ["know", "unknown"], None),  # unlisted, and there is room for much
        ([("The", 0.9), ("[[", 0.1)], ["know", "unknown"], None),
        ([("un", 0.9), ("x", 0.01)], ["unsafe", "unknown"], None),  # the first token decides nothing
        ([("in", 0.9), ("suf", 0.1)], ["insufficient", "inadequate"], None),
        ([("", 0.9), ("know", 0.05)], ["know", "unknown"], None),
        ([("<think>", 0.999999), ("know", 8e-7), ("unknown", 3e-7)], ["know", "unknown"], None),  # it reasons first
        ([('"', 0.9), ("know", 0.05), ("unknown", 0.04)], ["know", "unknown"], None),  # the label comes after
        ([("\n", 0.6), ("know", 0.3), ("unknown", 0.05)], ["know", "unknown"], None),
        ([("The", 0.2), ("It", 0.2), ("I", 0.19), ("know", 0.3), ("unknown", 0.1)], ["know", "unknown"], None),
        ([("The", 0.3), ("know", 0.2), ("Know", 0.2), (" unknown", 0.1)], ["know", "unknown"], 0.8),  # together
        ([("know", 0.2), ("unknown", 0.05), ("The", 0.1)], ["know", "unknown"], 0.8),  # of what is listed, most
        ([], ["know", "unknown"], None),
        ([("A", 0.8), ("B", 0.2)], ["A", "B"], 0.8),
        ([("yes", 0.75), ("no", 0.25)], ["yes", "no"], 0.75),
        ([("no", 0.75), ("none", 0.25)], ["no", "none"], None),  # "no" may go on to "none"
        ([("know", float("nan"))], ["know", "unknown"], None),
        ([("know", 1.0), ("unknown", 1.0)], ["know", "unknown"], None),  # a server that has none, and writes 0 to each
        ([("know", 0.6), ("know", 0.6), ("unknown", 0.35)], ["know", "unknown"], None),  # its own is listed twice
    ],
)
def test_what_the_likeliest_tokens_say_of_labels(listed, labels, expected):
    tokens = [(token, share if share != share else math.log(share)) for token, share in listed]
    found = label_probabilities(tokens, labels)
    if expected is None:
        assert found is None
    else:
        assert found is not None and sum(found.values()) == pytest.approx(1)
        assert found[labels[0]] == pytest.approx(expected)


def beside(*listed):
    """What an endpoint sends whose first token has these likely ones."""
    tops = [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in listed]
    return {"content": [{**tops[0], "top_logprobs": tops}]}


@pytest.fixture
def thinking(faulty, monkeypatch):
    """An endpoint that begins a verdict with a label while its `labels` is true, and with a thought else."""
    with faulty.serve() as endpoint:
        endpoint.labels = True
        send = faulty.Handler._send

        def with_tokens(self, body, *told, **also):
            asked = endpoint.seen[-1][2]
            if asked.get("top_logprobs"):
                reply = json.loads(body)
                first = "unknown" if endpoint.labels else "<think>"
                reply["choices"][0] |= {"finish_reason": "length", "logprobs": beside((first, 0.9), ("know", 0.05))}
                reply["choices"][0]["message"]["content"] = first
                body = json.dumps(reply).encode()
            send(self, body, *told, **also)

        monkeypatch.setattr(faulty.Handler, "_send", with_tokens)
        yield endpoint


def test_a_verdict_that_had_to_be_asked_for_again_is_two_calls_and_keeps_the_budget(thinking):
    """A judge's thinking was billed and counted nowhere, and max_calls did not hold."""
    thinking.labels = False
    program = RAISF(lambda query, k: [Passage("1", "Bergen is a port."), Passage("2", "Oslo is one.")], max_depth=0)
    program.set_lm(connect("openai/x", api_base=thinking.url))
    cost = program(question="Who?").trace.cost
    assert cost.lm_calls == len(thinking.seen) and cost.unmetered_calls == 0
    assert cost.prompt_tokens == 10 * len(thinking.seen)
    before = len(thinking.seen)
    program.max_calls = 1
    trace = program(question="Who else?").trace
    assert trace.root.route == "budget" and len(thinking.seen) == before + 1 == before + trace.cost.lm_calls


def test_verdicts_that_wait_while_a_server_is_found_out_are_one_call_each(faulty):
    with faulty.serve() as endpoint:  # which lists no tokens
        passages = [Passage(str(number), f"Town {number} is a port.") for number in range(6)]
        program = RAISF(lambda query, k: passages, k=6, use_know=False, max_depth=0)
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        assert program(question="Who?").trace.cost.lm_calls == len(endpoint.seen) > 7


def test_a_plain_predictors_usage_has_it_too(thinking):
    thinking.labels = False
    with dspy.track_usage() as usage:
        assert ask(connect("openai/x", api_base=thinking.url), "Who?").verdict in ("know", "unknown")
    assert usage.get_total_tokens()["openai/x"]["prompt_tokens"] == 20


def test_a_model_that_no_longer_says_a_label_is_asked_in_words_after_some_misses(thinking):
    """Each verdict cost two calls for ever, where it had given one probability once."""
    lm = connect("openai/x", api_base=thinking.url)
    assert "probabilities" in ask(lm, "Who?")
    thinking.labels = False
    for number in range(LATER_MISSES - 1):
        ask(lm, f"Who is {number}?")
    thinking.labels = True
    assert "probabilities" in ask(lm, "And who?")  # a miss now and then is none
    thinking.labels = False
    for number in range(LATER_MISSES + 3):
        ask(lm, f"Who was {number}?")
    assert not lm.scores_labels
    wished = [bool(body.get("top_logprobs")) for _, _, body in thinking.seen]
    assert sum(wished[-3 - 2 * LATER_MISSES :]) == LATER_MISSES and not any(wished[-3:])
