"""Self-Ask: when it stops, and what it answers from."""

import pytest

from raisf.programs.baselines.self_ask import SelfAsk
from tests.scripted import ScriptedLM


def script(follow_ups, answers):
    """Asks the follow-ups in order, by how many facts there are; reads and composes what `answers` has."""

    def answer(fields):
        number = len(fields.get("facts", []))
        follow_up = follow_ups[number] if number < len(follow_ups) else "none"
        found = answers.get(fields["question"], "unknown")
        return {"follow_up": follow_up, "evidence": "text a", "answer": found}

    return ScriptedLM(answer)


def test_it_asks_on_until_none_and_composes_from_the_facts(ask, library):
    shelf = library({"who?": "a b", "where is Ada?": "c"})
    lm = script(["who?", "where is Ada?"], {"who?": "Ada", "where is Ada?": "Velm", "root": "Velm, then"})
    trace = ask(SelfAsk(shelf), lm)
    assert (trace.root.route, trace.root.answer) == ("decomposed", "Velm, then")
    assert lm.calls[-1]["facts"] == [
        "Follow up: who? Intermediate answer: Ada",
        "Follow up: where is Ada? Intermediate answer: Velm",
    ]
    assert shelf.queries == ["who?", "where is Ada?"]  # never the whole question
    assert [[p.pid for p in sub.passages] for sub in trace.root.sub_questions] == [["a", "b"], ["c"]]
    assert trace.root.sub_questions[0].evidence == "text a"
    assert trace.cost.lm_calls == 3 + 2 + 1 and trace.cost.retrievals == 2


STOPS = ["none", "None.", "NO", "", "who?", " Who ", "none needed", "No further questions.", "None, the facts suffice."]
STOPS += ["No follow-up question is needed.", "No additional question is needed.", "The facts suffice."]
STOPS += [
    "The facts are sufficient.",
    "So the final answer is: Ada",
    "Final answer: Ada",
    "Follow up: none",
    "**None**",
]


@pytest.mark.parametrize("stop", STOPS)
def test_none_or_the_same_question_again_ends_the_asking(ask, library, stop):
    lm = script(["who?", stop or " "], {"who?": "Ada", "root": "Ada"})
    trace = ask(SelfAsk(library({"who?": "a"})), lm)
    assert len(trace.root.sub_questions) == 1 and trace.root.answer == "Ada"


@pytest.mark.parametrize(
    "said",
    [
        "Follow up: where is Ada?",
        "**Follow-up question:** where is Ada?",
        "where is Ada?\nIntermediate answer: Velm",
        "**where is Ada?**",
        '"where is Ada?"',
    ],
)
def test_a_follow_up_in_the_form_of_the_facts_is_asked_as_the_question_that_it_is(ask, library, said):
    """An LM goes on in the form that it reads; these words were searched for, and stood in the next prompt twice."""
    shelf = library({"where is Ada?": "c"})
    trace = ask(SelfAsk(shelf), script([said], {"where is Ada?": "Velm", "root": "Velm"}))
    assert shelf.queries == ["where is Ada?"] and trace.root.answer == "Velm"


def test_what_only_begins_like_a_refusal_is_asked(ask, library):
    for follow_up in ("No further seasons of which series were made?", "The final answer is whose book?"):
        trace = ask(SelfAsk(library({})), script([follow_up], {"root": "x"}))
        assert [sub.question for sub in trace.root.sub_questions] == [follow_up]


def test_an_unreadable_follow_up_ends_the_asking(ask, library):
    lm = ScriptedLM(
        lambda f: {"answer": "x", "evidence": "e"} | ({"follow_up": "who?"} if f.get("facts") == [] else {})
    )
    trace = ask(SelfAsk(library({"who?": "a"})), lm)
    assert trace.root.answer == "x" and trace.unreadable == 1 and len(trace.root.sub_questions) == 1


def test_it_asks_no_more_than_it_may(ask, library):
    lm = script([f"question {n}?" for n in range(20)], {"root": "x"})
    trace = ask(SelfAsk(library({}), max_follow_ups=3), lm)
    assert [sub.question for sub in trace.root.sub_questions] == [f"question {n}?" for n in range(3)]
    assert trace.root.answer == "x"
    assert trace.root.reason == "from 0 of 3 follow-up answers"


def test_without_a_follow_up_it_answers_from_memory(ask, library):
    trace = ask(SelfAsk(library({})), script([], {"root": "Ada"}))
    assert (trace.root.route, trace.root.answer, trace.cost.retrievals) == ("direct", "Ada", 0)


def test_a_spent_budget_ends_it(ask, library):
    lm = script(["who?", "where?"], {"who?": "Ada", "where?": "Velm"})
    trace = ask(SelfAsk(library({}), max_calls=3), lm)
    assert (trace.root.route, trace.root.answer) == ("budget", "unknown")
    assert [sub.answer for sub in trace.root.sub_questions] == ["Ada", "unknown"]


def test_the_last_call_asks_for_the_final_answer_and_not_for_one_from_the_facts_alone(library):
    instructions = SelfAsk(library({})).compose.signature.instructions
    assert "final answer" in instructions and "from the facts" not in instructions


def test_an_lm_that_reads_only_what_it_was_trained_on_sees_its_own_form(ask, library):
    lm = script(["who?"], {"who?": "Ada", "root": "Ada"})
    lm.adapter.instructions = False  # as the pocket models' adapter has it
    ask(SelfAsk(library({"who?": "a"})), lm)
    assert lm.calls[-1]["facts"] == ["who? = Ada"]


def test_without_evidence_a_follow_up_is_answered_at_once(ask, library):
    program = SelfAsk(library({"who?": "a"}), evidence=False)
    trace = ask(program, script(["who?"], {"who?": "Ada", "root": "Ada"}))
    assert "evidence" not in program.answer_from.signature.output_fields
    assert trace.root.sub_questions[0].evidence is None and trace.root.answer == "Ada"
