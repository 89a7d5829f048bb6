"""Fitting the thresholds from which on RA-ISF's judges say know and relevant, on a validation set.

The judges give probabilities, and half is a good place to cut for a calibrated one only. DSPy's experimental ReAnchor
has the same aim and a fold check like the one here, but where we score labels it has the LM write a distribution and a
confidence, which a base Llama cannot; it fits on the metric alone, never on a judge's gold; and it runs the whole
program for each setting of each label.

A judge's verdicts are not the program's answers: where one passage in ten is relevant, a judge that calls hardly any
relevant is right mostly, and every question that it leaves without a passage is lost. So thresholds that were fitted on
verdicts are set only if the program, run with them, answers no worse.
"""

import itertools
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import dspy
import numpy as np
from dspy.teleprompt import Teleprompter
from numpy.typing import NDArray

from raisf.evaluation.comparison import randomisation
from raisf.evaluation.identity import gold_answers, question_id
from raisf.evaluation.intervals import bootstrap, paired_difference
from raisf.evaluation.judges import JudgeReport, cuts, ece_score, recentred, reliability, verdict_scores
from raisf.evaluation.runner import progress_bar
from raisf.optimize.demonstrations import copy_of
from raisf.optimize.judges.judge_data import VERDICTS
from raisf.optimize.judges.judgements import Judge, Judged, Judgements, collect
from raisf.optimize.judges.labels import Labels, check_asking, check_labelled
from raisf.optimize.optimizers.selection import Metric, answer_exact_match, check_prices
from raisf.optimize.optimizers.threshold_search import Answers, Thresholds, Trial
from raisf.optimize.within import program_within
from raisf.programs.calls import require_lm
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError

Aim = Literal["answer", "cost", "accuracy", "balanced"]
JUDGES = get_args(Judge)

# Thresholds are chosen on four fifths of the questions and held to what holds now on the fifth that they have not seen.
FOLDS = 5
# ... and stay as they are unless chance alone would hardly ever have made them so much better.
ALPHA = 0.05
# Quantiles a judge that aims "answer" and "cost" try: each pair is a run over the validation set, from memory mostly.
GRID = 6
SWITCHES = {"know": "use_know", "relevance": "use_relevance"}


@dataclass(kw_only=True, eq=False)
class Calibrate(Teleprompter):
    """Fits the thresholds of RA-ISF's judges (`know_threshold`, `relevance_threshold`) on the validation set.

    A threshold moves only if what it aims at gets better beyond chance (a paired test at 5% on held-out fifths), and
    one that aims at verdicts only if the answers on the validation set get no worse. A judge whose LM gives no
    probabilities keeps its verdicts, and so does one that gold says nothing of. Replies that cannot be read are no
    verdicts and no labels.

    Args:
        aim: "answer": the metric of the program's answers, over a grid of both thresholds. "cost": the same less what
            the answers cost. "accuracy": as many right verdicts as can be, each judge by itself. "balanced": the mean
            of the shares right in both classes.
        labels: How known questions are told from unknown ones; see `know_labels`.
        metric: Of the answers, called as `metric(example, prediction, trace)`.
        call_price: For aim "cost": what an LM call costs, in right answers; at 0.01 a hundred calls are worth one.
        search_price: The same of a search.
        threads: Questions asked at a time.
        progress: Show bars on stderr.
    """

    aim: Aim = "answer"
    labels: Labels = "model"
    metric: Metric = answer_exact_match
    call_price: float = 0.01
    search_price: float = 0.0
    threads: int = 8
    progress: bool = True

    def __post_init__(self) -> None:
        if self.aim not in get_args(Aim):
            raise InputError(f"unknown aim {self.aim!r}: choose {', '.join(get_args(Aim))}")
        check_prices(self.call_price, self.search_price)
        check_asking(self.labels, self.threads)

    def check(self, student: dspy.Module, valset: Sequence[dspy.Example] | None) -> RAISF:
        """Makes sure that `compile` can begin, for who has long work to do before; the RA-ISF that it is about.

        Raises:
            InputError: See `compile`.
        """
        found = program_within(student, RAISF, f"{type(student).__name__} has no thresholds to calibrate: take ra-isf")
        if not valset:
            raise InputError("the validation set is missing or empty: thresholds are fitted on questions of their own")
        for example in valset:
            if not gold_answers(example):
                raise InputError(
                    f"the validation question {example.question!r} has no gold answer: add one or leave it out"
                )
        return found

    def compile(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        student: dspy.Module,
        *,
        trainset: Sequence[dspy.Example] = (),
        teacher: Any = None,
        valset: Sequence[dspy.Example] | None = None,
    ) -> Any:
        """A copy of the student, an RA-ISF or a module that contains one, with fitted thresholds.

        The result's `compile_report["calibration"]` has for each judge the thresholds and its measures and reliability
        before and after, or why it was left alone; and under "answer" the answers and their cost. "After" of a judge is
        held out: a fifth of the questions at a time, under the threshold fitted on the others; and the probabilities of
        the ECE are those that `recentred` puts on the threshold's scale. "After" of the answers is held out for the
        aims that are fitted on them.

        Args:
            student: With its LMs and its retriever; stays as it is.
            trainset: Not looked at.
            teacher: Likewise.
            valset: Questions with gold, best those that selected the prompts or stopped the training, never the test's.

        Raises:
            InputError: No RA-ISF, an empty validation set, answers missing.
            LMError: The LM failed on ten calls in a row, or most of its replies cannot be read.
        """
        program = self.check(student, valset)
        assert valset is not None
        require_lm(student)
        start = time.perf_counter()
        judges: dict[str, Any] = {}
        rows: dict[str, list[Judged]] = {}
        left_out: dict[str, dict[str, Any]] = {}
        options: dict[str, Any] = {"labels": self.labels, "threads": self.threads, "progress": self.progress}
        for judge in JUDGES:
            if not getattr(program, SWITCHES[judge]):
                continue
            try:
                if judge == "relevance" and program.relevance == "listwise":
                    raise InputError("a listwise judge names the relevant passages and gives no probabilities")
                judged = collect(program, judge, valset, **options)
                left_out[judge] = {"unreadable": judged.unreadable, "unlabelled": judged.unlabelled}
                rows[judge] = _usable(judge, judged)
            except InputError as error:
                judges[judge] = {"skipped": str(error)}
        now: Thresholds = (program.know_threshold, program.relevance_threshold)
        fitted: dict[str, tuple[float, list[float]]] = {}
        with progress_bar(self.progress) as bar:
            trial = Trial(program, valset, self.metric, self.threads, bar)
            if self.aim in ("answer", "cost"):
                prices = (self.call_price, self.search_price) if self.aim == "cost" else (0.0, 0.0)
                # Quantiles may miss the gap between the classes; where gold shows it, the best answers are likely near.
                more = {judge: _fit(found, 0.5, balanced=True)[0] for judge, found in rows.items()}
                chosen, after = _fit_answers(trial, now, more, prices, [question_id(example) for example in valset])
            else:
                fitted = {
                    judge: _fit(found, at, balanced=self.aim == "balanced") for judge, found, at in _with(rows, now)
                }
                chosen = _guarded(trial, now, {judge: best for judge, (best, _) in fitted.items()})
                after = trial.at(chosen)
            before = trial.at(now)
        made: Any = copy_of(student)
        calibrated = program_within(made, RAISF, "")
        calibrated.know_threshold, calibrated.relevance_threshold = chosen
        for judge, found, at in _with(rows, now):
            to = getattr(calibrated, f"{judge}_threshold")
            best, held_out = fitted.get(judge, (to, [to] * len(found)))
            judges[judge] = {
                "threshold": {"before": at, "after": to},
                "before": _measured(found, [at] * len(found)).as_dict(),
                "after": _measured(found, held_out if to == best else [to] * len(found)).as_dict(),
                **({"refused": best} if to != best else {}),
                **{what: found for what, found in left_out[judge].items() if found},
            }
        priced = {"call_price": self.call_price, "search_price": self.search_price} if self.aim == "cost" else {}
        report = {
            "aim": self.aim,
            "valset": len(valset),
            **priced,
            "judges": judges,
            "answer": _compared(before, after, trial.pairs),
            "seconds": round(time.perf_counter() - start, 2),
        }
        made.compile_report = {**(getattr(student, "compile_report", None) or {}), "calibration": report}
        return made


def calibrate(program: dspy.Module, *, valset: Sequence[dspy.Example], **options: Any) -> Any:
    """A copy of the program with fitted thresholds: `Calibrate(**options).compile(program, valset=valset)`."""
    return Calibrate(**options).compile(program, valset=valset)


def _with(rows: dict[str, list[Judged]], now: Thresholds) -> list[tuple[str, list[Judged], float]]:
    return [(judge, rows[judge], at) for judge, at in zip(JUDGES, now, strict=True) if judge in rows]


def _usable(judge: Judge, judged: Judgements) -> list[Judged]:
    """The judge's rows with a probability, of both classes."""
    rows = judged.scored
    check_labelled(len(judged.rows), judged.unreadable, f"verdicts of the {judge} judge could not be read")
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
    chosen, picks = _choose(right * weight, [row.question for row in rows])
    return float(tried[chosen]), [float(tried[pick]) for pick in picks]


def _guarded(trial: Trial, now: Thresholds, fitted: dict[str, float]) -> Thresholds:
    """The fitted thresholds, as many of them as can be set without costing answers."""
    both = tuple(fitted.get(judge, at) for judge, at in zip(JUDGES, now, strict=True))
    least = trial.at(now).right.mean() - 1e-12
    candidates: list[Any] = [both, (both[0], now[1]), (now[0], both[1])]
    return next((pair for pair in candidates if trial.at(pair).right.mean() >= least), now)


def _fit_answers(
    trial: Trial, now: Thresholds, more: dict[str, float], prices: tuple[float, float], groups: Sequence[Hashable]
) -> tuple[Thresholds, Answers]:
    """The pair of thresholds with the best answers, and the answers under those that were chosen without their fold.

    Each judge's are what it has, that of `more`, and quantiles of the probabilities that the program meets.
    """
    trial.at(now)
    grid = []
    for judge, at in zip(JUDGES, now, strict=True):
        seen = list(trial.seen[judge])
        grid.append(list(dict.fromkeys([at, more.get(judge, at), *cuts(seen, 0, 1, most=GRID)])) if seen else [at])
    pairs: list[Thresholds] = [(float(know), float(relevance)) for know, relevance in itertools.product(*grid)]
    trial.expect(len(pairs))
    tried = [trial.at(pair) for pair in pairs]  # the first is what holds now
    chosen, picks = _choose(np.array([answers.worth(*prices) for answers in tried]), groups)
    places = np.arange(len(picks))
    held_out = Answers(*(np.array([getattr(a, name) for a in tried])[picks, places] for name in Answers.__slots__))
    return pairs[chosen], held_out


def _choose(values: NDArray[Any], groups: Sequence[Hashable]) -> tuple[int, NDArray[np.int64]]:
    """The best candidate, if it keeps its promise beyond chance on items that it was not chosen on; else the first.

    Args:
        values: What each candidate gains with each item, (candidates, items); the first is what holds now.
        groups: What each item belongs to, such as its question; a fold and the test take whole groups, (items,).

    Returns:
        The candidate, and for each item the one that was chosen without the item's fold.
    """
    numbers: dict[Hashable, int] = {}
    places = np.array([numbers.setdefault(group, len(numbers)) for group in groups])
    folds = np.random.default_rng(0).permutation(len(numbers))[places] % FOLDS
    picks = np.zeros(values.shape[1], np.int64)
    for fold in range(FOLDS):
        held = folds == fold
        if not held.all():
            picks[held] = _best(values[:, ~held])
    gains = np.bincount(places, values[picks, np.arange(len(picks))] - values[0])  # of each group
    if gains.mean() <= 0 or randomisation(gains.tolist(), [0.0] * len(gains)) > ALPHA:
        return 0, np.zeros_like(picks)
    return _best(values), picks


def _best(values: NDArray[Any]) -> int:
    means = values.mean(1)
    top = np.flatnonzero(means >= means.max() - 1e-12)
    return 0 if top[0] == 0 else int(top[len(top) // 2])  # in the middle of a plateau there is room on both sides


def _compared(before: Answers, after: Answers, tried: int) -> dict[str, Any]:
    """The answers and their cost, before and after."""
    ours, theirs = after.right.tolist(), before.right.tolist()
    return {
        "before": bootstrap(theirs).as_dict(),
        "after": bootstrap(ours).as_dict(),
        "difference": paired_difference(ours, theirs).as_dict(),
        "p": randomisation(ours, theirs),
        "lm_calls": {"before": float(before.calls.mean()), "after": float(after.calls.mean())},
        "retrievals": {"before": float(before.searches.mean()), "after": float(after.searches.mean())},
        "tried": tried,
    }


def _measured(rows: Sequence[Judged], thresholds: Sequence[float]) -> JudgeReport:
    """The judge's measures with a threshold a row; without AUROC, which no threshold changes."""
    pairs = [(row.probability or 0.0, at) for row, at in zip(rows, thresholds, strict=True)]
    gold, groups = [row.gold for row in rows], [row.question for row in rows]
    probabilities = [recentred(probability, at) for probability, at in pairs]
    scores = verdict_scores(gold, [probability >= at for probability, at in pairs], groups)
    return JudgeReport(scores | {"ece": ece_score(gold, probabilities, groups)}, reliability(gold, probabilities))
