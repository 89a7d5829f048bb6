"""Fitting the thresholds from which on RA-ISF's judges say know, relevant and sufficient, on a validation set.

The judges give probabilities, and half is a good place to cut for a calibrated one only. DSPy's experimental ReAnchor
has the same aim and a fold check like the one here, but where we score labels it has the LM write a distribution and a
confidence, which a base Llama cannot; it fits on the metric alone, never on a judge's gold; and it runs the whole
program for each setting of each label.

A judge's verdicts are not the program's answers: where one passage in ten is relevant, a judge that calls hardly any
relevant is right mostly, and every question that it leaves without a passage is lost. So thresholds that were fitted on
verdicts are set only if the program, run with them, answers no worse.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import dspy
from dspy.teleprompt import Teleprompter

from raisf.evaluation.examples import check_answered, question_id
from raisf.optimize.copying import copy_of
from raisf.optimize.judges.judge_data import VERDICTS
from raisf.optimize.judges.judgements import Judge, Judged, Judgements, judgements_of
from raisf.optimize.judges.labels import Labels, check_labelled, check_labels_option
from raisf.optimize.optimizers.base import check_own_forwards, counting
from raisf.optimize.optimizers.calibration_report import (
    Collected,
    Fitted,
    answers_report,
    judges_report,
    kinds_report,
)
from raisf.optimize.optimizers.fold_choice import fit_cut
from raisf.optimize.optimizers.kinds_of_know import check_kinds, turn
from raisf.optimize.optimizers.selection import Metric, answer_exact_match, check_metric, check_prices, metric_name
from raisf.optimize.optimizers.threshold_search import (
    Answers,
    Thresholds,
    Trial,
    best_answers,
    guarded,
)
from raisf.optimize.overlap import asked_with_parts, note_learnt
from raisf.optimize.within import program_within
from raisf.programs.ra_isf import RAISF
from raisf.programs.self_knowledge import Know
from raisf.utils.checks import check_least, check_named
from raisf.utils.errors import InputError, LMError, RaisfError
from raisf.utils.predictors import require_lm
from raisf.utils.progress import progress_bar

Aim = Literal["answer", "cost", "accuracy", "balanced"]


@dataclass(kw_only=True, eq=False)
class Calibrate(Teleprompter):
    """Fits the thresholds of RA-ISF's judges (`know_threshold`, ...) on the validation set, and may choose among kinds.

    A threshold moves only if what it aims at gets better beyond chance (a paired test at 5% on held-out fifths), and
    one that aims at verdicts only if the answers on the validation set get no worse. A judge whose LM gives no
    probabilities keeps its verdicts. One that gold says nothing of is not measured, and moves by the answers alone.
    Replies that cannot be read are no verdicts and no labels.

    Args:
        aim: "answer": the metric of the program's answers, over a grid of the thresholds. "cost": the same less what
            the answers cost. "accuracy": as many right verdicts as can be, each judge by itself. "balanced": the mean
            of the shares right in both classes.
        know: Kinds of self-knowledge (`raisf.RAISF(know=...)`) to try, each with thresholds of its own; the one with
            the best held-out answers is kept, less their cost where that is the aim, and of equals the one of fewer
            calls. Empty: the program's own alone. One that the LM cannot do is left out. A judge that nothing was
            compiled for (that of drafts for "truth", unless the program is of this kind) is asked of the base.
        labels: How known questions are told from unknown ones; see `know_labels`.
        metric: Of the answers, called as `metric(example, prediction, trace)`.
        call_price: For aim "cost": what an LM call costs, in right answers; at 0.01 a hundred calls are worth one.
        search_price: The same of a search.
        threads: Questions asked at a time.
        progress: Show bars on stderr.
    """

    aim: Aim = "answer"
    know: tuple[Know, ...] = ()
    labels: Labels = "model"
    metric: Metric = answer_exact_match
    call_price: float = 0.01
    search_price: float = 0.0
    threads: int = 8
    progress: bool = True

    def __post_init__(self) -> None:
        check_named("aim", self.aim, get_args(Aim))
        self.know = (self.know,) if isinstance(self.know, str) else self.know or ()  # pyright: ignore[reportAttributeAccessIssue]
        check_metric(self.metric)
        check_kinds(self.know)
        check_prices(self.call_price, self.search_price)
        check_labels_option(self.labels)
        check_least(self, threads=1)

    def check(self, student: dspy.Module, valset: Sequence[dspy.Example] | None) -> RAISF:
        """Checks what `compile` needs, for callers with long work to do before; gives the RA-ISF that it calibrates.

        Raises:
            InputError: See `compile`.
        """
        found = program_within(student, RAISF, f"{type(student).__name__} has no thresholds to calibrate: take ra-isf")
        check_own_forwards(student)
        check_kinds(self.know, found)
        if not valset:
            raise InputError("the validation set is missing or empty: thresholds are fitted on questions of their own")
        check_answered(valset, "validation")
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
        before and after, or why it was not measured (`skipped`); and under "answer" the answers and their cost. "After"
        is held out, a fifth of the questions at a time under the threshold fitted on the others, for what the aim is
        fitted on: the answers ("answer", "cost") or the verdicts ("accuracy", "balanced"). Of the other it is under the
        thresholds that were chosen on the same questions. The probabilities of the ECE are those that `recentred` puts
        on the threshold's scale. Where kinds of self-knowledge were tried, it has under "know" each one's answers, cost
        and thresholds, or why it was left out; those of the best are a little flattered, being the best of some.

        Args:
            student: With its LMs and its retriever; stays as it is.
            trainset: What it was compiled on: no judge is held to what these questions, or their parts, ask.
            teacher: Not looked at.
            valset: Questions with gold, best those that selected the prompts or stopped the training, never the test's.

        Raises:
            InputError: No RA-ISF, an empty validation set, answers missing, none of the kinds can be tried.
            LMError: The LM failed on ten calls in a row, or most of its replies cannot be read.
        """
        program = self.check(student, valset)
        assert valset is not None
        require_lm(student)
        failed: dict[str, str] = {}
        tried: list[Fitted] = []
        learnt = frozenset(text for example in trainset for text in asked_with_parts(example))
        with counting() as spent, progress_bar(self.progress) as bar:
            trial = Trial(student, valset, self.metric, self.threads, bar)
            others = self._collect(trial.program, ("relevance", "sufficiency"), valset, learnt)
            own, now = program.self_knowledge, Thresholds.of(program)
            kinds = dict.fromkeys(self.know or (own,))
            before, said = None, dict[str, Collected]()
            if own not in kinds:
                trial.turn(own)
                before = trial.at(now)
                said = self._collect(trial.program, ("know",), valset, learnt)
            for kind in kinds:
                at = now if kind == own else now._replace(know=0.5)
                try:
                    trial.turn(kind)
                    collected = {**others, **self._collect(trial.program, ("know",), valset, learnt)}
                    tried.append(self._fitted(trial, kind, at, valset, collected))
                except RaisfError as error:  # of an LM that gives no log-probabilities; one that is down ends it all
                    if not self.know or isinstance(error, LMError):
                        raise
                    failed[kind] = str(error)
        if not tried:
            raise InputError(f"no kind of self-knowledge can be tried: {next(iter(failed.values()))}")
        best = max(tried, key=lambda one: (round(self._worth(one.after), 9), -one.after.calls.mean()))
        made: Any = copy_of(student)
        calibrated = program_within(made, RAISF, "")
        turn(calibrated, best.kind)
        best.chosen.give(calibrated)
        for one in tried:
            if one.kind == own:
                before, said = one.before, one.collected
        report = {
            "aim": self.aim,
            "metric": metric_name(self.metric),
            "valset": len(valset),
            **({"call_price": self.call_price, "search_price": self.search_price} if self.aim == "cost" else {}),
            **({"know": kinds_report(tried, failed, best.kind, own)} if self.know else {}),
            "judges": judges_report(best, said, now),
            "answer": answers_report(before or best.before, best.after, trial.tried),
            "failed": len(trial.failed),
            **spent.told(),
        }
        made.compile_report = {**(getattr(student, "compile_report", None) or {}), "calibration": report}
        note_learnt(made, student, valset)
        return made

    @property
    def _prices(self) -> tuple[float, float]:
        return (self.call_price, self.search_price) if self.aim == "cost" else (0.0, 0.0)

    def _worth(self, answers: Answers) -> float:
        return float(answers.worth(*self._prices).mean())

    def _fitted(
        self,
        trial: Trial,
        kind: Know,
        now: Thresholds,
        valset: Sequence[dspy.Example],
        collected: Mapping[str, Collected],
    ) -> Fitted:
        """The thresholds of a kind, which is tried now."""
        measured = {judge: found.rows for judge, found in collected.items() if found.skipped is None}
        best: dict[str, tuple[float, list[float]]] = {}
        if self.aim in ("answer", "cost"):
            # Quantiles may miss the gap between the classes; where gold shows it, the best answers are likely near.
            more = {judge: fit_cut(rows, 0.5, balanced=True)[0] for judge, rows in measured.items()}
            groups = [question_id(example) for example in valset]
            chosen, after = best_answers(trial, now, more, self._prices, groups)
        else:
            balanced = self.aim == "balanced"
            best = {one: fit_cut(rows, getattr(now, one), balanced=balanced) for one, rows in measured.items()}
            chosen = guarded(trial, now, {judge: at for judge, (at, _) in best.items()})
            after = trial.at(chosen)
        return Fitted(kind, now, chosen, trial.at(now), after, best, collected)

    def _collect(
        self, program: RAISF, judges: Sequence[Judge], valset: Sequence[dspy.Example], learnt: frozenset[str]
    ) -> dict[str, Collected]:
        """What these judges of the program say beside gold of nothing that was learnt, as far as it asks them."""
        collected = dict[str, Collected]()
        options: dict[str, Any] = {"labels": self.labels, "threads": self.threads, "progress": self.progress}
        valset = [example for example in valset if "question" in example]  # a module may ask for something else
        for judge in judges:
            if not _asks(program, judge):
                continue
            try:
                if judge == "relevance" and program.relevance == "listwise":
                    raise InputError("a listwise judge names the relevant passages and gives no probabilities")
                judged = judgements_of(program, judge, valset, **options)
                left_out = {"unreadable": judged.unreadable, "unlabelled": judged.unlabelled}
                collected[judge] = Collected(_usable(judge, _unseen(judged, learnt)), left_out)
            except InputError as error:
                collected[judge] = Collected(skipped=str(error))
        return collected


def calibrate(program: dspy.Module, *, valset: Sequence[dspy.Example], **options: Any) -> Any:
    """A copy of the program with fitted thresholds: `Calibrate(**options).compile(program, valset=valset)`."""
    return Calibrate(**options).compile(program, valset=valset)


def _asks(program: RAISF, judge: Judge) -> bool:
    if judge == "sufficiency":  # asked of what another judge has let through
        return program.sufficiency and program.use_relevance
    return program.use_know if judge == "know" else program.use_relevance


def _unseen(judged: Judgements, learnt: frozenset[str]) -> Judgements:
    """Those about nothing that was learnt from: two questions may share a sub-question. All, if all are about that."""
    rows = [row for row in judged.rows if row.question not in learnt]
    return replace(judged, rows=rows) if rows else judged


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
