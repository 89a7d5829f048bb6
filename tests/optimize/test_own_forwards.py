"""If these failed, a forward of the user's own, or one that dspy.KNNFewShot gave, would be passed over or compiled in
vain.
"""

import functools
import threading
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest

import raisf
from raisf.optimize.copying import copy_of
from raisf.optimize.judges.outcomes import Trying
from raisf.optimize.optimizers.base import check_own_forwards
from raisf.optimize.optimizers.selection import answer_exact_match
from raisf.optimize.remembering import remembering
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.journal import Journal
from tests.optimize.test_calibrate import calibrated, of_its_own, questions, scoring, timid
from tests.optimize.test_outcomes import asked, script, tried, truth_and_lie, verdicts
from tests.scripted import ScriptedLM
from tests.shelf import Shelf

QUIET: Any = {"progress": False}


def neighbours(predictor: Any, **shown: str) -> Any:
    """What dspy.KNNFewShot makes of a predictor, or a program: it shows one example, and asks DSPy's LM."""
    one = dspy.Example(shown).with_inputs(*list(shown)[:-1])
    alike = dspy.Embedder(lambda texts: np.ones((len(texts), 2)))
    bare: Any = {"max_bootstrapped_demos": 0, "max_labeled_demos": 1}
    made = dspy.KNNFewShot(k=1, trainset=[one], vectorizer=alike, **bare).compile(predictor)
    made.set_lm(predictor.get_lm())  # it had lost it
    return made


class Polished(dspy.Module):
    """RA-ISF, and after it a predictor that dspy.KNNFewShot compiled."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.rag, self.polish = RAISF(Shelf(of_its_own), k=2), dspy.Predict("question, draft -> polished")
        self.set_lm(lm)
        self.polish = neighbours(self.polish, question="q", draft="d", polished="SHOWN")

    def forward(self, question: str) -> dspy.Prediction:
        draft = self.rag(question=question).answer
        return dspy.Prediction(answer=self.polish(question=question, draft=draft).polished)


def test_a_module_is_calibrated_with_the_demonstrations_that_neighbours_give() -> None:
    """Its predictor was asked without any, and thresholds were fitted to what it said then."""
    prompts: list[str] = []

    def answer(fields: dict[str, Any]) -> dict[str, Any]:
        return {"polished": fields["draft"]} if "draft" in fields else timid(fields)

    class Noting(dspy.utils.callback.BaseCallback):
        def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
            prompts.append(str(inputs))

    module = Polished(scoring(answer))
    with dspy.context(callbacks=[Noting()], lm=module.polish.lm):
        _, report = calibrated(module, n=10, aim="answer")
    polishing = [prompt for prompt in prompts if "## draft ##" in prompt]
    assert polishing and all("SHOWN" in prompt for prompt in polishing)
    assert report["answer"]["after"]["value"] == 1 and report["failed"] == 0


def test_verdicts_are_tried_with_the_demonstrations_that_neighbours_give(tmp_path: Path) -> None:
    lm = ScriptedLM(script)
    student = RAISF(Shelf(truth_and_lie), k=2)
    student.set_lm(lm)
    student.answer_directly = neighbours(student.answer_directly, question="q", answer="SHOWN")
    with dspy.context(lm=lm):
        found = tried(student, tmp_path, "both")
    assert verdicts(found, "know")["What of both?"] == ("know", 0.02)
    assert "SHOWN" in str([entry["messages"] for entry in lm.history])


class Giving(dspy.Predict):
    """Answers by itself."""

    def forward(self, **inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answer=f"the class's, of {self.name}")


def test_the_copy_of_a_predictor_runs_the_forward_that_it_was_given_as_its_own() -> None:
    """Where a lock was in the predictor, its method was shared with the original."""

    def given(self: Any, **inputs: Any) -> dspy.Prediction:
        return dspy.Prediction(answer=f"given, of {self.name}")

    for lock in (None, threading.Lock()):
        module: Any = dspy.Module()
        module.one, module.other = Giving("question -> answer"), Giving("question -> answer")
        module.one.name, module.other.name, module.one.lock = "one", "other", lock
        module.one.forward = given.__get__(module.one)
        module.asks = module.one.forward
        copies: list[Any] = [copy_of(module), remembering(module)]
        for made in copies:
            made.one.name, made.other.name = "its copy", "another"
        for made in copies:
            with dspy.context(lm=ScriptedLM(lambda fields: {})):
                assert made.one(question="q").answer == made.asks(question="q").answer == "given, of its copy"
                assert made.other(question="q").answer == "the class's, of another"
        assert module.one.name == "one"


def within(program: Any) -> dspy.Module:
    outer: Any = dspy.Module()
    outer.rag = program
    return outer


@pytest.mark.parametrize("part", [False, True])
def test_what_neighbours_made_of_a_program_is_not_compiled_in_vain(part: bool, world: Any, oracle: Any) -> None:
    """Training was paid for, its adapters were never asked, and the result could not be saved."""
    program = RAISF(Shelf(of_its_own), k=2)
    program.set_lm(lm := oracle())
    student = neighbours(program, question="q", answer="a")
    student = within(student) if part else student
    sets: Any = {"trainset": world.train[:20], "valset": world.dev}
    for begin in (
        lambda: raisf.LabeledJudges(**QUIET).compile(student, **sets),
        lambda: raisf.OutcomeJudges(by="prompts", **QUIET).compile(student, **sets),
        lambda: raisf.Calibrate(**QUIET).compile(student, **sets),
        lambda: raisf.fit_confidence(student, valset=world.dev, **QUIET),
    ):
        with pytest.raises(InputError, match=r"RAISF was given another forward.*compile first, and let dspy\.KNNFewSh"):
            begin()
    assert lm.calls == []


class Awaited(dspy.Module):
    def __init__(self) -> None:
        super().__init__()
        self.answer, self.rag = dspy.Predict("question -> answer"), RAISF(Shelf(of_its_own))

    async def aforward(self, question: str) -> dspy.Prediction:
        return await self.answer.acall(question=question)


def test_a_module_that_can_only_be_awaited_is_refused_at_once_and_compiled_as_dspy_wraps_it(tmp_path: Path) -> None:
    """It failed question by question, and the error named an attribute."""
    examples = [dspy.Example(question=f"q{n}", answer=f"q{n}").with_inputs("question") for n in range(4)]
    student, guide = Awaited(), dspy.Predict("question -> answer")
    for one in (student, guide):
        one.set_lm(ScriptedLM(lambda fields: {"answer": fields["question"]}))
    optimizer = raisf.BootstrapJudges(metric=answer_exact_match, demos=2, work=tmp_path, **QUIET)
    for given in ({"student": student}, {"student": guide, "teacher": student}):
        with pytest.raises(InputError, match="Awaited has aforward alone"):
            optimizer.compile(**given, trainset=examples)
    for begin in (raisf.Calibrate(**QUIET).compile, raisf.fit_confidence):
        with pytest.raises(InputError, match="Awaited has aforward alone"):
            begin(student, valset=examples * 10)
    assert not list(tmp_path.iterdir())
    assert len(optimizer.compile(dspy.syncify(student), trainset=examples).answer.demos) == 2


class Short(RAISF):
    """Hands on nothing but its answer, and takes more than a question."""

    def forward(self, question: str, tail: str = "?") -> dspy.Prediction:  # pyright: ignore
        return dspy.Prediction(answer=super().forward(question=question + tail).answer.removesuffix("."))


class Twice(RAISF):
    """Asks itself twice."""

    def forward(self, question: str) -> dspy.Prediction:
        super().forward(question=question)
        return dspy.Prediction(answer=super().forward(question=question).answer)


def test_verdicts_are_tried_within_a_subclass_that_hands_on_its_answer_alone(tmp_path: Path) -> None:
    """The tries ended in an AttributeError, and an input of its own was not handed to it."""
    plain, short = RAISF(Shelf(truth_and_lie), k=2), Short(Shelf(truth_and_lie), k=2)
    for student in (plain, short):
        student.set_lm(ScriptedLM(script))
    told = tried(plain, tmp_path / "plain", "known", "read", "hard")
    examples = [
        dspy.Example(question=one.question[:-1], tail="?", answer=one.answer).with_inputs("question", "tail")
        for one in asked("known", "read", "hard")
    ]
    trying = Trying(short, answer_exact_match, 0.01, 0.0, threads=2, progress=False)
    found = trying.outcomes(examples, Journal(tmp_path / "short.jsonl"), "tries")
    for judge in ("know", "relevance"):
        assert verdicts(found, judge) == verdicts(told, judge) != {}
    assert found.unreadable == found.failed == 0 and "_run" not in vars(short)


def test_a_reply_that_a_subclass_lacks_gives_no_label_either(tmp_path: Path) -> None:
    student = Short(Shelf(truth_and_lie), k=2)
    student.set_lm(ScriptedLM(lambda fields: "rubbish" if "passages" in fields else script(fields)))
    sets = [dspy.Example(question="What of both", answer="by heart").with_inputs("question")]
    trying = Trying(student, answer_exact_match, 0.01, 0.0, threads=1, progress=False)
    found = trying.outcomes(sets, Journal(tmp_path / "journal.jsonl"), "tries")
    assert found.of["know"] == found.of["relevance"] == [] and found.unreadable > 0


def test_of_two_ways_to_an_answer_none_is_taken_for_it(tmp_path: Path) -> None:
    student = Twice(Shelf(truth_and_lie), k=2)
    student.set_lm(ScriptedLM(script))
    with pytest.raises(
        RaisfError, match=r"the forward of Twice asked RA-ISF's 2 times, .* let it ask once, or hand on"
    ):
        tried(student, tmp_path, "known", "read")


@pytest.mark.parametrize("times", [1, 2])
def test_a_confidence_is_that_of_the_answer_which_a_module_makes_its_own(times: int) -> None:
    """Data and LM were blamed where a module hands on nothing but the answer."""
    program = RAISF(Shelf(of_its_own), k=2, know_threshold=0.35)
    program.set_lm(scoring(timid))

    class Around(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rag = program

        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=[self.rag(question=question) for _ in range(times)][-1].answer)

    if times == 2:
        with pytest.raises(InputError, match=r"0 of 20 answers have a confidence.* more than once a question has to"):
            raisf.fit_confidence(Around(), valset=questions(20), **QUIET)
        return
    made = raisf.fit_confidence(Around(), valset=questions(20), **QUIET)
    alone = raisf.fit_confidence(program, valset=questions(20), **QUIET)
    assert made.compile_report["confidence"] == alone.compile_report["confidence"]
    assert made.rag.confidence_slope == alone.confidence_slope != 1 and "_run" not in vars(made.rag)


def test_a_forward_that_only_wraps_the_classs_own_is_compiled() -> None:
    """Timing, logging and retries are put around it; it asks the predictors that are compiled."""
    student: Any = RAISF(None)
    own = student.forward

    @functools.wraps(own)
    def timed(**inputs: Any) -> Any:
        return own(**inputs)

    student.forward = timed
    check_own_forwards(student)
