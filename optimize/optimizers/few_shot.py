"""Compiling to demonstrations: the judges' from gold, the others' from right runs, and the best of several draws."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from random import Random
from typing import Any, ClassVar

import dspy
from rich.progress import Progress

from raisf.evaluation.identity import HUNG
from raisf.lm.connect import connect
from raisf.optimize.adapters import trained_folder
from raisf.optimize.bootstrapping import bootstrap_demos
from raisf.optimize.copying import copy_of
from raisf.optimize.demonstrations import JUDGE_QUESTIONS, Rows, collect_rows, draw
from raisf.optimize.judges.judge_rows import JudgeRows
from raisf.optimize.judges.labels import Labels, check_labels_option
from raisf.optimize.optimizers.base import Compilation, Examples, Optimizer
from raisf.optimize.optimizers.selection import (
    GIVEN,
    ZERO_SHOT,
    Metric,
    Selection,
    answer_exact_match,
    check_gold,
    metric_name,
)
from raisf.optimize.prompts import Prompts, prompts_of, with_prompts
from raisf.optimize.within import programs_within
from raisf.programs.changing import constructors, made_alike
from raisf.utils.checks import check_least
from raisf.utils.errors import InputError
from raisf.utils.progress import progress_bar
from raisf.utils.sampling import up_to

# Instructions are longer than answers, and an LM that reasons first writes more than them.
REFLECTION_TOKENS = 4096


@dataclass(slots=True)
class Draws:
    """Demonstrations drawn for a student.

    Attributes:
        task: The compilation.
        options: The optimizer.
        sample: The training questions that the judges' rows come from.
        rows: The judges' rows.
        proposed: By predictor's name, how many instructions were proposed for it.
        failed: Runs of training questions that ended in an error.
    """

    task: Compilation
    options: "Prompting"
    sample: Examples
    rows: Rows
    proposed: dict[str, int] = field(default_factory=dict)
    failed: int = 0

    def labeled(self, n: int, rng: Random) -> dspy.Module:
        """The judges' demonstrations, by gold."""
        return draw(self.task.student, self.rows, n, rng)

    def bootstrapped(self, n: int, rng: Random, name: str) -> dspy.Module:
        """The same, and steps of right runs for the others; `name`: what the journal calls these."""
        drawn, failed = bootstrap_demos(
            self.task.student,
            self.rows,
            n,
            rng,
            self.task.trainset,
            self.options.metric,
            self.task.teacher,
            threads=self.options.threads,
            journal=self.task.journal,
            name=f"runs of {name}",
            must_run=not self.task.valset,
        )
        self.failed += failed
        return drawn

    def numbered(self, number: int) -> tuple[str, Callable[[], dspy.Module]]:
        """One of several draws of both kinds, of runs alone where gold has no rows, and of different sizes.

        Its name, and how it is made.
        """
        rng = Random(f"{self.options.seed}/{number}")
        n = rng.randint(2, self.options.demos)
        if number % 2 == 0 and self.rows.of:
            return f"labeled {number + 1}, up to {n}", lambda: self.labeled(n, rng)
        name = f"bootstrap {number + 1}, up to {n}"
        return name, lambda: self.bootstrapped(n, rng, name)

    def kept(self, name: str, make: Callable[[], dspy.Module]) -> Prompts:
        """The prompts of a draw, which a killed compilation that goes on takes from the journal."""
        return self.task.journal.once(name, lambda: prompts_of(make()))


@dataclass(kw_only=True, eq=False)
class Prompting(Optimizer):
    """Compiling to prompts: candidates are compared on the validation set, and the best one is the result.

    All of them answer the same questions; the student as it is given is among them and wins a tie.

    Args:
        demos: Demonstrations per predictor at most, 2 or more; 4, since each makes every later prompt longer.
        labels: How known questions are told from unknown ones: "model" asks the LM closed-book, "gold" believes the
            training set's `known`; see `raisf.optimize.judges.labels.know_labels`.
        judge_rows: Rows of the judges that take the place of gold's; see `raisf.optimize.judges.judge_rows`.
        metric: Called as `metric(example, prediction, trace)`, in [0, 1]; selects, and at 1 lets a run demonstrate.
        seed: Of every draw; equal seeds and equal LM answers give equal programs.
        threads: Questions asked at a time.
        work: See `raisf.optimize.optimizers.base.Optimizer`.
        progress: Likewise.
    """

    demos: int = 4
    labels: Labels = "model"
    judge_rows: JudgeRows | None = None
    metric: Metric = answer_exact_match
    seed: int = 0

    how = "prompts"
    name: ClassVar[str]
    """What its candidates and the report's `strategy` are called."""
    strict: ClassVar[bool] = False
    """Whether a judge without rows of both verdicts is an error."""
    gold_alone: ClassVar[bool] = False
    """Whether it shows nothing but gold's rows, so that having none is an error."""
    least: ClassVar[dict[str, int]] = {}
    """What its own numbers must be at least."""
    package: ClassVar[str | None] = None
    """What it needs that the extra `optimizers` brings."""

    def __post_init__(self) -> None:
        check_least(self, demos=2, **self.least)
        check_labels_option(self.labels)
        super().__post_init__()

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        if self.package and importlib.util.find_spec(self.package) is None:
            raise InputError(
                f"{self.name} needs the package {self.package}, which is not installed: pip install {self.package}, or "
                "the extra 'optimizers' of this project; or take another optimizer, such as random"
            )
        check_gold(self.metric, trainset, valset)
        passed_over = ("work", "progress", "threads", "metric", "reflection_lm", "judge_rows")
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in passed_over}
        return [self.name, own] + ([self.judge_rows.identity()] if self.judge_rows else [])

    def _compile(self, task: Compilation) -> Any:
        with progress_bar(self.progress) as bar:
            draws = self._draws(task, bar)
            selection = Selection(task.valset, self.metric, task.journal, task.calls, self.threads, bar)
            if task.valset:
                selection.score(GIVEN if _has_learnt(task.student) else ZERO_SHOT, task.student)
                self._search(draws, selection)
                best = selection.best or task.student
            else:
                best = with_prompts(task.student, draws.kept(self.name, lambda: self._draw(draws)))
        compiled: Any = copy_of(best)
        compiled.compile_report = self._report(compiled, draws, selection)
        return compiled

    def _draws(self, task: Compilation, bar: Progress) -> Draws:
        """What demonstrations are drawn from: the judges' rows of a sample of the training questions."""
        sample = up_to(task.trainset, JUDGE_QUESTIONS, Random(self.seed))
        labelling = bar.add_task("labelling", total=None, score="")
        taught = None
        if self.judge_rows is not None:
            self.judge_rows.tell_of_others(task.student, task.trainset, task.valset)
            taught, _ = self.judge_rows.parts(task.trainset, task.valset, hold_out=False)
        rows = collect_rows(
            task.student,
            sample,
            labels=self.labels,
            threads=self.threads,
            strict=self.strict,
            journal=task.journal,
            taught=taught,
        )
        bar.remove_task(labelling)
        if self.gold_alone and not rows.of:
            raise InputError(
                "no predictor of this program can be shown what is right by gold alone: choose the strategy "
                "'bootstrap' (--strategy bootstrap), which shows steps of its own right runs"
            )
        return Draws(task, self, sample, rows)

    def _report(self, compiled: dspy.Module, draws: Draws, selection: Selection) -> dict[str, Any]:
        task, rows = draws.task, draws.rows
        given = prompts_of(task.student)
        told = {name: prompts["instructions"] for name, prompts in prompts_of(compiled).items()}
        return {
            "how": "prompts",
            "strategy": self.name,
            "seed": self.seed,
            "labels": self.labels,
            "trainset": len(task.trainset),
            "valset": len(task.valset),
            "metric": metric_name(self.metric),
            "candidates": selection.tried,
            "chosen": selection.chosen or self.name,
            "failed": selection.failed,
            "failed_runs": draws.failed,
            "instructions": {name: text for name, text in told.items() if text != given[name]["instructions"]},
            "rows": {name: len(found) for name, found in rows.of.items()},
            "missing": {name: str(why) for name, why in rows.missing.items()},
            **({"judge_rows": dict(self.judge_rows.report)} if self.judge_rows else {}),
            "unlabelled": rows.unlabelled,
            "proposed": draws.proposed,
        }

    def _search(self, draws: Draws, selection: Selection) -> None:
        """Scores candidates beside the student."""
        prompts = draws.kept(self.name, lambda: self._draw(draws))
        selection.score(self.name, with_prompts(draws.task.student, prompts))

    def _draw(self, draws: Draws) -> dspy.Module:
        """The one candidate of an optimizer that has a single one."""
        raise NotImplementedError


@dataclass(kw_only=True, eq=False)
class LabeledJudges(Prompting):
    """Gives the judges demonstrations from gold, as many of each verdict.

    Without a validation set they are taken without a comparison. For the options see
    `raisf.optimize.optimizers.few_shot.Prompting`.
    """

    name = "labeled"
    strict = True
    gold_alone = True
    validates = False

    def _draw(self, draws: Draws) -> dspy.Module:
        return draws.labeled(self.demos, Random(self.seed))


@dataclass(kw_only=True, eq=False)
class BootstrapJudges(Prompting):
    """Gives the judges demonstrations from gold, and the other predictors steps of right runs.

    The runs are the student's own, or the teacher's. Without a validation set they are taken without a comparison. For
    the options see `raisf.optimize.optimizers.few_shot.Prompting`.
    """

    name = "bootstrap"
    validates = False

    def _draw(self, draws: Draws) -> dspy.Module:
        return draws.bootstrapped(self.demos, Random(self.seed), self.name)


@dataclass(kw_only=True, eq=False)
class RandomSearch(Prompting):
    """Takes the best of several draws of both kinds, of different sizes; of right runs alone where gold says nothing.

    DSPy's BootstrapFewShotWithRandomSearch does the like, but takes the training set where the validation set is
    missing, leaves the LMs reset while it compares, and has no place for balancing the judges' demonstrations.

    Args:
        candidates: Draws, each of which costs a run over the validation set.
        demos: See `raisf.optimize.optimizers.few_shot.Prompting`, also for the others.
    """

    candidates: int = 6

    name = "random"
    strict = True
    least: ClassVar[dict[str, int]] = {"candidates": 1}

    def _search(self, draws: Draws, selection: Selection) -> None:
        for number in range(self.candidates):
            name, make = draws.numbered(number)
            selection.score(name, with_prompts(draws.task.student, draws.kept(name, make)))


def _has_learnt(student: dspy.Module) -> bool:
    """Whether a student has demonstrations, weights or probes already, other instructions, or was compiled somehow."""
    asked = [(one.demos, one.lm or dspy.settings.lm) for _, one in student.named_predictors()]
    return (
        any(getattr(student, mark, None) for mark in (*HUNG, "_compiled"))
        or any(demos or trained_folder(lm) for demos, lm in asked)
        or any(map(_told_otherwise, programs_within(student)))
    )


def _told_otherwise(program: Any) -> bool:
    """Whether a program of ours has instructions that it was not made with."""
    try:
        plain = made_alike(program, {})
    except Exception:  # a subclass whose constructor wants more than options, or others
        return False
    if type(plain) is not next(constructors(program))[0]:
        return False
    now, made = ({name: one["instructions"] for name, one in prompts_of(of).items()} for of in (program, plain))
    return any(text != made.get(name, text) for name, text in now.items())


def reflection_lm(given: dspy.LM | str | None, student: dspy.Module) -> Any:
    """The LM that writes instructions: the one that is given, or its spec; else the first that the student asks."""
    if isinstance(given, str):
        lm = connect(given)  # a model that reasons has no limit of its own, and DSPy refuses it one as low as this
        return lm.copy(max_tokens=REFLECTION_TOKENS) if "max_tokens" in lm.kwargs else lm
    if given is not None:
        if not isinstance(given, dspy.BaseLM):
            raise InputError(f"reflection_lm is {given!r}: give an LM, or a spec such as openai/gpt-4o")
        return given
    asked: Any = next((predictor.lm for _, predictor in student.named_predictors() if predictor.lm is not None), None)
    return asked or dspy.settings.lm
