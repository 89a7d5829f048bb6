"""What holds for every tree, whatever the LM says."""

from collections import Counter

import dspy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raisf.programs.concurrency import set_concurrency
from raisf.programs.ra_isf import RAISF
from raisf.programs.trace import Trace
from tests.scripted import ScriptedLM

NAMES = ["root", "a", "b", "c", "d"]
SUB_QUESTIONS = st.sampled_from([*NAMES, "A?", " b ", "c of #1", "d of #2 and #1", "#3", "", "e"])
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def plans(draw, plan):
    """A few words, and how the LM treats a question that begins with each; the rest it does not know."""
    return {
        name: draw(
            st.builds(
                plan,
                know=st.booleans(),
                relevant=st.sampled_from([0, 0, 0, 1, 5]),
                subs=st.lists(SUB_QUESTIONS, max_size=4),
                answer=st.sampled_from([None, None, "unknown", "x"]),
            )
        )
        for name in NAMES
    }


OPTIONS = st.fixed_dictionaries(
    {
        "k": st.integers(1, 3),
        "max_depth": st.integers(0, 3),
        "relevance": st.sampled_from(["pointwise", "listwise"]),
        "use_know": st.booleans(),
        "use_relevance": st.booleans(),
        "use_decomposition": st.booleans(),
    }
)


def solve(lm, shelf, **options) -> Trace:
    with dspy.context(lm=lm):
        return RAISF(shelf, **options)(question="root").trace


def without_time(trace: Trace) -> Trace:
    """The trace less its clock, and less the searches that ran beside a judge that then said know."""
    for node in trace.root.walk():
        node.seconds = 0.0
    trace.cost = trace.cost.model_copy(update={"seconds": 0.0, "discarded_retrievals": 0})
    return trace


@SETTINGS
@given(data=st.data(), options=OPTIONS)
def test_every_tree_is_whole(data, options, plan, read, shelf):
    chosen = data.draw(plans(plan))
    lm = ScriptedLM(lambda fields: read(chosen, fields))
    trace = solve(lm, shelf, **options)
    assert Trace.model_validate_json(trace.model_dump_json()) == trace
    assert trace.cost.lm_calls == len(lm.calls)
    for node in trace.root.walk():
        assert node.answer and node.reason and node.reason != "not finished"
        assert node.depth <= options["max_depth"] + 1
        assert node.route == "depth" or node.depth <= options["max_depth"] or node.route == "reference"
        assert node.route in ("direct", "passages", "decomposed", "duplicate") or node.answer == "unknown"
        assert node.route != "duplicate" or not node.sub_questions
        assert (node.know is None) or options["use_know"]
        assert all(child.depth == node.depth + 1 for child in node.sub_questions)
    # No question is asked twice: two predictors at most see the same input (the self-knowledge judge and the direct
    # answer or the decomposition; listwise, the relevance judge and the reader).
    others = ("passage", "passages", "facts")
    asked = Counter((call["question"], *(str(call.get(name)) for name in others)) for call in lm.calls)
    assert max(asked.values(), default=0) <= 2


@SETTINGS
@given(data=st.data(), options=OPTIONS)
def test_side_by_side_gives_what_one_after_another_gives(data, options, plan, read, shelf):
    chosen = data.draw(plans(plan))
    lm = ScriptedLM(lambda fields: read(chosen, fields))
    together = without_time(solve(lm, shelf, **options))
    before = set_concurrency(1)
    try:
        alone = without_time(solve(lm, shelf, **options))
    finally:
        set_concurrency(before)
    assert together == alone


@SETTINGS
@given(data=st.data(), options=OPTIONS, max_calls=st.integers(1, 25))
def test_the_budget_holds(data, options, max_calls, plan, read, shelf):
    chosen = data.draw(plans(plan))
    lm = ScriptedLM(lambda fields: read(chosen, fields))
    trace = solve(lm, shelf, **options, max_calls=max_calls)
    assert trace.cost.lm_calls == len(lm.calls) <= max_calls
    for node in trace.root.walk():
        assert node.answer and node.reason != "not finished"


@settings(SETTINGS, max_examples=10)
@given(seed=st.integers(0, 2**32), limit=st.integers(2, 6))
def test_no_nesting_blocks_few_threads(seed, limit, shelf):
    """A deep and bushy tree ends also where there are far fewer threads than tasks."""

    def bushy(fields):
        if "passage" in fields:
            return {"verdict": "irrelevant"}
        name = fields["question"]
        subs = [f"{name}{(seed >> (2 * n)) % 4}{n}" for n in range(3)] + [f"{name} then #2"]
        return {"verdict": "unknown" if len(name) < 8 else "know", "sub_questions": subs, "answer": "x"}

    before = set_concurrency(limit)
    try:
        lm = ScriptedLM(bushy)
        assert solve(lm, shelf, k=2, max_depth=2).root.answer
        assert lm.most_at_once <= limit
    finally:
        set_concurrency(before)
