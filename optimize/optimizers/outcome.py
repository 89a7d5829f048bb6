"""Compiling by outcome: judges learn what verdict leads to right answers at little cost, from answers alone."""

import contextlib
import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import dspy

from raisf.evaluation.examples import gold_answers
from raisf.evaluation.identity import digest
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.demonstrations import judges_by_drafts
from raisf.optimize.identity import identity_of
from raisf.optimize.judges.agreement import Agreement
from raisf.optimize.judges.judge_data import VERDICTS, relevance_examples
from raisf.optimize.judges.judge_rows import JudgeRows
from raisf.optimize.judges.labels import Labels, check_labels_option, know_labels
from raisf.optimize.judges.outcomes import Advantages, Trying
from raisf.optimize.judges.weighed import accepted, heaviest
from raisf.optimize.optimizers.base import Compilation, Examples, Optimizer
from raisf.optimize.optimizers.few_shot import LabeledJudges
from raisf.optimize.optimizers.finetune import FinetuneJudges
from raisf.optimize.optimizers.probe import ProbeJudges
from raisf.optimize.optimizers.selection import Metric, answer_exact_match, check_gold, check_prices
from raisf.optimize.optimizers.training_rows import GROUPS, MAX_VALIDATION, QUESTIONS_A_ROW
from raisf.programs.ra_isf import RAISF
from raisf.utils.checks import check_least, check_named
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal
from raisf.utils.sampling import up_to

By = Literal["weights", "probe", "prompts"]

# What takes the rows: an optimizer with a field `judge_rows`, given those of its fields that `OutcomeJudges` has too.
LEARNERS: dict[str, type[Any]] = {"weights": FinetuneJudges, "probe": ProbeJudges, "prompts": LabeledJudges}
# By judge, its switch in RA-ISF and its predictor's name.
TRIED = {"know": ("use_know", "know"), "relevance": ("use_relevance", "relevant")}


@dataclass(kw_only=True, eq=False)
class OutcomeJudges(Optimizer):
    """Trains RA-ISF's judges by outcome: what a verdict is worth is whether the final answer is right, and its cost.

    Both verdicts are tried on training questions, know against unknown and each passage's relevant against irrelevant;
    the better end is the label, and by how much is its weight (`raisf.optimize.judges.outcomes`). So answers are all
    that is needed of gold, and the judges learn what this LM reads well and what a call costs. Of decompositions only
    one is tried, and of verdicts on whether passages suffice none: where these are compiled too, they learn from gold
    as ever, or stay as they are.

    Args:
        by: "weights": `FinetuneJudges`, by a loss with those weights; "probe": `ProbeJudges`, likewise, in seconds
            once the rows are there; "prompts": `LabeledJudges`, whose demonstrations are drawn by rejection sampling
            with them.
        metric: Of the final answer, called as `metric(example, prediction, trace)`.
        call_price: What an LM call costs, in right answers; at 0.01 a hundred calls are worth one.
        search_price: The same of a search.
        rows: Examples a judge at most, of the greatest weight; twice as many questions are tried at most.
        base: By weights and probe: see `FinetuneJudges`.
        predictors: Likewise; others than know and relevant learn from gold.
        training: By weights: see `FinetuneJudges`.
        demos: By prompts: see `raisf.optimize.optimizers.few_shot.Prompting`.
        labels: What the report compares the outcome's labels with; see `raisf.optimize.judges.labels.know_labels`.
        seed: Of the draws, and of the training where that is None.
        threads: Questions tried at a time.
        tries: A folder that keeps what the tries gave, for others of the same program at the same prices: they try only
            what is new to it. None: kept until this one has compiled.
        work: See `raisf.optimize.optimizers.base.Optimizer`.
        progress: Likewise.

    Its report is the learner's, and under "outcomes" says by judge how many rows there were of each verdict and how
    many were taken, their mean advantage, how many the answer's score decided, and how far gold's labels agree; with
    `tries` also how many seconds all tries took, and how many of them were spent before.
    """

    by: By = "weights"
    metric: Metric = answer_exact_match
    call_price: float = 0.01
    search_price: float = 0.0
    rows: int = 1000
    base: LocalLM | str | None = None
    predictors: Sequence[str] | str | None = None
    training: Training | None = None
    demos: int | None = None
    labels: Labels = "model"
    seed: int = 0
    tries: Path | str | None = None

    how = "outcome"

    def __post_init__(self) -> None:
        check_named("by", self.by, get_args(By))
        check_prices(self.call_price, self.search_price)
        check_least(self, rows=2)
        check_labels_option(self.labels)
        super().__post_init__()
        known = _options_of(LEARNERS[self.by])
        for name in ("base", "predictors", "training", "demos"):
            if getattr(self, name) is not None and name not in known:
                raise InputError(f"{name} is of no use by {self.by}: leave it out")
        self._learner()

    def _learner(self, **given: Any) -> Any:
        """What takes the rows, with the options that it shares with this."""
        kind = LEARNERS[self.by]
        shared = {name: getattr(self, name) for name in _options_of(kind) & _options_of(type(self))}
        return kind(**{name: value for name, value in shared.items() if value is not None}, **given)

    def bases(self, student: dspy.Module) -> dict[str, LocalLM]:
        """As those of what takes the rows."""
        return self._learner().bases(student)

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        self._judges(student)
        check_gold(self.metric, trainset, valset)
        settings = self.training.told() if self.training else None
        own = [self.by, self.call_price, self.search_price, self.rows, self.labels, self.seed, settings]
        return [*own, self._learner()._settings(student, trainset, valset)]

    def _judges(self, student: dspy.Module) -> list[str]:
        """The judges that are to learn from outcomes."""
        if not isinstance(student, RAISF):
            raise InputError(
                f"verdicts are tried within RA-ISF, and this is a {type(student).__name__}: compile the RA-ISF within "
                "by itself, or take --how weights"
            )
        if student.use_relevance and student.relevance != "pointwise":
            raise InputError("passages are tried one by one: take --relevance pointwise, or --how weights")
        everyone = self.by == "prompts" or self.predictors is None or self.predictors in GROUPS
        chosen = [self.predictors] if isinstance(self.predictors, str) else self.predictors or []
        used = [judge for judge, (switch, _) in TRIED.items() if getattr(student, switch)]
        if judges_by_drafts(student) and "know" in used:
            used.remove("know")  # drafts of the answer say what is known, and no judge is asked
        found = [judge for judge in used if everyone or TRIED[judge][1] in chosen]
        if not found:
            raise InputError(
                "no judge is left to train by outcome: switch one on (what is known is judged with --know verbal and "
                "truth alone), or take --how weights"
            )
        return found

    def _compile(self, task: Compilation) -> Any:
        wanted, rng = self._judges(task.student), random.Random(self.seed)
        prices = (self.call_price, self.search_price)
        trying = Trying(task.student, self.metric, *prices, self.threads, self.progress)
        # Prompts are selected by answers, and need no rows of the validation questions.
        asked = QUESTIONS_A_ROW * self.rows
        most = (asked, 0 if self.by == "prompts" else min(asked, MAX_VALIDATION))
        parts = (task.trainset, task.valset)
        samples = [up_to(part, n, rng) for part, n in zip(parts, most, strict=True)]
        before = task.calls()
        with self._tries(task) as journal:
            found, held_out = (
                trying.outcomes(sample, journal, f"{split} tries")
                for split, sample in zip(("train", "validation"), samples, strict=True)
            )
        spent = task.calls() - before
        taken = {judge: heaviest(found.of[judge], self.rows, rng) for judge in wanted}
        for judge, rows in taken.items():
            _check(judge, rows, found)
        if self.by == "prompts":
            taken = {judge: accepted(rows, rng) for judge, rows in taken.items()}
        kept = {judge: heaviest(held_out.of[judge], MAX_VALIDATION, rng) for judge in wanted}
        told = {
            "call_price": self.call_price,
            "search_price": self.search_price,
            "lm_calls": spent,
            "questions": found.questions,
            "failed": found.failed,
            "unreadable": found.unreadable,
            "validation": {"questions": held_out.questions, "failed": held_out.failed},
            **(_seconds(found, held_out) if self.tries is not None else {}),
            "judges": {judge: _judge_report(judge, found, taken[judge]) for judge in wanted},
        }
        for judge, gold in self._gold(trying, task.student, samples[0], wanted, task.journal).items():
            told["judges"][judge] |= _agreement(found.of[judge], gold)
        rows = JudgeRows({judge: [*taken[judge], *kept[judge]] for judge in wanted}, {"by": "outcome"})
        compiled = self._learner(judge_rows=rows).compile(
            task.student, trainset=task.trainset, valset=task.valset, teacher=task.teacher
        )
        compiled.compile_report |= {"how": "outcome", "by": self.by, "outcomes": told}
        return compiled

    @contextlib.contextmanager
    def _tries(self, task: Compilation) -> Iterator[Journal]:
        """The journal of the tries: the compilation's own, or one in `tries`, where other compilations find it."""
        if self.tries is None:
            yield task.journal
            return
        identity = digest([identity_of(task.student, self.metric), self.call_price, self.search_price])
        with Journal.alone(self.tries, "tries", identity) as journal:
            yield journal

    def _gold(
        self, trying: Trying, student: RAISF, examples: Examples, wanted: Sequence[str], journal: Journal
    ) -> dict[str, dict[tuple[str, ...], str]]:
        """By judge and what it is asked about, gold's verdict, where there is one."""
        answered = [example for example in examples if gold_answers(example)]
        gold: dict[str, dict[tuple[str, ...], str]] = {}
        if answered and "know" in wanted:
            labelled = know_labels(
                answered,
                answerer=trying.program.answer_directly,
                labels=self.labels,
                threads=self.threads,
                journal=journal,
            )
            gold["know"] = {(row.question,): row.verdict for row in labelled.rows}
        if answered and "relevance" in wanted and student.retriever is not None:
            pairs = relevance_examples(answered, student.retriever, student.k)
            gold["relevance"] = {(row.question, row.passage): row.verdict for row in pairs}
        return gold


def _seconds(*parts: Advantages) -> dict[str, float]:
    names = ("seconds", "seconds_before")
    return {name: round(sum(getattr(part, name) for part in parts), 2) for name in names}


def _options_of(kind: type[Any]) -> set[str]:
    return {one.name for one in dataclasses.fields(kind)}


def _check(judge: str, rows: Sequence[dspy.Example], found: Advantages) -> None:
    counts = Counter(row.verdict for row in rows)
    if any(not counts[verdict] for verdict in VERDICTS[judge]):
        told = " and ".join(f"{counts[verdict]} {verdict!r}" for verdict in VERDICTS[judge])
        raise InputError(
            f"the {judge} judge needs outcomes of both verdicts, found {told} by {found.questions} questions: give "
            "more, some that the LM knows and some that passages answer",
            f", or leave the judge out (--no-{judge})",
        )


def _judge_report(judge: str, found: Advantages, taken: Sequence[dspy.Example]) -> dict[str, Any]:
    rows = found.of[judge]
    return {
        "rows": {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS[judge]},
        "taken": {verdict: sum(row.verdict == verdict for row in taken) for verdict in VERDICTS[judge]},
        "advantage": sum(row.weight for row in rows) / len(rows),
        "decided": sum(row.decided for row in rows),
        "even": found.even[judge],
    }


def _agreement(rows: Sequence[dspy.Example], gold: dict[tuple[str, ...], str]) -> dict[str, Any]:
    """How far gold agrees with all rows, and with those that the answer's score decided."""
    both = [(gold[asked], row) for row in rows if (asked := tuple(row.inputs().values())) in gold]
    made = {
        name: Agreement.of([(one, row.verdict) for one, row in some], [row.origin for _, row in some])
        for name, some in (("agreement", both), ("agreement_decided", [one for one in both if one[1].decided]))
    }
    return {name: agreed.as_dict() for name, agreed in made.items() if agreed.n}
