"""Demonstrations from right runs, a program's own or a teacher's, beside those of the judges, which are gold's."""

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import dspy

from raisf.evaluation.runner import check_ran, error_text
from raisf.lm.reading import has_outputs
from raisf.optimize.copying import copy_of
from raisf.optimize.demonstrations import Rows, draw, only_fields
from raisf.optimize.judges.judge_data import VERDICTS, with_verdict
from raisf.optimize.judges.predictor_roles import JUDGE_ROLES, JUDGED, reasoned_role, role_of
from raisf.optimize.runs import marked
from raisf.optimize.traces import Traced, traced_rows
from raisf.utils.journal import Journal
from raisf.utils.sampling import up_to

logger = logging.getLogger(__name__)

# Questions a wanted demonstration that bootstrapping may try: a program that is right on fewer has little to show.
ATTEMPTS = 10
# Of these, how many are asked before the right ones are counted: where all fail, the LM is given up.
AT_ONCE = 10


def bootstrap_demos(
    program: dspy.Module,
    rows: Rows,
    n: int,
    rng: random.Random,
    trainset: Sequence[dspy.Example],
    metric: Callable[..., Any],
    teacher: dspy.Module | None = None,
    *,
    threads: int = 8,
    journal: Journal | None = None,
    name: str = "run",
    must_run: bool = False,
) -> tuple[dspy.Module, int]:
    """A copy of the program whose predictors show steps of right runs, and how many runs failed.

    The runs are of the drawn program, or of `teacher` with the same draw where one is given, until n are right and each
    predictor that they ask, and that has no draw, has a step to show. A judge's demonstrations are not taken from them:
    lucky runs would confirm it in its mistakes. A judge without rows takes those of the runs' calls that can be
    balanced; who gets none keeps what it has. Only a run that is right to the full teaches: of a metric of shares, 0.1
    would count as true.

    DSPy's BootstrapFewShot asks one question at a time, keeps no run for who goes on after a stop, hides those that
    failed, and takes no teacher but one of the very same predictors.

    Raises:
        LMError: The LM failed on ten runs in a row; or, if they must run as nothing else will tell that the program
            cannot, on all there are.
        RaisfError: The program did, for another reason than a reply that cannot be read.
    """
    drawn = draw(program, rows, n, rng)
    examples = [marked(example) for example in up_to(trainset, ATTEMPTS * n, rng)]
    runner = _with_demos_of(teacher, drawn) if teacher else drawn
    bare = [name for name, predictor in drawn.named_predictors() if not predictor.demos]
    runs = _runs(runner, examples, n, bare, metric, threads=threads, journal=journal, name=name)
    if must_run:
        check_ran(runs.runs, runs.broken, runs.error, "every run that was to demonstrate")
    _warn_of_nothing_shown(runs)
    student, shown = copy_of(program), dict(drawn.named_predictors())
    for name, predictor in student.named_predictors():
        judge = rows.judge.get(name) or JUDGED.get(reasoned_role(predictor))
        own = _with_all_outputs(predictor, runs.of.get(name, []))
        if name in rows.of and role_of(predictor) in JUDGE_ROLES:
            predictor.demos = shown[name].demos
        elif judge is not None:
            predictor.demos = _evened(own, judge, n, rng) or shown[name].demos
        else:
            predictor.demos = up_to(own, n, rng) or shown[name].demos
    return student, runs.failed


def _runs(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    n: int,
    bare: Sequence[str],
    metric: Callable[..., Any],
    *,
    name: str,
    **options: Any,
) -> Traced:
    """Runs until n are right; more where a bare predictor was asked in wrong runs alone.

    One that no run asks, as its program does without it, is not waited for: that would cost all the runs that there may
    be.
    """
    runs = Traced()
    for start in range(0, len(examples), AT_ONCE):
        if runs.right >= n and all(runs.of.get(predictor) for predictor in runs.asked.intersection(bare)):
            break
        some = examples[start : start + AT_ONCE]
        runs.add(traced_rows(program, some, metric, progress=False, name=f"{name}, from {start}", **options))
    return runs


def _warn_of_nothing_shown(runs: Traced) -> None:
    if runs.failed and not runs.right:
        told = f"; the last time with: {error_text(runs.error)}" if runs.error is not None else ""
        logger.warning(
            "of the runs that were to demonstrate %d failed and none was right: they show nothing%s", runs.failed, told
        )
    if runs.right and not runs.of:  # as dspy.BestOfN and dspy.Refine do
        logger.warning("the right runs were made by copies of the program, and show nothing: compile what is inside")


def _evened(demos: Sequence[dspy.Example], judge: str, n: int, rng: random.Random) -> list[dspy.Example]:
    of = [[demo for demo in demos if with_verdict(demo).get("verdict") == verdict] for verdict in VERDICTS[judge]]
    size = min(n // 2, *map(len, of))
    picked = [demo for same in of for demo in rng.sample(same, size)]
    rng.shuffle(picked)
    return picked


def _with_all_outputs(predictor: Any, demos: Sequence[Any]) -> list[dspy.Example]:
    """Demonstrations with all of their outputs: one that was read in part shows how not to answer."""
    return [only_fields(predictor, demo) for demo in demos if has_outputs(demo, predictor.signature)]


def _with_demos_of(teacher: dspy.Module, drawn: dspy.Module) -> dspy.Module:
    """The teacher with the demonstrations drawn for the predictors of the same names."""
    copy, demos = copy_of(teacher), {name: predictor.demos for name, predictor in drawn.named_predictors()}
    for name, predictor in copy.named_predictors():
        predictor.demos = demos.get(name) or predictor.demos
    return copy
