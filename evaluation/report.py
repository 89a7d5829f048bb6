"""What the records of an evaluation say: means with intervals, the routes taken, retrieval, cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from raisf.evaluation import RecordsById
from raisf.evaluation.confidence import UNKNOWN, of_record
from raisf.evaluation.intervals import Score, bootstrap, caution
from raisf.evaluation.readability import counts
from raisf.evaluation.risk import RiskCoverage, risk_coverage
from raisf.utils.display import DataTable
from raisf.utils.usage import TOKENS

FAILED, UNTOLD = "error", "-"
"""Among the routes: questions that ended in an error, and those whose program tells none."""
UNCOUNTED = "What a question that ended in an error has cost, but for its seconds, is in no mean."


@dataclass(frozen=True, slots=True)
class RouteShare:
    """How many questions ended on a route, and the share of these that was answered right (exact match)."""

    n: int
    share: float
    correct: float


@dataclass(frozen=True, slots=True)
class Report:
    """One program on one test set.

    Attributes:
        em: Exact match over all n questions; a question that ended in an error counts as wrong, here and below.
        f1: Token F1.
        accuracy: Yes/no accuracy where gold is yes/no, exact match elsewhere.
        routes: By the route that settled the root question (the paper's table 7), most frequent first.
        kinds: Exact match by kind of question, where the test set has several.
        recall: Share of the gold among the passages at hand to answer the root question (`Node.passages`), over the n
            questions that have gold and that it searched for: 0 where it found nothing, or kept nothing. None: no such.
        precision: Share of these passages that is gold, over the same questions.
        cost: Means a question, by the names in a record's cost: lm_calls, unmetered_calls (of which nobody told the
            tokens), prompt_tokens, completion_tokens, retrievals, discarded_retrievals, seconds (from asking to answer:
            a question also waits for those that are asked at the same time).
        unreadable: LM outputs that could not be read, over all questions; a judgement among them is no verdict, an
            answer among them is wrong.
        outputs: LM outputs in all, read and unreadable.
        errors: Questions that ended in an error, also of one call that a program went on without.
        threads: How many questions were asked at a time, each number that its records tell; none where one tells none.
        risk: Exact match of the surest answers (`raisf.evaluation.risk`); None where no record has a confidence. An
            answer without one stands above those that nothing supports and below all others; where there is none, last.
    """

    em: Score
    f1: Score
    accuracy: Score
    routes: dict[str, RouteShare]
    kinds: dict[str, Score]
    recall: Score | None
    precision: Score | None
    cost: dict[str, float]
    unreadable: int
    outputs: int
    errors: int
    threads: tuple[int, ...] = ()
    risk: RiskCoverage | None = None

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-able values."""
        scores = {name: getattr(self, name) for name in ("em", "f1", "accuracy", "recall", "precision")}
        return {
            **{name: score.as_dict() for name, score in scores.items() if score is not None},
            "routes": {name: asdict(route) for name, route in self.routes.items()},
            "kinds": {name: score.as_dict() for name, score in self.kinds.items()},
            "cost": {name: self.told(name) for name in self.cost},
            "unreadable": self.unreadable,
            "outputs": self.outputs,
            "errors": self.errors,
            "threads": list(self.threads),
            **({"risk": self.risk.as_dict()} if self.risk is not None else {}),
        }

    def told(self, name: str) -> float | None:
        """A mean cost; None where nobody tells it, such as tokens of an endpoint that counts none."""
        untold = name in TOKENS and 0 < self.cost.get("lm_calls", 0) <= self.cost.get("unmetered_calls", 0)
        return None if untold else self.cost.get(name)

    def table(self, title: str = "") -> DataTable:
        """The report for the terminal."""
        notes = [caution(self.em.n), f"seconds: {waited([self])}.", UNCOUNTED * bool(self.errors)]
        told = "\n".join(filter(None, notes))
        table = DataTable("", "value", title=title or None, title_justify="left", show_header=False, caption=told)
        table.add_row("exact match", str(self.em))
        table.add_row("token F1", str(self.f1))
        table.add_row("accuracy", str(self.accuracy))
        for name, score in (("retrieval recall", self.recall), ("retrieval precision", self.precision)):
            if score is not None:
                table.add_row(name, str(score))
        table.add_section()
        for name, score in self.kinds.items():
            table.add_row(f"exact match, {name}", str(score))
        table.add_section()
        for name, route in self.routes.items():
            if name == UNTOLD:
                continue
            table.add_row(f"route {name}", f"{100 * route.share:.1f}% of questions, {100 * route.correct:.1f}% right")
        if self.risk is not None:
            table.add_section()
            for coverage, right in self.risk.right.items():
                table.add_row(f"exact match, the surest {coverage:.0%}", f"{100 * right:.1f}")
            table.add_row("AURC, lower is better", str(self.risk.aurc))
        table.add_section()
        for name in self.cost:
            mean = self.told(name)
            shown = "-" if mean is None else f"{mean:.2f}"
            table.add_row(f"{name.replace('_', ' ').replace('lm', 'LM')} a question", shown)
        style = "red" if self.unreadable else None
        table.add_row("unreadable LM outputs", f"{self.unreadable} of {self.outputs}", style=style)
        table.add_row("errors", str(self.errors), style="red" if self.errors else None)
        return table


def summarise(records: Iterable[dict[str, Any]]) -> Report:
    """The report of finished records, in any order; it needs nothing but the records' file."""
    rows = sorted(records, key=lambda row: row["id"])  # resampling by position: the order must not depend on speed
    kinds = sorted({row["kind"] for row in rows if row["kind"]})
    unreadable, outputs = counts(rows)
    kinds = kinds if len(kinds) > 1 else []  # the whole test set by another name says nothing new
    return Report(
        em=_mean(rows, "em"),
        f1=_mean(rows, "f1"),
        accuracy=_mean(rows, "accuracy"),
        routes=_routes(rows),
        kinds={kind: _mean([row for row in rows if row["kind"] == kind], "em") for kind in kinds},
        recall=_mean_where_known(rows, "recall"),
        precision=_mean_where_known(rows, "precision"),
        cost=_cost(rows),
        unreadable=unreadable,
        outputs=outputs,
        errors=sum(row["error"] is not None for row in rows),
        threads=tuple(sorted({row["threads"] for row in rows})) if all("threads" in row for row in rows) else (),
        risk=_risk(rows),
    )


def summaries(records: Mapping[str, RecordsById]) -> dict[str, Report]:
    """By the label of each program, the report of its records."""
    return {label: summarise(of.values()) for label, of in records.items()}


def waited(reports: Iterable[Report]) -> str:
    """What the seconds of a question are: most of them may be a wait for those that are asked at the same time."""
    told_of = [report.threads for report in reports]
    threads = sorted({number for numbers in told_of for number in numbers}) if all(told_of) else []
    told = f"{' or '.join(map(str, threads))} question{'s' * (threads != [1])} at a time"
    return f"from asking to answer, {told if threads else 'waiting for other questions included'}"


def _risk(rows: Sequence[dict[str, Any]]) -> RiskCoverage | None:
    found = [of_record(row) for row in rows]
    if all(one is None for one in found):
        return None
    sure = [_untold(row) if one is None else one for row, one in zip(rows, found, strict=True)]
    return risk_coverage([row["em"] for row in rows], sure, [row["id"] for row in rows])


def _untold(row: dict[str, Any]) -> float:
    """Where an answer without a confidence stands: above those that nothing supports, whose confidence is 0."""
    return math.ulp(0.0) if row["prediction"] not in (None, "", UNKNOWN) else -1.0


def _mean(rows: Sequence[dict[str, Any]], measure: str) -> Score:
    return bootstrap([row[measure] for row in rows])


def _mean_where_known(rows: Sequence[dict[str, Any]], measure: str) -> Score | None:
    known = [row[measure] for row in rows if row[measure] is not None]
    return bootstrap(known) if known else None


def _routes(rows: Sequence[dict[str, Any]]) -> dict[str, RouteShare]:
    right: dict[str, list[float]] = {}
    for row in rows:
        right.setdefault(FAILED if row["error"] is not None else row["route"] or UNTOLD, []).append(row["em"])
    by_count = sorted(right.items(), key=lambda item: (-len(item[1]), item[0]))
    return {name: RouteShare(len(ems), len(ems) / len(rows), sum(ems) / len(ems)) for name, ems in by_count}


def _cost(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By name the mean over the questions that tell it: what one that failed has cost, but for its time, is unknown."""
    told: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row["cost"].items():
            told.setdefault(name, []).append(value)
    # Of a module of anyone's that asks in threads of its own no call is seen: that is not none.
    if "retrievals" not in told and not any(told.get("lm_calls", ())):
        told = {name: values for name, values in told.items() if name == "seconds"}
    return {name: sum(values) / len(values) for name, values in told.items()}
