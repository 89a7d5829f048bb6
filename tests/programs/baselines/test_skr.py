"""SKR-knn: what fitting keeps, how the neighbours vote, and that what was learnt is kept."""

import subprocess
import sys

import dspy
import pytest

from raisf.evaluation.identity import describe
from raisf.optimize.optimizers.fit_skr import FitSKR
from raisf.programs.baselines.skr import SKR, vote
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

RIVERS = ["Which river flows through Velm?", "How long is the river Oss?", "Where does the river Tarn begin?"]
SUM = "What is one and one?"
WRITERS = ["Who wrote the novel Ember?", "Which novel did Ada write first?", "Who is the author of Dusk?"]


def script():
    """Knows the writers by heart, reads the rivers, and is wrong about both the other way round; always adds right."""

    def respond(fields):
        knows, reads = "river" not in fields["question"], "passages" in fields
        right = knows != reads or fields["question"] == SUM
        return {"evidence": "e", "reasoning": "r", "answer": "right" if right else "wrong"}

    return ScriptedLM(respond)


def examples(questions, answer="right"):
    return [dspy.Example(question=q, answer=answer).with_inputs("question") for q in questions]


@pytest.fixture
def fit(tmp_path):
    return lambda program, train: FitSKR(work=tmp_path / "work", progress=False).compile(program, trainset=train)


@pytest.fixture
def fitted(shelf, fit):
    with dspy.context(lm=script()):
        return fit(SKR(shelf, neighbours=3), examples([*RIVERS, *WRITERS]))


def test_a_question_is_treated_like_the_training_questions_it_resembles(ask, fitted):
    trace = ask(fitted, script(), "Which river flows past the town of Brell?")
    assert (trace.root.route, trace.root.answer, trace.root.know.verdict) == ("passages", "right", "unknown")
    trace = ask(fitted, script(), "Who is the author of the novel Ash?")
    assert (trace.root.route, trace.root.answer, trace.root.know.verdict) == ("direct", "right", "know")
    assert (trace.cost.lm_calls, trace.cost.retrievals) == (1, 0)


def test_fitting_keeps_what_was_right_and_whether_it_needed_retrieval_as_the_papers_equation_4(shelf, fit):
    train = [*examples([RIVERS[0], WRITERS[0], SUM]), *examples([RIVERS[1]], "neither")]
    with dspy.context(lm=script()):
        program = fit(SKR(shelf), train)
    helped = {RIVERS[0]: True, WRITERS[0]: False, SUM: False}
    assert program.cases == [{"question": question, "helped": needed} for question, needed in helped.items()]


def test_labels_come_from_answers_step_by_step_as_in_the_paper_or_from_answers_at_once(shelf, fit):
    train = examples([RIVERS[0], WRITERS[0]])
    for labelled_by, reasons in (("reasoning", True), ("answer", False)):
        lm = script()
        with dspy.context(lm=lm):
            program = SKR(shelf, labelled_by=labelled_by)
            assert [p.system for p in program.compared()] == (["cot", "cot-rag"] if reasons else ["direct", "rag"])
            assert len(fit(program, train).cases) == 2
    with pytest.raises(InputError, match="labelled_by is 'gold': give reasoning or answer"):
        SKR(shelf, labelled_by="gold")


def test_labels_come_from_the_lms_of_the_program_itself(shelf, fit):
    own, elsewhere = script(), script()
    program = SKR(shelf)
    program.set_lm(own)
    with dspy.context(lm=elsewhere):
        fit(program, examples([RIVERS[0], WRITERS[0]]))
    assert len(own.calls) == 4 and not elsewhere.calls


def test_a_training_set_that_says_nothing_is_refused(shelf, fit):
    with dspy.context(lm=script()), pytest.raises(InputError, match="none of 1 training questions was answered right"):
        fit(SKR(shelf), examples(RIVERS[:1], "neither"))


def test_unfitted_it_says_what_to_do(shelf):
    with dspy.context(lm=script()), pytest.raises(InputError, match="has not been fitted: compile it"):
        SKR(shelf)(question="root")


@pytest.mark.parametrize(
    ("nearest", "everyone", "knows"),
    [
        ([False, True], [False, True], True),  # no less than the base rate
        ([False, True, True], [False, True], False),
        ([False, True, True], [False, *[True] * 9], True),  # few were known: one in three is many
        ([True], [True, True], False),  # nothing was ever known
        ([False], [False, False], True),  # nothing was ever helped
    ],
)
def test_the_vote_is_measured_against_the_base_rate(nearest, everyone, knows):
    assert vote(nearest, everyone)[1] == knows


def test_what_was_learnt_is_saved_loaded_and_part_of_what_it_is(ask, fitted, shelf, tmp_path):
    from raisf.optimize.artifact import load, save

    save(fitted, tmp_path / "skr")
    again = load(tmp_path / "skr", lm=script(), retriever=shelf)
    assert isinstance(again, SKR) and again.cases == fitted.cases
    assert again(question="Which river flows past the town of Brell?").trace.root.route == "passages"
    with dspy.context(lm=script()):  # else a run could go on with the records of another fit
        assert describe(fitted) != describe(SKR(shelf, neighbours=3, cases=fitted.cases[:2]))


@pytest.mark.parametrize("cases", ["all", [{"question": "Who?"}], [{"question": "Who?", "helped": 1}], {}])
def test_what_no_fit_has_found_is_refused(shelf, cases):
    """An artifact with other cases ended in a KeyError at the first question."""
    with pytest.raises(InputError, match=r"cases is .*FitSKR"):
        SKR(shelf, cases=cases)


def test_a_spent_budget_ends_it(ask, fitted):
    replies = iter(["mumble", "mumble"])
    lm = ScriptedLM(lambda f: next(replies))
    lm.adapter = dspy.ChatAdapter()  # its second try in JSON is one call too many
    fitted.max_calls = 1
    assert ask(fitted, lm, WRITERS[0]).root.route == "budget"


@pytest.mark.slow
def test_the_first_questions_may_come_from_many_threads_at_once():
    """As an endpoint's in a new process: some found no `AutoModel` in transformers, and counted as wrong."""
    script = (
        "from concurrent.futures import ThreadPoolExecutor; from threading import Barrier\n"
        "from raisf.programs.baselines.skr import embed\n"
        "from raisf.retrieval.engines import dense\n"
        "together = Barrier(8)\n"
        "with ThreadPoolExecutor(8) as threads:\n"
        "    dims = [*threads.map(lambda n: (together.wait(), embed([f'{n}?']).shape)[1], range(8))]\n"
        "assert dims == [(1, 384)] * 8 and dense._load.cache_info().misses == 1"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
