"""What fitting thresholds came to: the judges' rows, the answers before and after, and the report of both."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from raisf.evaluation.comparison import randomisation
from raisf.evaluation.intervals import bootstrap, paired_difference
from raisf.evaluation.judges import JudgeReport, ece_score, recentred, reliability, verdict_scores
from raisf.optimize.judges.judgements import Judged
from raisf.optimize.optimizers.threshold_search import WITH_THRESHOLD, Answers, Thresholds
from raisf.programs.self_knowledge import Know


@dataclass(slots=True)
class Rows:
    """What a judge said beside gold, or why nothing can be fitted to that.

    Attributes:
        of: By judge, the rows with a probability.
        left_out: By judge, how many could not be read, and what is said of those without a label.
        skipped: By judge, why there are no rows.
        learnt: The questions that were learnt from, about which there are none.
    """

    of: dict[str, list[Judged]] = field(default_factory=dict)
    left_out: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    learnt: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fitted:
    """What came out for one kind of self-knowledge.

    Attributes:
        kind: That.
        start: The thresholds that it began with.
        chosen: Those that it shall have.
        before: The answers under the first.
        after: Those under the others, held out where the thresholds were fitted on answers.
        best: By judge, the threshold that fits its verdicts best, and for each row the one fitted without it.
        rows: What the judges said.
    """

    kind: Know
    start: Thresholds
    chosen: Thresholds
    before: Answers
    after: Answers
    best: dict[str, tuple[float, list[float]]]
    rows: Rows


def judges_with_rows(rows: Rows, now: Thresholds) -> list[tuple[str, list[Judged], float]]:
    """The judges that have rows, each with these and its threshold."""
    return [(judge, rows.of[judge], at) for judge, at in zip(WITH_THRESHOLD, now, strict=True) if judge in rows.of]


def judges_report(fitted: Fitted, own: Rows, start: Thresholds) -> dict[str, Any]:
    """By judge, its thresholds and measures, or why it was not measured.

    Args:
        fitted: What was chosen.
        own: The rows of the program's own kind of self-knowledge, which may be another.
        start: The thresholds that the program had.
    """
    judges: dict[str, Any] = {}
    chosen, had = (dict(zip(WITH_THRESHOLD, of, strict=True)) for of in (fitted.chosen, start))
    for judge, found, at in judges_with_rows(fitted.rows, fitted.start):
        to = chosen[judge]
        best, held_out = fitted.best.get(judge, (to, [to] * len(found)))
        before, at = (own.of[judge], had[judge]) if judge == "know" and judge in own.of else (found, at)
        judges[judge] = {
            "threshold": {"before": at, "after": to},
            "before": _measured(before, [at] * len(before)).as_dict(),
            "after": _measured(found, held_out if to == best else [to] * len(found)).as_dict(),
            **({"refused": best} if to != best else {}),
            **{what: found for what, found in fitted.rows.left_out[judge].items() if found},
        }
    begun = dict(zip(WITH_THRESHOLD, fitted.start, strict=True))
    skipped = {
        judge: {"threshold": {"before": begun[judge], "after": chosen[judge]}, "skipped": why}
        for judge, why in fitted.rows.skipped.items()
    }
    return {judge: found for judge in WITH_THRESHOLD if (found := {**judges, **skipped}.get(judge)) is not None}


def kinds_report(tried: Sequence[Fitted], failed: dict[str, str], chosen: Know, own: Know) -> dict[str, Any]:
    """What each kind of self-knowledge comes to, on questions that its thresholds were not fitted on."""
    found = {
        one.kind: {
            "score": bootstrap(one.after.right.tolist()).as_dict(),
            "lm_calls": float(one.after.calls.mean()),
            "retrievals": float(one.after.searches.mean()),
            "thresholds": dict(zip(WITH_THRESHOLD, one.chosen, strict=True)),
        }
        for one in tried
    }
    return {"chosen": chosen, "before": own, "tried": found, "left_out": failed}


def answers_report(before: Answers, after: Answers, tried: int) -> dict[str, Any]:
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
