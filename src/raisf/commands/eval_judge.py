"""`raisf eval --module`: one judge of a program alone, against gold."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.commands.result import CommandResult
from raisf.experiments.judging import judge_alone
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from raisf.evaluation.judges import JudgeReport

# Where the verdicts of a measurement that was stopped lie, for the same command to go on with.
JUDGED = Path("runs/judges")
NO_PROBABILITIES = "no AUROC and no ECE: the judge gives verdicts without probabilities"


@dataclass(frozen=True, slots=True)
class JudgeEvaluation:
    """What is measured, and how.

    Attributes:
        module: The judge: know, relevance, sufficiency or decomposition.
        program: Its program, and `name`, what the user called that.
        test: The questions' file; only the first `limit` are asked.
        train: Questions to fit the know judge's baselines on.
        out: Where the verdicts go.
        labels: What the LM knows: "model" asks it, "gold" believes the questions' own marks.
        threads: Questions at a time.
        fresh: Whether what a measurement that was stopped has left is dropped.
    """

    module: str
    program: Any
    name: str
    test: Path
    limit: int | None
    train: Path | None
    out: Path | None
    labels: Any
    threads: int
    fresh: bool = False

    def run(self) -> CommandResult:
        """Measures it.

        Raises:
            InputError: `train` for another judge than know, or with questions of `test`; `out` holds something else
                than verdicts; the program has no such judge, or the questions no such gold.
            LMError: The LM failed on ten rows in a row, or on all there are, or most of its replies cannot be read.
        """
        from raisf.data.questions import load_questions
        from raisf.evaluation.examples import describe_test
        from raisf.evaluation.identity import describe, digest
        from raisf.evaluation.seen import warn_of_seen
        from raisf.optimize.overlap import asked_with_parts, check_disjoint
        from raisf.utils.files import write_jsonl
        from raisf.utils.journal import Journal

        if self.train is not None and self.module != "know":
            raise InputError("--train fits the baseline of --module know: leave it out")
        _check_out(self.out, self.module)
        examples = load_questions(self.test)[: self.limit]
        train = load_questions(self.train) if self.train else None
        check_disjoint(train or [], {"test": examples})
        asked = [text for example in examples for text in asked_with_parts(example)]
        seen = warn_of_seen(self.program, examples, self.module, asked)
        identity = digest([describe(self.program), describe_test(examples), self.module, self.labels])
        with Journal.alone(JUDGED, self.module, identity) as journal:
            if self.fresh:
                journal.close()
            options: dict[str, Any] = {"labels": self.labels, "threads": self.threads, "journal": journal}
            report, rows, errors = judge_alone(self.program, self.module, examples, **options)
            if self.out is not None:
                write_jsonl(self.out, [{**asdict(row), "judge": self.module} for row in rows])
            result = self._summary(report, rows, errors, train)
            journal.close()
        result.data["not_held_out"] = seen
        return result

    def _summary(self, report: "JudgeReport", rows: list[Any], errors: int, train: list[Any] | None) -> CommandResult:
        """The result: the judge's measures, for `know` beside those of baselines, for which the LM is asked again."""
        from raisf.optimize.judges.labels import check_labelled
        from raisf.reports.judges import judge_table
        from raisf.utils.display import as_text

        unreadable = sum(not row.readable for row in rows)
        check_labelled(len(rows), unreadable, f"verdicts of the {self.module} judge could not be read")
        found = {"rows": len(rows), "unreadable": unreadable, "errors": errors}
        if self.module != "decomposition":
            return self._verdicts(report, rows, found, train)
        title = f"the decomposition judge of {self.name} on {self.test}: {len(rows)} questions"
        view = [as_text(title), judge_table({"judge": (None, report)})]
        return self._result(found, {"judge": report.as_dict()}, view, [])

    def _verdicts(
        self, report: "JudgeReport", rows: list[Any], counts: dict[str, int], train: list[Any] | None
    ) -> CommandResult:
        from raisf.optimize.judges.judgements import judging
        from raisf.optimize.judges.reliability import POSITIVE
        from raisf.reports.judges import judge_table, reliability_table
        from raisf.utils.display import as_text

        notes: list[str] = []
        scored = "auroc" in report.scores
        threshold = vars(judging(self.program)).get(f"{self.module}_threshold", 0.5) if scored else None
        found = {**counts, "positive": sum(row.gold for row in rows)}
        columns: dict[str, tuple[float | None, JudgeReport]] = {"judge": (threshold, report)}
        if not scored:
            notes.append(NO_PROBABILITIES)
        if self.module == "know":
            columns |= self._baselines(rows, train, notes)
        data = {"threshold": threshold, **report.as_dict()}
        others = {name: {"threshold": at, **other.as_dict()} for name, (at, other) in list(columns.items())[1:]}
        positive = POSITIVE[self.module]
        title = f"the {self.module} judge of {self.name} on {self.test}: "
        title += f"{found['positive']} of {found['rows']} {positive}"
        view: list[RenderableType] = [as_text(title), judge_table(columns)]
        if report.bins:
            view.append(reliability_table(report.bins, positive))
        if report.risk:
            view.append(report.risk.table())
        return self._result(found, {"judge": data, "baselines": others}, view, notes)

    def _baselines(self, rows: list[Any], train: list[Any] | None, notes: list[str]) -> dict[str, Any]:
        """By name, a baseline's threshold and report; none, and a note, where the LM gives no log-probabilities."""
        from raisf.optimize.judges.answer_likelihood import KINDS, baselines

        questions, gold = [row.question for row in rows], [row.gold for row in rows]
        try:
            made = baselines(self.program, questions, gold, train, labels=self.labels, threads=self.threads)
        except InputError as error:  # the judge has been asked all the same
            notes.append(f"no baseline beside the judge: {error}{'; --train did nothing' * (train is not None)}")
            return {}
        if train is None:
            notes.append("the baselines' thresholds are fitted where --train FILE is given")
        else:
            fitted = next(iter(made.values())).fitted_on
            notes.append(f"the baselines' thresholds were fitted on {fitted} questions of {self.train}")
        kinds = ", ".join(KINDS.values())
        notes.append(f"baselines: a threshold on the log-probability of the LM's own answer, {kinds}")
        return {f"baseline, {kind}": (baseline.threshold, baseline.report) for kind, baseline in made.items()}

    def _result(
        self, found: dict[str, int], measured: dict[str, Any], view: "Sequence[RenderableType]", notes: list[str]
    ) -> CommandResult:
        from rich.console import Group

        from raisf.utils.display import as_text

        counts = [f"{found[name]} {name}" for name in ("unreadable", "errors") if found[name]]
        lines = [as_text(line, "dim") for line in [*notes, *counts]]
        if self.out:
            lines.append(as_text(f"rows: {self.out}"))
        named = {"module": self.module, "program": self.name, "test": str(self.test)}
        out = {"out": str(self.out)} if self.out else {}
        return CommandResult({**named, **out, **found, **measured, "notes": notes}, Group(*view, *lines))


def _check_out(out: Path | None, module: str) -> None:
    """Verdicts take the place of earlier verdicts of the same judge, and of nothing else."""
    from raisf.evaluation.records import meta_path
    from raisf.utils.files import check_name, check_writable, read_jsonl

    if out is None:
        return
    if out.is_dir():
        raise InputError(f"{out} is a folder: give a file for the verdicts, such as {out / 'verdicts.jsonl'}")
    check_name(out)
    check_writable(out.parent, "give another file")
    try:
        first = next(read_jsonl(out), None) if out.exists() else None
    except InputError:
        first = {}
    if meta_path(out).exists():
        raise InputError(f"{out} would lie beside {meta_path(out).name}, which is of answers: give another file")
    # Answers have these fields, too.
    if first is not None and not ({"question", "gold", "readable"} <= first.keys() and "em" not in first):
        raise InputError(f"{out} holds something else than verdicts, which would be replaced: give another file")
    if first is not None and (whose := first.get("judge")) not in (module, None):
        raise InputError(f"{out} holds verdicts of the {whose} judge, which would be replaced: give another file")
