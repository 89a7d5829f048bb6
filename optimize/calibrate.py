"""Fitting the thresholds from which on RA-ISF's judges say know and relevant, on a validation set.

The judges give probabilities, and half is a good place to cut for a calibrated one only. DSPy's experimental ReAnchor
has the same aim and a fold check like the one here, but where we score labels it has the LM write a distribution and a
confidence, which a base Llama cannot; it fits on the metric alone, never on a judge's gold; and it runs the whole
program for each setting of each label.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, Literal, get_args

import dspy
import numpy as np
from numpy.typing import NDArray

from data.errors import InputError
from evaluation.identity import gold_answers, question_id
from evaluation.intervals import bootstrap
from evaluation.judges import JudgeReport, cuts, ece_score, recentred, reliability, verdict_scores
from evaluation.runner import Outcome, ask_all, progress_bar
from optimize.compile import Metric, answer_exact_match
from optimize.demonstrations import copy_of
from optimize.judge_data import VERDICTS, Labels
from optimize.judgements import Judge, Judged, collect
from programs.calls import require_lm
from programs.ra_isf import RAISF

Aim = Literal["answer", "accuracy", "balanced"]

# A threshold stays as it was unless the ones fitted on four fifths are better on the fifth that they have not seen.
FOLDS = 5
# Quantiles a judge that aim "answer" tries: each pair of them is a run over the validation set, from memory mostly.
GRID = 6
SWITCHES = {"know": "use_know", "relevance": "use_relevance"}


def calibrate(
    program: dspy.Module,
    *,
    valset: Sequence[dspy.Example],
    aim: Aim = "answer",
    labels: Labels = "model",
    metric: Metric = answer_exact_match,
    threads: int = 8,
    progress: bool = True,
) -> dspy.Module:
    """A copy of RA-ISF with the thresholds of its judges (`know_threshold`, `relevance_threshold`) fitted.

    A judge whose LM gives no probabilities keeps its verdicts, and so does one that gold says nothing of. The result's
    `compile_report["calibration"]` has, for each judge, the thresholds and its measures and reliability before and
    after, or why it was left alone. "After" is held out: a fifth of the questions at a time, under the threshold fitted
    on the others; and the probabilities of the ECE are those that `recentred` puts on the threshold's scale.

    Args:
        program: With its LMs and its retriever; stays as it is.
        valset: Questions with gold, best those that selected the prompts or stopped the training, never the test's.
        aim: "answer": the metric of the program's answers, over a grid of both thresholds. "accuracy": as many right
            verdicts as can be, each judge by itself. "balanced": the mean of the shares right in both classes; where
            relevant passages are rare, a judge that calls none relevant is right mostly, and answers nothing.
        labels: How known questions are told from unknown ones; see `know_examples`.
        metric: For aim "answer": called as `metric(example, prediction, trace)`.
        threads: Questions asked at a time.
        progress: Show bars on stderr.

    Raises:
        InputError: Another program than RA-ISF, an unknown aim, an empty validation set, answers missing.
        LMError: The LM failed on ten calls in a row.
    """
    if not isinstance(program, RAISF):
        raise InputError(f"{type(program).__name__} has no thresholds to calibrate: take ra-isf")
    if aim not in get_args(Aim):
        raise InputError(f"unknown aim {aim!r}: choose {', '.join(get_args(Aim))}")
    if not valset:
        raise InputError("the validation set is missing or empty: thresholds are fitted on questions of their own")
    require_lm(program)
    start = time.perf_counter()
    calibrated: Any = copy_of(program)
    judges: dict[str, Any] = {}
    rows: dict[str, list[Judged]] = {}
    options: dict[str, Any] = {"labels": labels, "threads": threads, "progress": progress}
    for judge in get_args(Judge):
        if not getattr(program, SWITCHES[judge]):
            continue
        try:
            rows[judge] = _usable(program, judge, valset, options)
        except InputError as error:
            judges[judge] = {"skipped": str(error)}
    answers = None
    if aim == "answer":
        # Quantiles may miss the gap between the classes; where gold shows it, the best answers are likely near.
        known_good = {judge: [_fit(found, 0.5, balanced=True)[0]] for judge, found in rows.items()}
        answers = _fit_answers(calibrated, valset, known_good, metric, threads, progress)
    for judge, found in rows.items():
        before = getattr(program, f"{judge}_threshold")
        held_out = [getattr(calibrated, f"{judge}_threshold")] * len(found)
        if aim != "answer":
            after, held_out = _fit(found, before, balanced=aim == "balanced")
            setattr(calibrated, f"{judge}_threshold", after)
        judges[judge] = {
            "threshold": {"before": before, "after": getattr(calibrated, f"{judge}_threshold")},
            "before": _measured(found, [before] * len(found)).as_dict(),
            "after": _measured(found, held_out).as_dict(),
        }
    report = {"aim": aim, "valset": len(valset), "judges": judges, "seconds": round(time.perf_counter() - start, 2)}
    calibrated.compile_report = {
        **(getattr(program, "compile_report", None) or {}),
        "calibration": report | ({"answer": answers} if answers else {}),
    }
    return calibrated


def _usable(program: RAISF, judge: Judge, valset: Sequence[dspy.Example], options: dict[str, Any]) -> list[Judged]:
    """The judge's rows with a probability, of both classes."""
    if judge == "relevance" and program.relevance == "listwise":
        raise InputError("a listwise judge names the relevant passages and gives no probabilities")
    rows = collect(program, judge, valset, **options).scored
    if not rows:
        raise InputError("its LM gives no probabilities")
    positive = sum(row.gold for row in rows)
    if positive in (0, len(rows)):
        raise InputError(
            f"all {len(rows)} judgements of the validation set are {VERDICTS[judge][not positive]} by gold"
        )
    return rows


def _fit(rows: Sequence[Judged], now: float, *, balanced: bool) -> tuple[float, list[float]]:
    """The threshold, and for each row the one that was fitted without the fold of its question."""
    gold, probability = np.array([row.gold for row in rows]), np.array([row.probability or 0.0 for row in rows])
    tried = np.array([now, *cuts(probability, 0, 1)])
    right = (probability[None] >= tried[:, None]) == gold  # (candidates, rows)
    weight = np.where(gold, 0.5 / gold.mean(), 0.5 / (1 - gold.mean())) if balanced else np.ones(len(gold))
    chosen, picks = _choose(right * weight, _folds([row.question for row in rows]))
    return float(tried[chosen]), [float(tried[pick]) for pick in picks]


def _fit_answers(
    program: Any,
    valset: Sequence[dspy.Example],
    more: dict[str, list[float]],
    metric: Metric,
    threads: int,
    progress: bool,
) -> dict[str, Any]:
    """Set the pair of thresholds of the best answers; gives the metric before and, held out, after.

    Each judge's are what it has, those of `more`, and quantiles of the probabilities that the program meets.
    """
    for example in valset:
        if not gold_answers(example):
            raise InputError(
                f"the validation question {example.question!r} has no gold answer: add one or leave it out"
            )
    trial: Any = copy_of(program)
    for _, predictor in trial.named_predictors():
        _remember(predictor)
    seen: dict[str, set[float]] = defaultdict(set)

    def run(bar: Any, task: Any) -> list[float]:
        values: dict[int, float] = {}

        def keep(outcome: Outcome) -> None:
            prediction = outcome.prediction
            values[id(outcome.example)] = 0.0
            if prediction is not None:
                values[id(outcome.example)] = float(metric(outcome.example, prediction, None))
                _note_probabilities(prediction.trace.root, seen)
            bar.update(task, advance=1)

        ask_all(trial, valset, keep, threads=threads)
        return [values[id(example)] for example in valset]

    now = (program.know_threshold, program.relevance_threshold)
    with progress_bar(progress) as bar:
        task = bar.add_task("calibrating", total=None, score="")
        values = [run(bar, task)]
        grid = [
            list(dict.fromkeys([at, *more.get(judge, []), *cuts(list(seen[judge]), 0, 1, most=GRID)]))
            if seen[judge]
            else [at]
            for judge, at in zip(get_args(Judge), now, strict=True)
        ]
        pairs = list(itertools.product(*grid))  # the first is what holds now
        bar.update(task, total=len(pairs) * len(valset))
        for know, relevance in pairs[1:]:
            trial.know_threshold, trial.relevance_threshold = know, relevance
            values.append(run(bar, task))
    table = np.array(values)
    chosen, picks = _choose(table, _folds([question_id(example) for example in valset]))
    program.know_threshold, program.relevance_threshold = map(float, pairs[chosen])
    return {
        "before": bootstrap(values[0]).as_dict(),
        "after": bootstrap(table[picks, np.arange(len(valset))].tolist()).as_dict(),
        "tried": len(pairs),
    }


def _choose(values: NDArray[Any], folds: NDArray[Any]) -> tuple[int, NDArray[np.int64]]:
    """The best candidate, if it keeps its promise on questions that it was not chosen on; else the first.

    Args:
        values: What each candidate gains with each item, (candidates, items); the first is what holds now.
        folds: The fold of each item, (items,).

    Returns:
        The candidate, and for each item the one that was chosen without the item's fold.
    """
    picks = np.zeros(values.shape[1], np.int64)
    for fold in range(FOLDS):
        held = folds == fold
        if not held.all():
            picks[held] = _best(values[:, ~held])
    if values[picks, np.arange(len(picks))].mean() <= values[0].mean():
        return 0, np.zeros_like(picks)
    return _best(values), picks


def _best(values: NDArray[Any]) -> int:
    means = values.mean(1)
    top = np.flatnonzero(means >= means.max() - 1e-12)
    return 0 if top[0] == 0 else int(top[len(top) // 2])  # in the middle of a plateau there is room on both sides


def _folds(groups: Sequence[Hashable]) -> NDArray[np.int64]:
    """A fold for each item, the same for all of a group and for every run."""
    numbers: dict[Hashable, int] = {}
    places = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    return np.random.default_rng(0).permutation(len(numbers))[places] % FOLDS


def _measured(rows: Sequence[Judged], thresholds: Sequence[float]) -> JudgeReport:
    """The judge's measures with a threshold a row; without AUROC, which no threshold changes."""
    pairs = [(row.probability or 0.0, at) for row, at in zip(rows, thresholds, strict=True)]
    gold, groups = [row.gold for row in rows], [row.question for row in rows]
    probabilities = [recentred(probability, at) for probability, at in pairs]
    scores = verdict_scores(gold, [probability >= at for probability, at in pairs], groups)
    return JudgeReport(scores | {"ece": ece_score(gold, probabilities, groups)}, reliability(gold, probabilities))


def _note_probabilities(root: Any, seen: dict[str, set[float]]) -> None:
    for node in root.walk():
        if node.know is not None and node.know.probability is not None:
            seen["know"].add(node.know.probability)
        for passage in node.passages:
            if passage.judgement is not None and passage.judgement.probability is not None:
                seen["relevance"].add(passage.judgement.probability)


def _remember(predictor: Any) -> None:
    """Let the predictor make equal calls once: another threshold meets the same judgements again."""
    made: dict[str, Any] = {}
    forward = type(predictor).forward

    def remembered(**inputs: Any) -> Any:
        key = repr(sorted(inputs.items()))
        if key not in made:
            made[key] = forward(predictor, **inputs)
        return made[key]

    predictor.forward = remembered
