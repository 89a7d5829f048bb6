"""BlendFilter: the three queries, what each filter keeps, the union, the ablations."""

import pytest

from raisf.lm.scripted import ScriptedLM
from raisf.programs.baselines.blendfilter import BlendFilter
from raisf.utils.errors import InputError

EXTERNAL, INTERNAL = "Ada, it says. Ada root", "Ada was born in Velm. root"
FOUND = {"root": "a b", EXTERNAL: "b c", INTERNAL: "d e"}


def script(keep):
    """Keeps the passages whose letters are in `keep`; reasons about Ada; answers with the letters that it reads."""

    def respond(fields):
        passages = fields.get("passages", [])
        letters = [passage[0].lower() for passage in passages]
        return {
            "background": "Ada was born in Velm.",
            "helpful_ids": [number for number, letter in enumerate(letters, 1) if letter in keep] + [0, 9],
            "reasoning": "Ada, it says.",
            "answer": "Ada" if letters == ["a", "b"] else "".join(letters) or "memory",
        }

    return ScriptedLM(respond)


def test_three_queries_are_filtered_apart_and_read_together(ask, library):
    shelf = library(FOUND)
    lm = script(keep="bd")
    trace = ask(BlendFilter(shelf), lm)
    assert sorted(shelf.queries) == sorted(FOUND)  # the plain search serves the reasoning too
    assert trace.root.answer == "bd"  # b was found twice and is read once
    assert trace.root.reason == "from 2 of 5 passages"
    assert [step.query for step in trace.root.steps] == ["root", EXTERNAL, INTERNAL, None]
    assert [[p.relevant for p in step.passages] for step in trace.root.steps[:3]] == [
        [False, True],
        [True, False],
        [True, False],
    ]
    # Reasoning, passage, three filters, answer.
    assert (trace.cost.lm_calls, trace.cost.retrievals) == (6, 3)


@pytest.mark.parametrize(
    ("without", "queries", "answer"),
    [("use_question", [EXTERNAL, INTERNAL], "bcde"), ("use_external", ["root", INTERNAL], "abde"),
     ("use_internal", ["root", EXTERNAL], "abc")],
)  # fmt: skip
def test_an_ablation_leaves_out_one_query(ask, library, without, queries, answer):
    trace = ask(BlendFilter(library(FOUND), **{without: False}), script(keep="abcde"))
    assert [step.query for step in trace.root.steps if step.query] == queries
    assert trace.root.answer == answer


def test_at_least_one_query_is_needed(library):
    with pytest.raises(InputError, match="at least one query"):
        BlendFilter(library({}), use_question=False, use_external=False, use_internal=False)


def test_where_the_filter_keeps_nothing_the_answer_is_from_memory(ask, library):
    lm = script(keep="")
    trace = ask(BlendFilter(library(FOUND)), lm)
    assert (trace.root.route, trace.root.answer) == ("direct", "memory")
    assert trace.root.passages == [] and "passages" not in lm.calls[-1]


def test_a_filter_that_cannot_be_read_keeps_nothing(ask, library):
    answers = {"reasoning": "Ada, it says.", "answer": "Ada", "background": "Ada was born in Velm."}
    trace = ask(BlendFilter(library(FOUND)), ScriptedLM(lambda f: answers))
    assert trace.root.route == "direct" and trace.unreadable == 3
    assert all(not passage.judgement.readable for step in trace.root.steps for passage in step.passages)


def test_an_augmentation_that_cannot_be_read_leaves_the_question_alone(ask, library):
    lm = ScriptedLM(lambda f: {"helpful_ids": [1]} if "passages" in f else "mumble")
    trace = ask(BlendFilter(library({"root": "a"})), lm)
    assert [step.query for step in trace.root.steps] == ["root"] * 3
    assert trace.cost.retrievals == 1 and trace.root.answer == "unknown"


def test_for_yes_no_questions_the_filter_names_no_topic(library):
    plain, yes_no = BlendFilter(library({})), BlendFilter(library({}), yes_no=True)
    assert "topic" in plain.filter.signature.instructions and "topic" not in yes_no.filter.signature.instructions
    assert "yes or no" in yes_no.reason_from.signature.instructions
    assert "yes or no" not in plain.reason_from.signature.instructions


@pytest.mark.parametrize("limit", range(1, 6))
def test_a_spent_budget_ends_it(ask, library, limit):
    trace = ask(BlendFilter(library(FOUND), max_calls=limit), script(keep="abcde"))
    assert (trace.root.route, trace.root.answer, trace.cost.lm_calls) == ("budget", "unknown", limit)
