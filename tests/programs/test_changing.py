"""A program that is made: predictors exchanged, options set anew, both taken up from DSPy's JSON."""

from typing import Any

import dspy
import numpy as np
import pytest

from raisf.optimize.judges.predictor_roles import judges_of, predictor_of
from raisf.programs.ra_isf import RAISF
from raisf.signatures.judges import ListwiseRelevance, SelfKnowledge
from raisf.utils.errors import InputError
from tests.scripted import ScriptedLM

# Predictors of one's own


def test_a_reader_that_would_not_see_the_passages_is_refused(shelf: Any) -> None:
    program = RAISF(shelf)
    for other in ("context: list[str], question -> answer", "question -> answer"):
        with pytest.raises(InputError, match="answer_from is asked for"):
            program.answer_from = dspy.ChainOfThought(other)
    with pytest.raises(InputError, match="decompose gives no list of sub_questions"):
        program.decompose = dspy.Predict("question -> sub_questions")


def test_a_judge_of_lists_may_reason_first(shelf: Any) -> None:
    program = RAISF(shelf, relevance="listwise")
    program.relevant = dspy.ChainOfThought(ListwiseRelevance)
    said = {"reasoning": "r", "verdict": "unknown", "relevant_ids": [2], "evidence": "e", "answer": "Rome"}
    program.set_lm(ScriptedLM(lambda fields: said))
    trace = program(question="root").trace
    assert trace.root.route == "passages" and [one.relevant for one in trace.root.passages][:3] == [False, True, False]


def test_a_judge_that_reasons_is_not_measured_alone_and_that_is_told(shelf: Any) -> None:
    program = RAISF(shelf)
    program.know = dspy.ChainOfThought(SelfKnowledge)
    assert "know" in judges_of(program)
    with pytest.raises(InputError, match="know of ra-isf reasons first"):
        predictor_of(program, SelfKnowledge)


def test_a_judge_may_reason_first(shelf: Any) -> None:
    program = RAISF(shelf)
    program.know = dspy.ChainOfThought(SelfKnowledge)
    program.set_lm(ScriptedLM(lambda fields: {"reasoning": "it is famous", "verdict": "know", "answer": "Rome"}))
    trace = program(question="root").trace
    assert (trace.root.route, trace.cost.lm_calls, trace.unreadable) == ("direct", 2, 0)
    assert "know" in dict(program.named_predictors())
    assert list(program.know.signature.output_fields) == ["reasoning", "verdict"]


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        (None, "is None"),
        (dspy.Module(), "is "),
        (dspy.Predict("question -> answer"), "has no output verdict"),
        (dspy.Predict("query, facts -> verdict"), "is asked for query, facts -> verdict"),
        (dspy.Predict("question, context -> verdict"), "is asked for question, context -> verdict"),
        (dspy.Predict("question -> verdict"), "gives another verdict than know or unknown"),
        (dspy.Predict("question -> verdict: Literal['yes', 'no']"), "gives another verdict than know or unknown"),
    ],
)
def test_what_cannot_judge_is_told_where_it_is_put(other: Any, wrong: str, shelf: Any) -> None:
    program = RAISF(shelf)
    told = f"^know {wrong}.*: give a dspy.Predict or dspy.ChainOfThought of question -> verdict$"
    with pytest.raises(InputError, match=told):
        program.know = other
    assert program.know.signature is RAISF(shelf).know.signature


# From a module that contains it


class Around(dspy.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.inner = RAISF(**options)

    def forward(self, question: str) -> dspy.Prediction:
        return self.inner(question=question)


def test_a_module_around_a_program_is_saved_in_json_with_its_options(tmp_path: Any) -> None:
    """They hold what calibrating has fitted; a judge of lists was loaded with a single passage's output."""
    made = Around(max_depth=1, know_threshold=0.9, relevance="listwise")
    made.inner.relevant.demos = [dspy.Example(question="q", passages=["p"], relevant_ids=[1])]
    made.save(tmp_path / "state.json")
    again = Around()
    again.load(tmp_path / "state.json")
    assert again.inner.options() == made.inner.options()
    assert list(again.inner.relevant.signature.output_fields) == ["relevant_ids"] and again.inner.relevant.demos
    assert made.reset_copy().inner.max_depth == 1 and not made.reset_copy().inner.relevant.demos


def test_json_with_other_predictors_is_refused_and_changes_nothing(tmp_path: Any) -> None:
    Around(sufficiency=True, k=9).save(tmp_path / "state.json")
    again = Around()
    with pytest.raises(InputError, match="make it with the options that it was saved with"):
        again.load(tmp_path / "state.json")
    assert again.inner.k == 5 and not again.inner.sufficiency


@pytest.mark.parametrize(
    ("option", "value", "wrong"),
    [
        ("relevance", "listwise", "needs relevant of question, passages -> relevant_ids"),
        ("sufficiency", True, "needs sufficient of"),
        ("decomposition", "stepwise", "needs decompose of question, facts -> follow_up"),
        ("evidence", False, "needs answer_from of passages, question -> answer"),
        ("know_threshold", "a", "give 0 to 1"),
        ("max_depth", -1, "0 or more"),
        ("min_confidence", 7, "give 0 to 1"),
        ("k", 5.0, "give a whole number"),  # it equals what it is already
        ("insist", 0, "give True or False"),
    ],
)
def test_an_option_set_anew_is_checked_as_the_constructor_does(option: str, value: Any, wrong: str, shelf: Any) -> None:
    """Some did nothing, some broke where the question was decomposed, and some could not be saved."""
    program = RAISF(shelf)
    before = program.options()
    with pytest.raises(InputError, match=wrong):
        setattr(program, option, value)
    assert repr(program.options()) == repr(before)
    program.k, program.know_threshold = 7, 0.25
    assert program.options() == before | {"k": 7, "know_threshold": 0.25}


def test_a_subclass_may_set_an_option_in_its_constructor(shelf: Any) -> None:
    class Wide(RAISF):
        def __init__(self, retriever: Any = None, k: int = 5) -> None:
            super().__init__(retriever, k=k)
            self.k = 2 * k

    assert Wide(shelf).k == 10


class Reranking(RAISF):
    """A subclass with a module and notes of its own, and one that hangs on an option."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rerank = dspy.ChainOfThought("question, passages -> best")
        self.notes = {"seen": 0}
        self.twice = 2 * self.k


def test_what_a_subclass_has_of_its_own_stays_where_options_are_taken_up(tmp_path: Any) -> None:
    """What its own module had learnt was gone after loading into one made with other options."""
    made = Around()
    made.inner = Reranking(k=3)
    made.inner.rerank.predict.demos = [dspy.Example(question="q", passages="p", best="b", reasoning="r")]
    made.save(tmp_path / "state.json")
    again = Around()
    again.inner = mine = Reranking(k=5)
    mine.notes["seen"], rerank = 7, mine.rerank
    again.load(tmp_path / "state.json")
    assert again.inner is mine and mine.rerank is rerank and len(rerank.predict.demos) == 1
    assert (mine.k, mine.twice, mine.notes) == (3, 6, {"seen": 7})


def test_options_out_of_an_array_are_kept_as_the_numbers_that_they_are(tmp_path: Any) -> None:
    """They were no JSON: a program that was fitted by NumPy came back with the defaults."""
    made = RAISF(k=np.int64(3), know_threshold=np.float32(0.75), use_know=np.bool_(False))  # type: ignore[arg-type]
    made.max_depth = np.int64(1)  # type: ignore[assignment]
    found = {"k": 3, "know_threshold": 0.75, "use_know": False, "max_depth": 1}
    assert made.options().items() >= found.items() and RAISF(k=3).options().keys() == made.options().keys()
    made.save(tmp_path / "state.json")
    again = RAISF()
    again.load(tmp_path / "state.json")
    assert again.options() == made.options()
