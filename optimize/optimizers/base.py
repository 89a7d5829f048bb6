"""What every way of compiling has in common: a `dspy.Teleprompter` whose options are its fields."""

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import dspy
from dspy.teleprompt import Teleprompter

from raisf.evaluation.examples import check_trainset
from raisf.evaluation.identity import digest
from raisf.evaluation.runner import check_can_be_asked, check_module
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.copying import copy_of
from raisf.optimize.identity import identity_of
from raisf.optimize.judges.judge_rows import JudgeRows
from raisf.optimize.judges.skr_cases import skr_cases
from raisf.optimize.optimizers.selection import answer_exact_match, check_metric
from raisf.optimize.overlap import check_disjoint, note_learnt
from raisf.optimize.runs import marked
from raisf.optimize.within import programs_within
from raisf.programs.baselines.skr import SKR
from raisf.programs.changing import given_forward
from raisf.utils.checks import check, check_least
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal
from raisf.utils.predictors import all_predictors, require_lm
from raisf.utils.usage import Calls, heard_by, tell_resumed

Examples = Sequence[dspy.Example]
# What some options may be, and what to give instead of anything else.
_OPTIONS: dict[str, tuple[Any, str]] = {
    "work": (str | PathLike, "a folder"),
    "judge_rows": (JudgeRows | None, "what raisf.optimize.judges.judge_rows.JudgeRows.read(FOLDER) gives, or None"),
    "training": (Training | None, "raisf.Training(...), or None"),
    "seed": (Integral, "a whole number"),  # of None, or a list, each call would draw otherwise
}


@dataclass(slots=True)
class Compilation:
    """One compilation under way.

    Attributes:
        student: What is compiled; it stays as it is.
        trainset: What is learnt from.
        valset: What it is judged on; empty where the optimizer does without.
        teacher: A program whose right runs are learnt from; None: the student's own.
        journal: Keeps what is found.
        calls: How many LM calls there have been.
    """

    student: Any
    trainset: Examples
    valset: Examples
    teacher: dspy.Module | None
    journal: Journal
    calls: Callable[[], int]


@dataclass(kw_only=True, eq=False)
class Optimizer(Teleprompter):
    """A way of compiling, as a `dspy.Teleprompter`.

    It works alone, within `dspy.BetterTogether`, and on what another optimizer has made: prompts, weights, thresholds
    and the retriever that the student has already are kept as far as they are not what is compiled. The student may be
    a program of this package, a module that contains one, or any other module. An SKR-knn in it that was never fitted
    is fitted first.

    Args:
        threads: Questions asked at a time.
        work: Where what is found so far lies, checkpoints and trained weights too: after a kill the same call goes on
            there, to the same result.
        progress: Show a bar with the running scores on stderr.
    """

    threads: int = 8
    work: Path | str = "runs/compile"
    progress: bool = True

    how: ClassVar[str]
    """What the journal's name begins with, and the report's `how`."""
    validates: ClassVar[bool] = True
    """Whether it cannot do without a validation set."""
    trains: ClassVar[bool] = False
    """Whether it keeps out of its work folder whoever else trains there."""

    def __post_init__(self) -> None:
        check_least(self, threads=1)
        for name, (kind, wanted) in _OPTIONS.items():
            if hasattr(self, name):
                check(name, value := getattr(self, name), isinstance(value, kind), wanted)

    def compile(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        student: dspy.Module,
        *,
        trainset: Examples,
        teacher: dspy.Module | Sequence[dspy.Module] | None = None,
        valset: Examples | None = None,
    ) -> Any:
        """A copy of the student that has learnt from the training set, with a `compile_report`.

        Its `learnt_from` has a print of each question of both sets: who measures it on one of these is told.

        Args:
            student: With its LMs (or DSPy's settings) and its retriever; stays as it is.
            trainset: What is learnt comes from it alone. With answers; judges also want gold passages and
                decompositions.
            teacher: A program with predictors of the same names whose right runs are learnt from, or a list of one.
                Optimizers that learn from no runs have no use for it.
            valset: What the result is chosen or stopped by; shares no question with the training set.

        Raises:
            InputError: An empty or overlapping set, answers missing, nothing that can be compiled, a teacher without an
                LM, an option that cannot be used, a package that is not installed, a work folder that cannot be written
                or that another compile is writing into.
            LMError: The LM failed on ten questions in a row, or most of its replies cannot be read.
        """
        check_module(student)
        check_trainset(trainset)
        if not valset and self.validates:
            raise InputError("the validation set is missing or empty: what is learnt is judged on questions of its own")
        valset = valset or []
        check_metric(getattr(self, "metric", answer_exact_match))
        check_disjoint(trainset, {"validation": valset})
        _check_not_frozen(student)
        check_own_forwards(student)
        require_lm(student)
        if (guide := _single_teacher(teacher)) is not None:
            check_can_be_asked(guide)
            require_lm(guide)
        settings = self._settings(student, trainset, valset)
        sets = [list(map(_asking, examples)) for examples in (trainset, valset)]
        identity = digest([identity_of(student, *self._functions()), sets, guide and identity_of(guide), settings])
        lock = "training" if self.trains else None
        with counting() as spent, Journal.alone(self.work, self.how, identity, lock=lock) as journal:
            if journal.found:
                tell_resumed()
            fitted = fit_skr(student, trainset, self.threads, journal)
            task = Compilation(fitted, trainset, valset, guide, journal, lambda: spent.lm_calls)
            compiled = self._compile(task)
            journal.close()
        compiled.compile_report |= {**spent.told(), **earlier(student)}
        note_learnt(compiled, student, trainset, valset)
        return compiled

    def bases(self, student: dspy.Module) -> dict[str, LocalLM]:
        """By name of each predictor that gets an adapter or a probe, the LM on whose base that works, and on no other.

        Raises:
            InputError: That LM is not in this process, or cannot be taken.
        """
        return {}

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        """The options that decide the result, JSON-able; what cannot be used is refused here, before any work."""
        raise NotImplementedError

    def _functions(self) -> list[Callable[..., Any]]:
        """Functions of the user's own that decide the result."""
        return [self.metric] if hasattr(self, "metric") else []  # pyright: ignore[reportAttributeAccessIssue]

    def _compile(self, task: Compilation) -> Any:
        """The compiled copy, with its `compile_report`."""
        raise NotImplementedError


class Spent(Calls):
    """LM calls and seconds since it was made, and whether all that they were for was made since."""

    def __init__(self) -> None:
        super().__init__()
        self._start = time.perf_counter()

    def told(self) -> dict[str, float]:
        """The calls and seconds so far, and whether there were some before, as reports hold them."""
        seconds = round(time.perf_counter() - self._start, 2)
        return {"lm_calls": self.lm_calls, "seconds": seconds, "resumed": self.resumed}


@contextlib.contextmanager
def counting() -> Iterator[Spent]:
    """As a context: what is spent in it."""
    spent = Spent()
    with heard_by(spent):
        yield spent


def fit_skr(student: dspy.Module, trainset: Examples, threads: int, journal: Journal) -> dspy.Module:
    """The student, or where an SKR-knn in it was never fitted, a copy in which it is."""
    if all(program.cases is not None for program in programs_within(student) if isinstance(program, SKR)):
        return student
    made = copy_of(student)
    for program in programs_within(made):
        if isinstance(program, SKR) and program.cases is None:
            program.learn(skr_cases(program, trainset, threads=threads, journal=journal))
    return made


def earlier(student: dspy.Module) -> dict[str, Any]:
    """What the student's own compilations have reported, oldest first, for the report of the next one."""
    report = getattr(student, "compile_report", None)
    if not report:
        return {}
    return {"earlier": [*report.get("earlier", []), {key: value for key, value in report.items() if key != "earlier"}]}


def _asking(example: dspy.Example) -> Any:
    """An example as plain data, with the names of its inputs where that is not its question alone."""
    inputs = sorted(marked(example).inputs().keys())
    return dict(example) if inputs == ["question"] else [dict(example), inputs]


def _check_not_frozen(student: dspy.Module) -> None:
    if not student.named_predictors() and (kept := all_predictors(student)):
        raise InputError(
            f"nothing in {type(student).__name__} can be compiled: {', '.join(name for name, _ in kept)} are in a part "
            "that DSPy compiled, and keeps as it is; set its _compiled = False, or compile the part by itself"
        )


def check_own_forwards(student: dspy.Module) -> None:
    """Makes sure that a student, and the programs of ours in it, do what their classes say.

    Raises:
        InputError: One was given another `forward`, which asks nothing of what is compiled; the student can only be
            awaited.
    """
    check_can_be_asked(student)
    for part in (student, *programs_within(student)):
        given = given_forward(part)
        own: Any = getattr(type(part), "forward", None)
        if given is not None and getattr(inspect.unwrap(given), "__func__", None) is not own:  # nor one around it
            raise InputError(
                f"{type(part).__name__} was given another forward, as dspy.KNNFewShot does, which asks nothing of what "
                "would be compiled: compile first, and let dspy.KNNFewShot compile what that gives, within a module of "
                "yours where it is to be saved"
            )


def _single_teacher(teacher: dspy.Module | Sequence[dspy.Module] | None) -> dspy.Module | None:
    if isinstance(teacher, Sequence) and not isinstance(teacher, str):
        if len(teacher) != 1:
            raise InputError(f"{len(teacher)} teachers: give one")
        teacher = teacher[0]
    if isinstance(teacher, dspy.Module | None):
        return teacher
    if isinstance(teacher, dspy.BaseLM | str):
        raise InputError(
            "the teacher is a language model, and must be a program whose right runs are learnt from, such as a copy "
            "with that LM (set_lm); what an LM labels for judges is `raisf.optimize.judges.judge_rows.teach`'s"
        )
    raise InputError(f"the teacher is {teacher!r:.80}: give a program whose right runs are learnt from, or none")
