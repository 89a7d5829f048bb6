"""Making an answer's confidence the share of such answers that is right, on a validation set."""

import functools
from collections.abc import Sequence
from typing import Any

import dspy
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from raisf.evaluation.confidence import log_odds
from raisf.evaluation.examples import check_examples, question_id
from raisf.evaluation.judges import ece_score
from raisf.evaluation.risk import risk_coverage
from raisf.optimize.copying import copy_of
from raisf.optimize.inner_traces import leave_traces, trace_of, with_traces
from raisf.optimize.optimizers.base import check_own_forwards
from raisf.optimize.optimizers.fold_choice import FOLDS
from raisf.optimize.optimizers.selection import Metric, answer_exact_match, check_metric
from raisf.optimize.overlap import note_learnt
from raisf.optimize.runs import results, score_of
from raisf.optimize.within import program_within
from raisf.programs.confidence import EDGE, Confidence
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError
from raisf.utils.progress import progress_bar

LEAST = 10
"""Answers with a confidence that a scaling of two numbers is fitted on at least."""


def check_enough(valset: Sequence[dspy.Example]) -> None:
    """Raise InputError for fewer validation questions than answers are needed."""
    if len(valset) < LEAST:
        raise InputError(
            f"the confidence is calibrated on {LEAST} answers or more, not {len(valset)}: "
            "give more validation questions"
        )


def fit_confidence(
    program: dspy.Module,
    *,
    valset: Sequence[dspy.Example],
    metric: Metric = answer_exact_match,
    threads: int = 8,
    progress: bool = True,
) -> Any:
    """A copy of the program whose confidence says how often it is right: Platt's scaling, two options of the program.

    It moves no answer before another, so risk and coverage stay; what changes is what `min_confidence` means. The
    result's `compile_report["confidence"]` has slope, offset, and the expected calibration error before and, held out
    in fifths, after.

    Args:
        program: An RA-ISF, or a module that contains one; stays as it is. Asked with no answer kept back. A module that
            asks its RA-ISF more than once a question hands on the `trace` of its answer.
        valset: Questions with gold that nothing was trained on.
        metric: Of the answers, in [0, 1].
        threads: Questions asked at a time.
        progress: Show a bar on stderr.

    Raises:
        InputError: There is no RA-ISF, too few answers have a confidence, all are right or all wrong, or the confidence
            ranks the wrong ones higher.
        LMError: The LM failed on ten questions in a row.

    Source:
        Platt 1999, with his targets; Guo et al. 2017 compare it.
    """
    check_metric(metric)
    check_examples(valset, "validation")
    check_enough(valset)
    made: Any = copy_of(program)
    fitted = program_within(made, RAISF, f"{type(program).__name__} has no confidence to calibrate: take ra-isf")
    check_own_forwards(program)
    found = _asked(made, fitted, valset, metric, threads, progress)
    if len(found) < LEAST:
        raise InputError(
            f"{len(found)} of {len(valset)} answers have a confidence, and {LEAST} are needed: give more validation "
            "questions, or an LM that gives probabilities; a module that asks its RA-ISF more than once a question has "
            "to hand on the trace of its answer"
        )
    names = sorted(found)
    right, sure = np.array([found[name] for name in names]).T
    slope, offset = platt(right, sure)
    fitted.confidence_slope, fitted.confidence_offset = slope, offset
    report = {
        "slope": slope,
        "offset": offset,
        "answers": len(names),
        "valset": len(valset),
        "ece": {
            "before": ece_score((right >= 0.5).tolist(), sure.tolist(), names).as_dict(),
            "after": ece_score((right >= 0.5).tolist(), _held_out(right, sure).tolist(), names).as_dict(),
        },
        "risk": risk_coverage(right.tolist(), sure.tolist(), names).as_dict(),
    }
    made.compile_report = {**(getattr(program, "compile_report", None) or {}), "confidence": report}
    note_learnt(made, program, valset)
    return made


def _asked(
    module: dspy.Module, program: RAISF, valset: Sequence[dspy.Example], metric: Metric, threads: int, progress: bool
) -> dict[str, tuple[float, float]]:
    """By question, what the module's answer is worth, and how sure its program is, as far as that says so.

    The program keeps no answer back meanwhile, and its confidence is left unscaled.
    """
    least, program.min_confidence = program.min_confidence, 0.0
    program.confidence_slope, program.confidence_offset = 1.0, 0.0
    leave_traces(program)

    def sure_of(example: dspy.Example, run: dspy.Prediction) -> tuple[str, tuple[float, float]] | None:
        trace = trace_of(run)
        if trace is None or trace.root.confidence is None:
            return None
        return question_id(example), (score_of(metric, example, run.prediction), trace.root.confidence)

    with progress_bar(progress) as bar:
        task = bar.add_task("confidence", total=len(valset), score="")
        asked = functools.partial(with_traces, module)
        answers = results(asked, valset, sure_of, threads=threads, tell=lambda _: bar.update(task, advance=1))
    del vars(program)["_run"]
    program.min_confidence = least
    found: dict[str, tuple[float, float]] = {}
    for place, (name, pair) in enumerate(filter(None, answers)):  # questions of two files may have the same ids
        found[name if name not in found else f"{name} in place {place}"] = pair
    return found


def _held_out(right: np.ndarray, sure: np.ndarray) -> np.ndarray:
    """The confidence of each answer (n,), scaled as the answers of the other folds say."""
    scaled, folds = np.empty(len(right)), np.random.default_rng(0).permutation(len(right)) % FOLDS
    for fold in range(FOLDS):
        held = folds == fold
        try:
            scaling = Confidence("judges", *platt(right[~held], sure[~held]))
            scaled[held] = [scaling.scaled(one) for one in sure[held].tolist()]
        except InputError:  # so few answers tell nothing of the others
            scaled[held] = right[~held].mean()
    return scaled


def platt(right: ArrayLike, confidence: ArrayLike) -> tuple[float, float]:
    """Slope and offset of the logistic regression of right answers on the log-odds of their confidence.

    Args:
        right: Of each answer, in [0, 1], (n,).
        confidence: Likewise, (n,).

    Raises:
        InputError: All are right, or all wrong, or all as sure, or the slope is not positive.

    Source: Platt 1999, with his targets and his start.
    """
    hits = np.asarray(right, np.float64)
    x = np.array([log_odds(one, EDGE) for one in np.asarray(confidence, np.float64)])
    good, bad = float(hits.sum()), float(len(hits) - hits.sum())
    if not good or not bad:
        raise InputError(
            f"all {len(hits)} answers with a confidence are {'right' if good else 'wrong'}: nothing to fit"
        )
    if x.min() == x.max():
        raise InputError(f"all {len(hits)} answers have the same confidence: nothing to fit")
    # Platt's targets: what a few more answers would say keeps the slope finite where one number parts the classes.
    target = hits * (good + 1) / (good + 2) + (1 - hits) / (bad + 2)
    design = np.stack([x, np.ones_like(x)], 1)
    start = np.array([0.0, np.log((good + 1) / (bad + 1))])

    def loss(w: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        z = design @ w
        return float((np.logaddexp(0, z) - target * z).sum()), design.T @ (expit(z) - target)

    weights = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-6}).x
    if weights[0] <= 0:
        raise InputError("wrong answers have the higher confidence: no scaling makes it say how often they are right")
    return float(weights[0]), float(weights[1])
