"""Self-RAG: when it retrieves, how an answer's score is made, which answer wins."""

import math
import re

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.programs.baselines.self_rag import SelfRAG
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def script(retrieve="yes", relevant=(), support=None, useful=None, unknown=()):
    """Critiques by the number in the passage's title; the answer from passage n is "answer n"."""
    support, useful = support or {}, useful or {}

    def respond(fields):
        text = str(fields.get("passage") or fields.get("passages") or fields.get("answer") or "0")
        number = int("".join(c for c in text.split("|")[0] if c.isdigit()) or 0)
        return {
            "retrieve": retrieve,
            "verdict": "relevant" if number in relevant else "irrelevant",
            "evidence": f"passage {number}",
            "answer": "unknown" if number in unknown else f"answer {number}" if number else "from memory",
            "support": support.get(number, "none"),
            "usefulness": useful.get(number, "3"),
        }

    return ScriptedLM(respond)


def with_probabilities(lm, **labels):
    """The LM as one that gives probabilities: of each label that is named, of the others none."""

    class Scoring(dspy.ChatAdapter):
        def _call_postprocess(self, processed_signature, original_signature, outputs, lm, lm_kwargs):
            values = super()._call_postprocess(processed_signature, original_signature, outputs, lm, lm_kwargs)
            given = labels.get(next(iter(original_signature.output_fields)))
            return [{**value, "probabilities": given} if given else value for value in values]

    lm.adapter = Scoring(use_json_adapter_fallback=False)
    return lm


def test_the_best_critique_wins(ask, shelf):
    lm = script(relevant=[1, 2], support={1: "partially", 2: "fully", 3: "fully"}, useful={1: "5", 2: "4", 3: "5"})
    trace = ask(SelfRAG(shelf, k=3), lm)
    # 1: 1 + 1 + 0.5 + 0.5; 2: 1 + 1 + 1 + 0.25; 3: 1 + 0 + 1 + 0.5
    assert (trace.root.route, trace.root.answer) == ("passages", "answer 2")
    assert trace.root.reason == "from passage 2 of 3, score 3.25"
    assert trace.root.evidence == "passage 2"
    assert [passage.relevant for passage in trace.root.passages] == [True, True, False]
    assert trace.root.steps[1].generation.startswith("answer 1: 3.00 = fluency 1.00 + relevance 1.00 + support 0.50")
    assert trace.cost.lm_calls == 1 + 3 * 4 and trace.cost.retrievals == 1


def test_an_answer_is_as_sure_as_the_passage_that_it_was_taken_from(shelf):
    """Not as another passage, which the judge took for the most relevant one and whose answer was not taken."""

    class Scoring(dspy.ChatAdapter):
        def _call_postprocess(self, processed_signature, original_signature, outputs, lm, lm_kwargs):
            values = super()._call_postprocess(processed_signature, original_signature, outputs, lm, lm_kwargs)
            sure = {"relevant": 0.9, "irrelevant": 0.3}
            return [
                {**value, "probabilities": {"relevant": sure[value["verdict"]]}} if "verdict" in value else value
                for value in values
            ]

    lm = script(relevant=[1], support={2: "fully"})
    lm.adapter = Scoring(use_json_adapter_fallback=False)
    for weight, number, wanted in ((0.0, 2, 0.3), (9.0, 1, 0.9)):
        with dspy.context(lm=lm):
            found = SelfRAG(lambda query, k: ["answer 1", "answer 2"], relevance_weight=weight)(question="root")
        assert (found.answer, found.trace.root.confidence) == (f"answer {number}", wanted)


def test_an_answer_that_its_passage_does_not_hold_is_not_as_sure_as_the_passage(ask):
    lm = with_probabilities(script(relevant=[1]), verdict={"relevant": 0.9, "irrelevant": 0.1})
    made_up = ask(SelfRAG(lambda query, k: ["passage 1"]), lm).root
    assert (made_up.answer, made_up.grounded, made_up.confidence) == ("answer 1", False, 0.0)


def test_the_weights_decide(ask, shelf):
    lm = script(relevant=[1], support={2: "fully"}, useful={3: "5"})
    for weights, winner in (((2, 1, 1), 1), ((1, 2, 1), 2), ((1, 1, 2), 3)):
        options = dict(zip(("relevance_weight", "support_weight", "usefulness_weight"), weights, strict=True))
        assert ask(SelfRAG(shelf, k=3, **options), lm).root.answer == f"answer {winner}"


def test_equal_scores_leave_the_retrievers_order(ask, shelf):
    assert ask(SelfRAG(shelf), script()).root.answer == "answer 1"


def test_what_needs_no_retrieval_is_answered_from_memory(ask, shelf):
    trace = ask(SelfRAG(shelf), script(retrieve="no"))
    assert (trace.root.route, trace.root.answer) == ("direct", "from memory")
    assert (trace.cost.lm_calls, trace.cost.retrievals) == (2, 0)


@pytest.mark.parametrize(("probability", "retrieves"), [(0.19, False), (0.2, False), (0.21, True)])
def test_a_probability_of_yes_above_the_threshold_retrieves(ask, shelf, probability, retrieves):
    lm = with_probabilities(script(retrieve="no"), retrieve={"yes": probability, "no": 1 - probability})
    trace = ask(SelfRAG(shelf), lm)
    assert (trace.cost.retrievals == 1) == retrieves
    assert f"p={probability:.2f}" in trace.root.steps[0].generation


def test_the_critiques_probabilities_count_where_there_are_any(ask, shelf):
    lm = with_probabilities(
        script(),
        verdict={"relevant": 0.25, "irrelevant": 0.75},
        support={"fully": 0.5, "partially": 0.25, "none": 0.25},
        usefulness={"1": 0.0, "2": 0.0, "3": 0.5, "4": 0.0, "5": 0.5},
    )
    trace = ask(SelfRAG(shelf, k=1), lm)
    assert trace.root.reason.endswith(f"score {1 + 0.25 + (0.5 + 0.125) + 0.5 * 0.5:.2f}")


def test_the_answers_own_probability_counts_where_there_is_one(ask, shelf):
    class Logprobs(dspy.ChatAdapter):
        def _call_postprocess(self, processed_signature, original_signature, outputs, lm, lm_kwargs):
            values = super()._call_postprocess(processed_signature, original_signature, outputs, lm, lm_kwargs)
            tokens = [("as 1 says", 0.9), ("\nanswer:", 0.9), (" answer", 0.5), (" 1", 0.125), ("\n\n", 0.9)]
            told = [{"token": token, "logprob": math.log(probability)} for token, probability in tokens]
            return [{**value, "logprobs": {"content": told}} for value in values]

    lm = script()
    lm.adapter = Logprobs(use_json_adapter_fallback=False)
    # The quotation and the format around them are sure, and say nothing about the answer.
    assert ask(SelfRAG(shelf, k=1), lm).root.reason.endswith("score 0.25")


def test_a_local_lm_is_asked_for_its_own_probabilities(ask, shelf):
    trace = ask(SelfRAG(shelf, k=1, threshold=0.0), connect("pocket"))
    assert re.search(r" = fluency 0\.\d\d \+ relevance ", trace.root.steps[-1].generation)


def test_a_passage_without_an_answer_is_out_of_the_running(ask, shelf):
    lm = script(relevant=[1], support={1: "fully"}, unknown=[1])
    trace = ask(SelfRAG(shelf, k=2), lm)
    assert trace.root.answer == "answer 2"
    assert trace.cost.lm_calls == 1 + 2 + 4  # what is no answer needs no critique
    trace = ask(SelfRAG(shelf, k=2), script(unknown=[1, 2]))
    assert trace.root.answer == "unknown" and "none gave an answer" in trace.root.reason


def test_an_unreadable_critique_counts_for_nothing_and_an_unreadable_need_retrieves(ask, shelf):
    lm = ScriptedLM(lambda f: {"evidence": "e", "answer": "x"} if "passages" in f else "mumble")
    trace = ask(SelfRAG(shelf, k=2), lm)
    assert trace.root.answer == "x" and trace.root.reason.endswith("score 1.00")
    assert trace.unreadable == 1 + 2 * 2 + 1  # both answers are x: their usefulness is asked once


WRONG = [("threshold", "high"), ("threshold", 1.0), ("support_weight", "1"), ("usefulness_weight", None)]


@pytest.mark.parametrize(("option", "wrong"), WRONG)
def test_options_that_cannot_be_counted_with_are_told_at_once(shelf, option, wrong):
    with pytest.raises(InputError, match=f"{option} is {wrong!r}: give a "):
        SelfRAG(shelf, **{option: wrong})


@pytest.mark.parametrize("limit", range(1, 9))
def test_a_spent_budget_ends_it(ask, shelf, limit):
    trace = ask(SelfRAG(shelf, k=2, max_calls=limit), script())
    assert (trace.root.route, trace.root.answer, trace.cost.lm_calls) == ("budget", "unknown", limit)
