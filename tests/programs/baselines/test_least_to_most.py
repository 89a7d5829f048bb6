"""Least-to-Most: the order of the parts, what each prompt carries, and what is not asked."""

from raisf.programs.baselines.least_to_most import LeastToMost
from tests.scripted import ScriptedLM


def script(subs, answers):
    """Decomposes "root" into `subs`; answers what `answers` has, "unknown" otherwise."""
    return ScriptedLM(lambda f: {"sub_questions": subs, "answer": answers.get(f["question"], "unknown")})


def test_each_part_sees_all_earlier_answers_and_the_question_comes_last(ask):
    lm = script(["who?", "where is #1?", "how old is #1 in #2?"], {"who?": "Ada", "where is Ada?": "Velm", "root": "7"})
    trace = ask(LeastToMost(), lm)
    assert [call["question"] for call in lm.calls] == [
        "root",
        "who?",
        "where is Ada?",
        "how old is Ada in Velm?",
        "root",
    ]
    assert "facts" not in lm.calls[1]  # nothing is known yet
    assert lm.calls[2]["facts"] == ["who? = Ada"]
    assert lm.calls[4]["facts"] == ["who? = Ada", "where is Ada? = Velm", "how old is Ada in Velm? = unknown"]
    assert (trace.root.route, trace.root.answer) == ("decomposed", "7")
    assert trace.root.reason == "from 2 of 3 sub-answers"
    assert [sub.waits_for for sub in trace.root.sub_questions] == [[], [1], [1, 2]]
    assert trace.cost.retrievals == 0 and trace.cost.lm_calls == 5


def test_a_part_that_names_an_unsolved_one_is_not_asked_and_the_question_still_is(ask):
    lm = script(["who?", "where is #1?"], {"root": "x"})
    trace = ask(LeastToMost(), lm)
    assert [sub.route for sub in trace.root.sub_questions] == ["direct", "reference"]
    assert lm.calls[-1]["facts"] == ["who? = unknown", "where is #1? = unknown"]
    assert trace.root.answer == "x" and trace.cost.lm_calls == 3


def test_without_parts_the_question_is_asked_plainly(ask):
    unread = ScriptedLM(lambda f: {"answer": "x"})
    for lm, why in ((script([], {"root": "x"}), "gave no sub-question"), (unread, "could not be read")):
        trace = ask(LeastToMost(), lm)
        assert (trace.root.route, trace.root.answer) == ("direct", "x")
        assert why in trace.root.reason and trace.cost.lm_calls == 2


def test_a_rambling_decomposition_is_cut(ask):
    trace = ask(LeastToMost(), script([f"part {n}" for n in range(50)], {"root": "x"}))
    assert len(trace.root.sub_questions) == 10


def test_a_spent_budget_keeps_what_was_solved(ask):
    lm = script(["who?", "where is #1?"], {"who?": "Ada"})
    trace = ask(LeastToMost(max_calls=2), lm)
    assert trace.root.route == "budget" and trace.root.answer == "unknown"
    assert [sub.answer for sub in trace.root.sub_questions] == ["Ada", "unknown"]
    assert trace.root.sub_questions[1].route == "budget"


def test_every_prompt_after_the_first_asks_to_answer_from_memory_with_the_earlier_answers_in_sight():
    instructions = LeastToMost().compose.signature.instructions
    assert "from memory" in instructions and "from the facts" not in instructions
