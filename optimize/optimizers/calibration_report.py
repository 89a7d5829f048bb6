"""What fitting thresholds came to: the judges' rows, the answers before and after, and the report of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raisf.evaluation.comparison import randomisation
from raisf.evaluation.intervals import bootstrap, paired_difference
from raisf.evaluation.judges import JudgeReport, ece_score, recentred, reliability, verdict_scores
from raisf.optimize.judges.judgements import Judged
from raisf.optimize.optimizers.threshold_search import Answers, Thresholds
from raisf.programs.self_knowledge import Know


@dataclass(frozen=True, slots=True)
class Collected:
    """What a judge said beside gold, or why nothing can be fitted to that.

    Attributes:
        rows: Those with a probability.
        left_out: How many could not be read, and what is said of those without a label.
        skipped: Why there are no rows.
    """

    rows: list[Judged] = field(default_factory=list)
    left_out: dict[str, Any] = field(default_factory=dict)
    skipped: str | None = None


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
        collected: By judge that is asked, what it said.
    """

    kind: Know
    start: Thresholds
    chosen: Thresholds
    before: Answers
    after: Answers
    best: dict[str, tuple[float, list[float]]]
    collected: Mapping[str, Collected]


def judges_report(fitted: Fitted, own: Mapping[str, Collected], start: Thresholds) -> dict[str, Any]:
    """By judge, its thresholds and measures, or why it was not measured.

    "Before" is with the thresholds that the program had at the start, and with its own kind of self-knowledge, which
    may be another than the one that was chosen.
    """
    judges: dict[str, Any] = {}
    for judge, to in fitted.chosen._asdict().items():
        if (found := fitted.collected.get(judge)) is None:
            continue
        rows, at = found.rows, getattr(fitted.start, judge)
        if found.skipped is not None:
            judges[judge] = {"threshold": {"before": at, "after": to}, "skipped": found.skipped}
            continue
        best, held_out = fitted.best.get(judge, (to, [to] * len(rows)))
        before = rows
        if judge in own and own[judge].skipped is None:
            before, at = own[judge].rows, getattr(start, judge)
        judges[judge] = {
            "threshold": {"before": at, "after": to},
            "before": _measured(before, [at] * len(before)).as_dict(),
            "after": _measured(rows, held_out if to == best else [to] * len(rows)).as_dict(),
            **({"refused": best} if to != best else {}),
            **{what: many for what, many in found.left_out.items() if many},
        }
    return judges


def kinds_report(tried: Sequence[Fitted], failed: dict[str, str], chosen: Know, own: Know) -> dict[str, Any]:
    """What each kind of self-knowledge comes to, on questions that its thresholds were not fitted on."""
    found = {
        one.kind: {
            "score": bootstrap(one.after.right.tolist()).as_dict(),
            "lm_calls": float(one.after.calls.mean()),
            "retrievals": float(one.after.searches.mean()),
            "thresholds": one.chosen._asdict(),
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
