"""Compiling to prompts and weights in turn, by DSPy's BetterTogether: the best step on the validation set is kept."""

import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dspy
from dspy.teleprompt import Teleprompter

from raisf.evaluation.identity import describe, digest
from raisf.lm.local.model import LocalLM
from raisf.optimize.copying import copy_of
from raisf.optimize.optimizers.base import Compilation, Examples, Optimizer
from raisf.optimize.optimizers.few_shot import LabeledJudges, Prompting
from raisf.optimize.optimizers.finetune import FinetuneJudges
from raisf.optimize.optimizers.selection import GIVEN, Metric, Selection, answer_exact_match, metric_name
from raisf.optimize.prompts import prompts_of, with_prompts
from raisf.utils.errors import InputError
from raisf.utils.journal import ending_together
from raisf.utils.progress import ProgressBars, progress_bar

told = logging.getLogger("dspy.teleprompt.bettertogether")

ARROW = dspy.BetterTogether.STRAT_SEP


@dataclass(kw_only=True, eq=False)
class Together(Optimizer):
    """Compiles to prompts and to weights, one after the other, each on what the one before has made.

    `dspy.BetterTogether` runs the steps. The student and what each step made answer the validation questions, and the
    best of them is the result; of equal ones the earlier. In a later step weights are trained on rows with the
    demonstrations that were found, and demonstrations are selected for the weights that were trained.

    Args:
        strategy: The steps, p for prompts and w for weights, such as "p -> w", "w -> p" or "p -> w -> p".
        p: Compiles to prompts; None: `LabeledJudges` with the metric, seed and threads given here.
        w: Compiles to weights, such as `FinetuneJudges` or `OutcomeJudges`; None: `FinetuneJudges`, likewise.
        metric: Called as `metric(example, prediction, trace)`, in [0, 1]; chooses among the steps.
        seed: Of the order in which each step meets the training questions.
        threads: Questions asked at a time.
        work: See `raisf.optimize.optimizers.base.Optimizer`; also of both optimizers. After a kill, prompts and answers
            are taken from there, and training goes on.
        progress: Likewise.

    Its report has the score of each step and what its optimizer reported.

    Source:
        Soylu, Potts and Khattab 2024, "Fine-Tuning and Prompt Optimization: Two Great Steps that Work Better Together",
        arXiv 2407.10930.
    """

    strategy: str = "p -> w -> p"
    p: Prompting | None = None
    w: Optimizer | None = None
    metric: Metric = answer_exact_match
    seed: int = 0

    how = "both"

    def __post_init__(self) -> None:
        steps = [step.strip() for step in str(self.strategy).split(ARROW.strip())]
        if not all(step in ("p", "w") for step in steps):
            raise InputError(
                f"unknown strategy {self.strategy!r}: give steps p (prompts) and w (weights), such as 'p -> w -> p'"
            )
        self.strategy = ARROW.join(steps)
        if strange := [one for one in (self.p, self.w) if one is not None and not isinstance(one, Optimizer)]:
            raise InputError(
                f"a step's optimizer is a {type(strange[0]).__name__}, which keeps nothing to go on from: give one of "
                "raisf's, such as raisf.LabeledJudges(); dspy.BetterTogether takes any"
            )
        super().__post_init__()

    @property
    def parts(self) -> dict[str, Any]:
        """The optimizers of the steps, by their letters, as far as the strategy has them."""
        shared: dict[str, Any] = {"metric": self.metric, "seed": self.seed, "threads": self.threads}
        here: dict[str, Any] = {"work": self.work, "progress": self.progress}
        made = {"p": self.p or LabeledJudges(**shared), "w": self.w or FinetuneJudges(**shared)}
        return {step: dataclasses.replace(one, **here) for step, one in made.items() if step in self.strategy}

    def bases(self, student: dspy.Module) -> dict[str, LocalLM]:
        """Those of all steps."""
        return {name: lm for one in self.parts.values() for name, lm in one.bases(student).items()}

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        own = [self.strategy, self.seed]
        return own + [[type(one).__name__, one._settings(student, trainset, valset)] for one in self.parts.values()]

    def _functions(self) -> list[Callable[..., Any]]:
        return [self.metric, *(function for one in self.parts.values() for function in one._functions())]

    def _compile(self, task: Compilation) -> Any:
        walk = _Walk(self, task)
        steps = {letter: _Step(walk, optimizer) for letter, optimizer in self.parts.items()}
        student: Any = copy_of(task.student)
        unset = [name for name, one in student.named_predictors() if one.lm is None]
        for predictor in student.predictors():
            predictor.lm = predictor.lm or dspy.settings.lm  # BetterTogether wants each predictor to have its own
        sets: dict[str, Any] = {"trainset": list(task.trainset), "valset": list(task.valset)}
        told.disabled, before = True, told.disabled  # our bars and the report say the same
        try:
            with ending_together():  # a step that is stopped later leaves what earlier ones have paid for
                best: Any = _BetterTogether(walk, self.metric, steps).compile(
                    student, **sets, seed=self.seed, strategy=self.strategy
                )
                if walk.error is not None:  # it would give back the best until then, and say so in a log
                    raise walk.error
        finally:
            told.disabled = before
        chosen = best.candidate_programs[0]["strategy"]
        compiled: Any = copy_of(walk.programs[chosen])  # not its own: a deep copy has its LMs copied
        for name, predictor in compiled.named_predictors():
            if name in unset and predictor.lm is dspy.settings.lm:
                predictor.lm = None
        scores = {one["strategy"]: one["score"] / 100 for one in best.candidate_programs}
        compiled.compile_report = {
            "how": "both",
            "strategy": self.strategy,
            "seed": self.seed,
            "trainset": len(task.trainset),
            "valset": len(task.valset),
            "metric": metric_name(self.metric),
            "candidates": walk.selection.tried,
            "chosen": chosen or GIVEN,
            "failed": walk.selection.failed,
            "steps": [{"name": name, "score": scores[name], "report": report} for name, report in walk.reports.items()],
        }
        return compiled


class _Walk:
    """The way through the steps: what each made, reported and scored."""

    def __init__(self, options: Together, task: Compilation) -> None:
        self.programs: dict[str, Any] = {"": task.student}
        self.reports: dict[str, dict[str, Any]] = {}
        self.error: Exception | None = None
        self._options, self._task = options, task
        bar = ProgressBars(shown=False)
        self.selection = Selection(
            task.valset, options.metric, task.journal, task.calls, options.threads, bar, key=_key_of
        )

    def step(self, optimizer: Optimizer, student: dspy.Module, sets: dict[str, Any]) -> Any:
        """Takes the next step. Prompts come from the journal where an earlier call has found them."""
        taken = len(self.reports)
        name = ARROW.join(self._options.strategy.split(ARROW)[: taken + 1])
        found = self._task.journal.get(f"step {name}")
        if found is not None:
            made: Any = with_prompts(student, found["prompts"])
            report = found["report"]
        else:
            made = optimizer.compile(student, teacher=self._task.teacher, **sets)
            report = {key: value for key, value in made.compile_report.items() if key != "earlier"}
            if isinstance(optimizer, Prompting):
                self._task.journal.add(f"step {name}", {"prompts": prompts_of(made), "report": report})
        made.compile_report = report
        self.programs[name], self.reports[name] = made, report
        return made

    def score(self, program: Any) -> float:
        """The mean of the metric on the validation set, in percent."""
        name = next(reversed(self.programs))
        with progress_bar(self._options.progress) as bar:
            self.selection.bar = bar
            return 100 * self.selection.score(name or GIVEN, program).value


class _Step(Teleprompter):
    """An optimizer as BetterTogether runs it."""

    def __init__(self, walk: _Walk, optimizer: Optimizer) -> None:
        self._walk, self._optimizer = walk, optimizer

    def compile(self, student: Any, *, trainset: Any, valset: Any = None, **_: Any) -> Any:
        return self._walk.step(self._optimizer, student, {"trainset": trainset, "valset": valset})


class _BetterTogether(dspy.BetterTogether):
    """With our asking of validation questions: side by side, kept in the journal, with one bar of ours."""

    def __init__(self, walk: _Walk, metric: Metric, steps: dict[str, Any]) -> None:
        super().__init__(metric, **steps)
        self._walk = walk

    def _run_and_evaluate_step(self, *given: Any, **named: Any) -> Any:
        try:
            return super()._run_and_evaluate_step(*given, **named)
        except Exception as error:
            self._walk.error = error
            raise

    def _evaluate_on_valset(self, program: Any, *_: Any, **__: Any) -> float:
        return self._walk.score(program)


def _key_of(program: dspy.Module) -> str:
    """What a candidate is: steps that train change no prompts."""
    return digest([describe(program), prompts_of(program)])
