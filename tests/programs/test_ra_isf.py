"""The recursion of RA-ISF: each route, the references, the guards, the ablations."""

import threading

import dspy
import pytest

from raisf.programs.concurrency import Task, set_concurrency
from raisf.programs.questions import MAX_SUB_QUESTIONS
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM


def routes(trace):
    return [(node.question, node.route, node.answer) for node in trace.root.walk()]


def test_a_known_question_is_answered_from_memory(ask, scripted, plan, shelf):
    lm = scripted(root=plan(know=True))
    trace = ask(RAISF(shelf), lm)
    assert routes(trace) == [("root", "direct", "A(root)")]
    assert trace.root.know.verdict == "know"
    assert trace.cost.lm_calls == len(lm.calls) == 2
    assert trace.cost.retrievals == 0


def test_a_search_that_no_thread_has_begun_is_given_up_where_the_answer_is_known(plan, read, shelf):
    """An index server, or a retriever that is paid for, would be asked for passages that nobody reads."""
    busy, idle = threading.Event(), threading.Event()
    plans = {"root": plan(subs=["a"]), "a": plan(know=True)}

    def answer(fields):
        if "facts" in fields:  # the last call: now threads take up what still waits
            busy.set()
            Task(idle.set)
            assert idle.wait(10)
        return read(plans, fields)

    before = set_concurrency(2)
    try:
        for _ in range(4):  # all of its threads
            Task(busy.wait)
        with dspy.context(lm=ScriptedLM(answer)):
            trace = RAISF(shelf)(question="root").trace
    finally:
        busy.set()
        set_concurrency(before)
    assert trace.root.route == "decomposed" and shelf.queries == ["root"]


def test_an_unknown_question_is_read_from_its_relevant_passages_only(ask, scripted, plan, shelf):
    lm = scripted(root=plan(relevant=2))
    trace = ask(RAISF(shelf, k=4), lm)
    assert routes(trace) == [("root", "passages", "A(root)")]
    assert [p.judgement.verdict for p in trace.root.passages] == ["relevant"] * 2 + ["irrelevant"] * 2
    assert trace.root.evidence == "passage 1"
    read = str(lm.calls[-1]["passages"])
    assert "Title 2 | passage 2" in read and "passage 3" not in read
    assert trace.cost.lm_calls == len(lm.calls) == 1 + 4 + 1


def test_without_relevant_passages_the_sub_answers_are_composed(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a", "b"]), a=plan(know=True), b=plan(relevant=1))
    trace = ask(RAISF(shelf), lm)
    assert routes(trace) == [("root", "decomposed", "A(root)"), ("a", "direct", "A(a)"), ("b", "passages", "A(b)")]
    facts = str(lm.calls[-1]["facts"])
    assert "a = A(a)" in facts and "b = A(b)" in facts
    assert trace.root.reason == "from 2 of 2 sub-answers"
    assert trace.cost.retrievals == 2


def test_depth_counts_from_zero_and_deeper_than_max_depth_is_unknown(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a"]), a=plan(subs=["b"]), b=plan(know=True))
    trace = ask(RAISF(shelf, max_depth=1), lm)
    assert routes(trace)[-1] == ("b", "depth", "unknown")
    assert trace.root.reason.startswith("from 0 of 1 sub-answers and 0 of 5 passages")
    assert [node.depth for node in trace.root.walk()] == [0, 1, 2]
    # Algorithm 1 composes also from nothing but unknown sub-answers.
    assert "b = unknown" in str(lm.calls[-2]["facts"]) and "a = unknown" in str(lm.calls[-1]["facts"])
    assert ask(RAISF(shelf, max_depth=2), lm).root.answer == "A(root)"


def test_listwise_relevance_is_one_call(ask, scripted, plan, shelf):
    lm = scripted(root=plan(relevant=2))
    trace = ask(RAISF(shelf, relevance="listwise"), lm)
    assert [p.relevant for p in trace.root.passages] == [True, True, False, False, False]
    assert trace.cost.lm_calls == len(lm.calls) == 3


def test_without_evidence_it_answers_from_passages_at_once(ask, scripted, plan, shelf):
    program = RAISF(shelf, evidence=False)
    trace = ask(program, scripted(root=plan(relevant=2)))
    assert list(program.answer_from.signature.output_fields) == ["answer"]
    assert (trace.root.route, trace.root.answer, trace.root.evidence) == ("passages", "A(root)", None)


def test_pointwise_asks_of_each_passage_and_listwise_of_the_set_whether_it_suffices(shelf):
    alone, together = (RAISF(shelf, relevance=r).relevant.signature.instructions for r in ("pointwise", "listwise"))
    assert "whether the passage is relevant and sufficient" in alone
    assert "together are sufficient" in together and "all passages together do not suffice" in together


def test_listwise_numbers_that_no_passage_has_are_passed_over(ask, shelf):
    lm = ScriptedLM(lambda f: {"verdict": "unknown", "relevant_ids": [0, 2, 9], "evidence": "e", "answer": "yes"})
    trace = ask(RAISF(shelf, k=3, relevance="listwise"), lm)
    assert [p.relevant for p in trace.root.passages] == [False, True, False]


def test_a_listwise_judge_that_names_no_passage_is_unreadable_and_has_found_none_irrelevant(ask, shelf):
    """One that counts from 0 means the first passage."""
    lm = ScriptedLM(lambda f: {"verdict": "unknown", "relevant_ids": [0]})
    trace = ask(RAISF(shelf, k=3, relevance="listwise", use_decomposition=False), lm)
    assert [p.judgement.readable for p in trace.root.passages] == [False] * 3 and trace.unreadable == 1


def test_a_reference_is_filled_with_the_earlier_answer(ask, scripted, plan, shelf):
    lm = scripted(
        root=plan(subs=["who founded it?", "where was #1 born?"]),
        who=plan(know=True, answer="Ada"),
        where=plan(know=True, answer="Velm"),
    )
    trace = ask(RAISF(shelf), lm)
    assert [(n.question, n.waits_for) for n in trace.root.sub_questions] == [
        ("who founded it?", []),
        ("where was Ada born?", [1]),
    ]
    assert "where was Ada born? = Velm" in str(lm.calls[-1]["facts"])


def test_an_answer_in_bold_is_filled_in_without_its_asterisks(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["who founded it?", "where was #1 born?"]), who=plan(know=True, answer="**Ada Hill**"))
    who, where = ask(RAISF(shelf), lm).root.sub_questions
    assert (who.answer, where.question) == ("**Ada Hill**", "where was Ada Hill born?")
    assert "where was Ada Hill born?" in shelf.queries


def test_a_reference_to_an_unknown_answer_is_not_asked(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["x", "where was #1 born?", "y"]), y=plan(know=True))
    trace = ask(RAISF(shelf, max_depth=1), lm)
    x, where, y = trace.root.sub_questions
    assert (where.route, where.answer, where.reason) == ("reference", "unknown", "no answer for #1")
    assert x.answer == "unknown" and y.answer == "A(y)"
    assert not any("born" in call["question"] for call in lm.calls)


def test_a_number_sign_that_names_no_earlier_sub_question_is_text(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["who sang the #1 hit?", "when did #1 sing #3?"]), who=plan(know=True, answer="Ada"))
    trace = ask(RAISF(shelf), lm)
    assert [n.question for n in trace.root.sub_questions] == ["who sang the #1 hit?", "when did Ada sing #3?"]


def test_a_cycle_is_not_asked_again(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a"]), a=plan(subs=[" ROOT ?", "b"]), b=plan(know=True))
    trace = ask(RAISF(shelf), lm)
    assert routes(trace)[2] == ("ROOT ?", "cycle", "unknown")
    assert trace.root.answer == "A(root)"


def test_a_duplicate_costs_nothing_and_is_shown_once(ask, scripted, plan, shelf):
    lm = scripted(root=plan(subs=["a", "b", "A?"]), a=plan(relevant=1), b=plan(subs=["a"]))
    trace = ask(RAISF(shelf), lm)
    assert routes(trace) == [
        ("root", "decomposed", "A(root)"),
        ("a", "passages", "A(a)"),
        ("b", "decomposed", "A(b)"),
        ("a", "duplicate", "A(a)"),
        ("a", "duplicate", "A(a)"),
    ]
    assert sum(call["question"] == "a" for call in lm.calls) == 1 + 5 + 1
    assert shelf.queries.count("a") == 1


def test_a_question_that_max_depth_cut_is_solved_where_there_is_room(ask, scripted, plan, shelf):
    """Sharing whole nodes would give the deep one's "unknown" to the shallow one, or not, as the threads fell."""
    lm = scripted(root=plan(subs=["a", "x"]), a=plan(subs=["x"]), x=plan(subs=["y"]), y=plan(know=True))
    trace = ask(RAISF(shelf, max_depth=2), lm)
    deep = trace.root.sub_questions[0].sub_questions[0]
    shallow = trace.root.sub_questions[1]
    assert (deep.question, deep.depth, deep.answer) == ("x", 2, "unknown")
    assert (shallow.question, shallow.depth, shallow.answer) == ("x", 1, "A(x)")


@pytest.mark.parametrize("subs", [[], ["", "  ", "?"]])
def test_an_empty_decomposition_is_unknown_with_a_reason(ask, scripted, plan, shelf, subs):
    trace = ask(RAISF(shelf), scripted(root=plan(subs=subs)))
    assert (trace.root.route, trace.root.answer) == ("no_sub_questions", "unknown")
    assert "no sub-question" in trace.root.reason


def test_a_rambling_decomposition_is_cut(ask, scripted, plan, shelf):
    subs = [f"s{number}" for number in range(300)]
    trace = ask(RAISF(shelf, max_depth=0), scripted(root=plan(subs=subs)))
    assert len(trace.root.sub_questions) == MAX_SUB_QUESTIONS


def test_no_skm_never_asks_the_self_knowledge_judge(ask, scripted, plan, shelf):
    trace = ask(RAISF(shelf, use_know=False), scripted(root=plan(know=True, relevant=1)))
    assert trace.root.route == "passages" and trace.root.know is None
    assert trace.cost.discarded_retrievals == 0


def test_no_prm_goes_straight_to_decomposition(ask, scripted, plan, shelf):
    trace = ask(RAISF(shelf, use_relevance=False), scripted(root=plan(relevant=5, subs=["a"]), a=plan(know=True)))
    assert [route for _, route, _ in routes(trace)] == ["decomposed", "direct"]
    assert not shelf.queries and trace.cost.retrievals == 0


def test_no_qdm_answers_unknown_where_no_passage_is_relevant(ask, scripted, plan, shelf):
    trace = ask(RAISF(shelf, use_decomposition=False), scripted(root=plan(subs=["a"]), a=plan(know=True)))
    assert routes(trace) == [("root", "no_passages", "unknown")]


def test_an_empty_shelf_and_a_k_beyond_the_corpus_are_no_errors(ask, scripted, plan, shelf):
    lm = scripted(root=plan(relevant=9))
    assert len(ask(RAISF(shelf, k=50), lm).root.passages) == 5
    shelf.size = 0
    for relevance in ("pointwise", "listwise"):
        assert ask(RAISF(shelf, relevance=relevance), lm).root.route == "no_sub_questions"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(
            ("k", 0),
            ("max_depth", -1),
            ("relevance", "pairwise"),
            ("max_calls", 0),
            ("max_seconds", 0.0),
            ("max_seconds", "3"),
        ),
        *(
            ("confidence_offset", "a"),
            ("confidence_offset", float("nan")),
            ("confidence_slope", float("inf")),
            ("confidence_slope", 0.0),
            ("samples", 1),
            ("samples", 51),
            ("max_seconds", float("inf")),
            ("know_threshold", 10**400),
        ),
    ],
)
def test_an_option_that_cannot_be_used_is_named(shelf, option, value):
    with pytest.raises(InputError, match=f"{option} is {value!r:.60}: give"):
        RAISF(shelf, **{option: value})


def test_sub_questions_are_asked_without_the_marks_around_them(ask, scripted, plan, shelf):
    """With them the question that stands above would not be known again, and be asked down to max_depth."""
    lm = scripted(root=plan(subs=["1. **Root?**", "2. a of #1", "3. b"]), b=plan(know=True))
    subs = ask(RAISF(shelf), lm).root.sub_questions
    assert [(sub.question, sub.route) for sub in subs] == [
        ("Root?", "cycle"),
        ("a of #1", "reference"),
        ("b", "direct"),
    ]


def test_a_last_word_that_there_are_no_more_ends_the_list_and_any_other_refusal_is_no_list(ask, scripted, plan, shelf):
    more = "No further sub-questions are needed."
    trace = ask(RAISF(shelf), scripted(root=plan(subs=["a?", "b of #1?", more]), a=plan(know=True), b=plan(know=True)))
    assert [sub.question for sub in trace.root.sub_questions] == ["a?", "b of A(a?)?"] and trace.unreadable == 0
    for subs in ([more], ["I cannot break this down.", "a?"], ["Some prose.", "It is too simple."]):
        trace = ask(RAISF(shelf), scripted(root=plan(subs=subs)))
        assert (trace.root.reason, trace.unreadable) == ("the decomposition could not be read", 1)


def test_a_number_that_never_ends_names_no_sub_question(ask, scripted, plan, shelf):
    """Small LMs repeat a digit up to their token limit, and Python turns no text of that length into a number."""
    runaway = "b of #" + "1" * 5000
    trace = ask(RAISF(shelf), scripted(root=plan(subs=["a", runaway]), a=plan(know=True), b=plan(know=True)))
    assert [(sub.question, sub.waits_for) for sub in trace.root.sub_questions] == [("a", []), (runaway, [])]
