"""If these failed, demonstrations could come of another metric or teacher than was given, or of runs that failed."""

import functools
import random
import sys
import types
from typing import Any, Literal

import dspy
import pydantic
import pytest

import raisf
from raisf.evaluation.identity import digest
from raisf.optimize.bootstrapping import bootstrap_demos
from raisf.optimize.compile import compile
from raisf.optimize.confidence import fit_confidence
from raisf.optimize.demonstrations import Rows
from raisf.optimize.identity import identity_of
from raisf.optimize.optimizers.training_rows import Source
from raisf.programs.baselines.rag import RAG
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.utils.errors import RaisfError
from tests.optimize.conftest import Learner, sets
from tests.optimize.test_calibrate import of_its_own, questions, scoring, timid
from tests.optimize.test_calibrated_modules import judging
from tests.scripted import ScriptedLM
from tests.shelf import Shelf


def _weighed(weight: float, stops: bool = False) -> Any:
    seen: list[int] = []

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        seen.append(1)
        if stops and len(seen) > 8:
            raise KeyboardInterrupt
        return weight * float(prediction.answer == "right")

    return metric


def test_another_metric_goes_on_with_none_of_the_values_of_the_one_before(learner: Learner) -> None:
    """What a closure holds decides as its code does: who stopped and changed it got the old metric's choice."""
    with pytest.raises(KeyboardInterrupt):
        compile(learner, **sets(), metric=_weighed(1.0, stops=True), threads=1, progress=False)
    again = compile(learner, **sets(), metric=_weighed(0.5), threads=1, progress=False).compile_report
    assert not again["resumed"] and again["metric"] == "metric"
    assert max(one["score"]["value"] for one in again["candidates"]) == 0.5


def test_a_teacher_needs_none_but_the_predictors_that_it_teaches(program: RAISF, world, oracle) -> None:
    """DSPy's own bootstrapping failed an assertion, long after the labelling had been paid for."""
    teacher = RAG(BM25.load(world.index), evidence=True)
    teacher.set_lm(oracle())
    compiled = compile(
        program, trainset=world.train, valset=world.dev, strategy="bootstrap", teacher=teacher, progress=False
    )
    assert compiled.compile_report["strategy"] == "bootstrap"


def test_runs_that_fail_while_bootstrapping_are_told(learner: Learner) -> None:
    failing = iter([True] * 3)

    def flaky(fields: dict[str, Any]) -> Any:
        if "trainset" in fields["question"] and next(failing, False):
            raise ConnectionError("down")
        return {"answer": "x"}

    learner.set_lm(ScriptedLM(flaky))
    report = compile(learner, **sets(20), strategy="bootstrap", threads=4, progress=False).compile_report
    assert report["failed_runs"] == 3 and report["failed"] == 0


def _failing() -> dspy.Module:
    def broken(fields: dict[str, Any]) -> Any:
        raise ConnectionError("no route to host")

    made = dspy.Predict("question -> answer")
    made.set_lm(ScriptedLM(broken))
    return made


@pytest.mark.parametrize("teaches", [False, True])
def test_a_program_that_fails_on_every_run_is_not_compiled_without_a_validation_set_either(
    learner: Learner, teaches: bool
) -> None:
    """It came back as compiled, without a demonstration: with fewer than ten questions nobody had given up."""

    failing = _failing()
    student, teacher = (learner, failing) if teaches else (failing, None)
    with pytest.raises(RaisfError, match=r"failed on every run that was to demonstrate.*no route"):
        raisf.BootstrapJudges(progress=False).compile(student, trainset=sets(5)["trainset"], teacher=teacher)


def test_runs_that_cannot_be_read_are_not_told_as_failures_of_the_lm(caplog: pytest.LogCaptureFixture) -> None:
    (student := _failing()).set_lm(ScriptedLM(lambda fields: "" if "4" not in fields["question"] else [][0]))
    raisf.BootstrapJudges(progress=False).compile(student, trainset=sets(5)["trainset"])
    assert "5 failed and none was right" in caplog.text and "the last time with: " in caplog.text


def test_who_is_taught_by_runs_that_all_fail_is_told_why() -> None:
    """The message asked for more questions."""
    task: Any = types.SimpleNamespace(student=_failing(), teacher=None, journal=None)
    source = Source.of(task, sets(5)["trainset"], ["self"], "train", 9, raisf.FinetuneJudges(progress=False), None)
    assert "of 5 runs 5 failed (the last time with: " in (said := str(source.why("self"))) and "no route" in said


@pytest.mark.parametrize(("seldom", "runs"), [((), 10), ((3, 13), 20), ((3,), 30)])
def test_runs_go_on_for_who_was_asked_in_wrong_ones_alone_and_for_nobody_else(
    seldom: tuple[int, ...], runs: int
) -> None:
    """A predictor that a program does without, as BlendFilter's other filter, cost all the runs that there may be."""
    asked: list[str] = []

    class Forked(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.often, self.seldom, self.never = (dspy.Predict("question -> answer") for _ in range(3))

        def forward(self, question: str) -> dspy.Prediction:
            asked.append(question)
            return (self.seldom if len(asked) - 1 in seldom else self.often)(question=question)

    def metric(example: Any, prediction: Any, trace: Any = None) -> float:
        return float(asked.index(example.question) != 3)

    program = Forked()
    program.set_lm(ScriptedLM(lambda fields: {"answer": "x"}))
    made, _ = bootstrap_demos(program, Rows(), 3, random.Random(0), sets(40)["trainset"], metric, threads=1)
    assert len(asked) == runs
    shown = {name: bool(predictor.demos) for name, predictor in made.named_predictors()}
    assert shown == {"often": True, "seldom": len(seldom) > 1, "never": False}


def _grade(kind: Any, metric: Any) -> None:
    options: dict[str, Any] = {"metric": metric, "progress": False}
    options |= {"trials": 1, "reflection_lm": ScriptedLM(lambda fields: {})} if kind is raisf.GEPA else {}
    given, n = judging(), 8 if kind is raisf.Calibrate else 12  # it asks the metric often
    sets = {"trainset": questions(6), "valset": questions(6 + n)[6:]}
    if kind is fit_confidence:
        given.know_threshold = 0.35  # some right answers, from memory
        fit_confidence(given, valset=sets["valset"], **options)
    else:
        kind(**options).compile(given, **sets)


@pytest.mark.parametrize("kind", [raisf.BootstrapJudges, raisf.GEPA, raisf.Calibrate, fit_confidence])
def test_a_metric_that_asks_an_lm_asks_that_of_the_callers_context(kind: Any) -> None:
    """Candidates were graded by another LM than the judge that was given, or not at all."""
    grades: list[str] = []

    def graded(example: Any, prediction: Any, trace: Any = None) -> float:
        grades.append(dspy.Predict("answer -> grade")(answer=prediction.answer).grade)
        return float(prediction.answer == example.answer)

    with dspy.context(lm=ScriptedLM(lambda fields: {"grade": "of the one given"})):
        _grade(kind, graded)
    assert len(grades) >= 12 and set(grades) == {"of the one given"}


def test_who_goes_on_with_another_grader_is_given_no_grades_of_the_one_before() -> None:
    """Of a stopped compilation, candidates were graded by both."""

    class Grader(ScriptedLM):
        def __init__(self, grade: str) -> None:
            super().__init__(lambda fields: {"grade": grade})
            self.model = f"grader {grade}"

    def graded(example: Any, prediction: Any, trace: Any = None) -> float:
        return float(dspy.Predict("answer -> grade")(answer=prediction.answer).grade)

    found = []
    for metric in (graded, raisf.answer_exact_match):
        for grader in (Grader("0"), Grader("1")):
            with dspy.context(lm=grader):
                found.append(digest(identity_of(judging(), metric)))
    assert found[0] != found[1] and found[2] == found[3]


@pytest.mark.parametrize("relevance", ["pointwise", "listwise"])
def test_a_judge_that_nothing_is_drawn_for_keeps_its_demonstrations(relevance: Any) -> None:
    student = RAISF(Shelf(of_its_own), k=2, relevance=relevance)
    student.set_lm(scoring(timid))
    shared = {"question": "q", "passages": ["a"], "passage": "a", "relevant_ids": []}
    student.relevant.demos = [dspy.Example(shared, verdict=verdict) for verdict in ("relevant", "irrelevant")]
    bare = [dspy.Example(question=e.question, answer=e.answer).with_inputs("question") for e in questions(6)]
    made = raisf.BootstrapJudges(progress=False).compile(student, trainset=bare)
    assert "relevant" in made.compile_report["missing"]
    assert [dict(demo) for demo in made.relevant.demos] == [dict(demo) for demo in student.relevant.demos]


def _helped(place: Any, said: Any) -> dspy.Module:
    """A module with a function of a kind; without one, a module with a part that has it."""

    class Inner(dspy.Module):
        pass

    class Outer(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = [Inner()]

    (Outer if place else Inner).help = place(said) if place else said
    return Outer()


@pytest.mark.parametrize(
    "place", [None, staticmethod, classmethod, property, functools.cached_property, functools.lru_cache]
)
def test_who_mends_a_module_goes_on_with_no_values_of_the_code_before(place: Any) -> None:
    codes = [lambda *_: 1, lambda *_: 1, lambda *_: 2]
    before, same, mended = (digest(identity_of(_helped(place, code))) for code in codes)
    assert before == same != mended


USES = """
import dspy
LIMIT = {limit}
def helper(text):
    return text{more}
def other(text):
    return text{unused}
class Own(dspy.Module):
    def forward(self, question):
        return dspy.Prediction(answer=helper(question)[:LIMIT])
def metric(example, prediction, trace=None):
    return prediction.answer == helper(example.answer)
"""


def _using(limit: int = 10, more: str = "", unused: str = "") -> str:
    """The identity of a compilation of a module whose code calls a function and reads a constant of its file."""
    made = types.ModuleType("own_program")
    exec(USES.format(limit=limit, more=more, unused=unused), made.__dict__)
    return digest(identity_of(made.Own(), made.metric))


def test_who_mends_a_function_that_a_module_calls_goes_on_with_no_values_of_the_code_before() -> None:
    assert _using() == _using() == _using(unused=".upper()")
    assert len({_using(), _using(limit=3), _using(more=".lower()")}) == 3


def test_another_judge_in_a_metric_goes_on_with_no_values_of_the_one_before() -> None:
    def asks(judge: dspy.Module) -> Any:
        return lambda example, prediction, trace=None: judge(answer=prediction.answer).score

    def by_global(judge: dspy.Module) -> Any:
        made = types.ModuleType("own_judge")
        exec("def metric(example, prediction, trace=None): return judge(answer=prediction.answer).score", made.__dict__)
        made.judge = judge  # type: ignore[attr-defined]
        return made.metric

    class Evaluator:
        def __init__(self, judge: dspy.Module) -> None:
            self.judge = judge

        def metric(self, example: Any, prediction: Any, trace: Any = None) -> Any:
            return self.judge(answer=prediction.answer).score

    def by_name(judge: dspy.Module) -> Any:
        judges = {"one": judge}
        return lambda example, prediction, trace=None: judges["one"](answer=prediction.answer).score

    signatures = [dspy.Signature("answer -> score", f"Be {way}.") for way in ("kind", "kind", "strict")]
    for given in (
        asks,
        by_global,
        by_name,
        functools.partial,
        lambda judge: judge,
        lambda judge: Evaluator(judge).metric,
    ):
        told = [digest(identity_of(judging(), given(dspy.Predict(signature)))) for signature in signatures]
        assert told[0] == told[1] != told[2], given


def test_a_closure_that_is_not_filled_yet_has_an_identity() -> None:
    def metric(example: Any, prediction: Any, trace: Any = None) -> bool:
        return later

    assert identity_of(judging(), metric)
    later = True


@pytest.mark.parametrize("used", ["import helping", "from helping import same", ""])
def test_functions_of_another_file_are_seen_however_they_are_named(used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric that calls `helping.same` went on with scores of the one before."""
    inside = "" if used else "import helping; "
    call = "same" if used.startswith("from") else "helping.same"
    code = f"{used}\ndef metric(example, prediction, trace=None):\n    {inside}return {call}(example, prediction)"
    told = []
    for result in ("True", "True", "False"):
        helping, own = types.ModuleType("helping"), types.ModuleType("own_metric")
        exec(f"def same(*given): return {result}", helping.__dict__)
        monkeypatch.setitem(sys.modules, "helping", helping)
        exec(code, own.__dict__)
        told.append(digest(identity_of(judging(), own.metric)))
    assert told[0] == told[1] != told[2]


def _giving(kind: Any) -> dspy.Module:
    return dspy.Predict(dspy.Signature("question -> answer").append("verdict", dspy.OutputField(), type_=kind))


def test_who_changes_labels_or_a_model_goes_on_with_no_values_of_the_old_ones() -> None:
    """Answers with the old labels counted for the new ones, and were shown as demonstrations."""
    models = [pydantic.create_model("Found", **fields) for fields in ({"name": str}, {"name": str, "age": int})]
    kinds = [Literal["yes", "no"], Literal["yes", "unsure"], str, *models]
    assert len({digest(identity_of(_giving(kind))) for kind in kinds}) == len(kinds)
    assert digest(identity_of(_giving(kinds[0]))) == digest(identity_of(_giving(Literal["yes", "no"])))


def test_a_judge_that_reasons_is_shown_as_many_of_each_verdict_and_named_where_gold_cannot_teach_it(
    program: RAISF, world, oracle
) -> None:
    """Its demonstrations were all "know", and who compiled from gold alone was not told that it was passed over."""
    program.know = dspy.ChainOfThought(program.know.signature)
    program.set_lm(oracle(reasoning="r"))
    shown = compile(program, trainset=world.train, strategy="bootstrap", progress=False)
    verdicts = [demo["verdict"] for demo in shown.know.demos]
    assert verdicts.count("know") == verdicts.count("unknown") > 0
    labelled = raisf.LabeledJudges(progress=False).compile(program, trainset=world.train)
    assert "gold has no reasonings" in labelled.compile_report["missing"]["know"]
    program.use_know = False
    unasked = raisf.LabeledJudges(progress=False).compile(program, trainset=world.train)
    assert "know" not in unasked.compile_report["missing"]


def test_what_is_known_is_asked_of_the_programs_own_lm_where_it_answers_after_a_reasoning(
    program: RAISF, world, oracle
) -> None:
    """DSPy's LM was asked, that of somebody else, and the judge learnt what that one knows."""
    own, other = oracle(reasoning="r"), ScriptedLM(lambda fields: {"reasoning": "r", "answer": "no idea"})
    program.answer_directly = dspy.ChainOfThought(program.answer_directly.signature)
    program.set_lm(own)
    with dspy.context(lm=other):
        compiled = compile(program, trainset=world.train, strategy="labeled", progress=False)
    assert other.calls == [] and {demo["verdict"] for demo in compiled.know.demos} == {"know", "unknown"}


def test_a_module_that_runs_copies_of_a_program_is_told_that_they_show_nothing(
    program: RAISF, world, oracle, caplog: pytest.LogCaptureFixture
) -> None:
    with dspy.context(lm=oracle()):
        best = dspy.BestOfN(module=program, N=1, reward_fn=lambda asked, said: 1.0, threshold=1.0)
        compiled = compile(best, trainset=world.train, strategy="bootstrap", progress=False)
    assert "made by copies of the program" in caplog.text
    assert compiled.module.answer_from.demos == []
