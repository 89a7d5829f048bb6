"""BlendFilter: the three queries, what each filter keeps, the union, the ablations."""

import pytest

from raisf.programs.baselines.blendfilter import BlendFilter
from raisf.programs.registry import build
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

EXTERNAL, INTERNAL = "Ada, it says. Ada root", "Ada was born in Velm. root"
FOUND = {"root": "a b", EXTERNAL: "b c", INTERNAL: "d e"}


def script(keep):
    """Keeps the passages whose letters are in `keep`; reasons about Ada; answers with the letters that it reads."""

    def respond(fields):
        passages = fields.get("passages", [])
        letters = [passage[0].lower() for passage in passages]
        return {
            "background": "Ada was born in Velm.",
            "topic": "the life of Ada",
            "review": f"Of {' and '.join(letters)} some help.",
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
    # Reasoning, passage, the topic once, a review and a choice for each of three sets, answer.
    assert (trace.cost.lm_calls, trace.cost.retrievals) == (10, 3)


def test_the_filter_names_the_topic_reviews_step_by_step_and_then_gives_the_numbers(ask, library):
    lm = script(keep="b")
    ask(BlendFilter(library(FOUND), use_external=False, use_internal=False), lm)
    topic, review, choice, answer = lm.calls
    assert topic == {"question": "root"}
    assert (review["topic"], review["passages"]) == ("the life of Ada", ["A | text a", "B | text b"])
    assert (choice["review"], choice["passages"]) == ("Of a and b some help.", ["A | text a", "B | text b"])
    assert answer["passages"] == ["B | text b"]
    prompts = [str(call["messages"]) for call in lm.history]
    assert "general topic" in prompts[0]
    assert "Set aside what you know yourself" in prompts[1] and "step by step" in prompts[1]
    assert "List only the numbers" in prompts[2]


def test_a_yes_no_question_is_filtered_in_two_steps_and_answered_with_yes_or_no(ask, library):
    question = "Was Ada born in Velm?"
    lm = script(keep="a")
    ask(BlendFilter(library({question: "a"}), use_external=False, use_internal=False), lm, question)
    review, choice, answer = lm.calls
    assert "topic" not in review and "review" in choice and answer["passages"] == ["A | text a"]
    assert "The answer is yes or no only." in str(lm.history[-1]["messages"])


@pytest.mark.parametrize(("question", "yes_no", "closed"), [
    ("Was Ada born in Velm?", None, True), ("Where was Ada born?", None, False),
    ("Was Ada born in Velm?", False, False), ("Where was Ada born?", True, True),
])  # fmt: skip
@pytest.mark.parametrize("filter_steps", [True, False])
def test_the_form_goes_by_the_question_unless_it_is_told(ask, library, question, yes_no, closed, filter_steps):
    lm = script(keep="a")
    ask(BlendFilter(library({question: "a"}), yes_no=yes_no, filter_steps=filter_steps), lm, question)
    prompts = [str(call["messages"]) for call in lm.history]
    filters = [prompt for prompt in prompts if "helpful_ids" in prompt or "## review ##" in prompt]
    answers = [prompt for prompt in prompts if "## reasoning ##" in prompt]
    assert filters and answers
    assert any("general topic" in prompt or "the topic of" in prompt for prompt in prompts) == (not closed)
    assert any("set aside" in prompt.lower() for prompt in filters) == (not closed)
    assert all(("The answer is yes or no only." in prompt) == closed for prompt in answers)


def test_the_filter_in_one_call_is_an_option_and_what_the_pocket_models_read(ask, library):
    told, trained = script(keep="bd"), script(keep="bd")
    trained.adapter.instructions = False  # as the pocket models' adapter has it
    for lm, options in ((told, {"filter_steps": False}), (trained, {})):
        trace = ask(BlendFilter(library(FOUND), **options), lm)
        assert (trace.root.answer, trace.cost.lm_calls) == ("bd", 6)


def test_options_that_may_be_left_open_take_true_false_and_null_only(library):
    assert build("blendfilter", library({}), yes_no=True, filter_steps=None).yes_no is True
    with pytest.raises(InputError, match="yes_no is 'yes': give True or False"):
        build("blendfilter", library({}), yes_no="yes")


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
    answers = {"reasoning": "Ada, it says.", "answer": "Ada", "background": "Ada was born in Velm.", "topic": "Ada"}
    for reviews in ({}, {"review": "All of them."}):  # neither the review can be read, or the choice cannot
        trace = ask(BlendFilter(library(FOUND)), ScriptedLM(lambda f, found=answers | reviews: found))
        assert trace.root.route == "direct" and trace.unreadable == 3
        assert all(not passage.judgement.readable for step in trace.root.steps for passage in step.passages)


def test_an_augmentation_that_cannot_be_read_leaves_the_question_alone(ask, library):
    lm = ScriptedLM(lambda f: {"helpful_ids": [1]} if "passages" in f else "mumble")
    trace = ask(BlendFilter(library({"root": "a"})), lm)
    assert [step.query for step in trace.root.steps] == ["root"] * 3
    assert trace.cost.retrievals == 1 and trace.root.answer == "unknown"


@pytest.mark.parametrize("limit", range(1, 6))
def test_a_spent_budget_ends_it(ask, library, limit):
    trace = ask(BlendFilter(library(FOUND), max_calls=limit), script(keep="abcde"))
    assert (trace.root.route, trace.root.answer, trace.cost.lm_calls) == ("budget", "unknown", limit)
