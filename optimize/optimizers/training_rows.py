"""What giving predictors weights of their own begins with: whom to teach, on which base, and the rows of each."""

import logging
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from raisf.evaluation.runner import check_ran, error_text
from raisf.lm.connect import connect
from raisf.lm.local.model import LocalLM
from raisf.optimize.adapters import check_folder_name
from raisf.optimize.demonstrations import Rows, answered, collect_rows, judges
from raisf.optimize.judges.answer_data import ANSWERERS, answer_rows
from raisf.optimize.judges.judge_data import with_verdict
from raisf.optimize.judges.judge_rows import JudgeRows
from raisf.optimize.judges.labels import Labels, check_labels_option, know_examples
from raisf.optimize.judges.predictor_roles import JUDGE_ROLES, JUDGED, role_of
from raisf.optimize.optimizers.base import Compilation, Examples, Optimizer
from raisf.optimize.optimizers.selection import Metric, answer_exact_match, check_gold
from raisf.optimize.traces import Traced, traced_rows
from raisf.optimize.within import owned
from raisf.signatures.answers import DirectAnswer
from raisf.utils.checks import check_least
from raisf.utils.errors import InputError
from raisf.utils.sampling import up_to
from raisf.utils.text import print_of

logger = logging.getLogger(__name__)

# Validation rows a judge: the share that is right is known to some 6 points, and reading them costs little.
MAX_VALIDATION = 200
# Training questions a wanted row: a question gives one to three rows, of which the rarer verdict decides how many fit.
QUESTIONS_A_ROW = 2
GROUPS = ("judges", "all")
"""Words for several predictors at once."""


@dataclass(kw_only=True, eq=False)
class JudgeTraining(Optimizer):
    """What `raisf.FinetuneJudges` and `raisf.ProbeJudges` share, whose docstrings say what the options are."""

    base: LocalLM | str | None = None
    predictors: Sequence[str] | str | None = None
    rows: int = 1000
    judge_rows: JudgeRows | None = None
    labels: Labels = "model"
    metric: Metric = answer_exact_match
    seed: int = 0

    trains = True

    def __post_init__(self) -> None:
        check_least(self, rows=2)
        check_labels_option(self.labels)
        super().__post_init__()

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        check_gold(self.metric, trainset, valset)
        own = [getattr(self.base, "model", self.base), self.predictors, self.rows, self.labels, self._told(student)]
        return own + ([self.judge_rows.identity()] if self.judge_rows else [])

    def _told(self, student: dspy.Module) -> Any:
        """The settings beside those that are shared, JSON-able; what cannot be used is refused here."""
        raise NotImplementedError

    @property
    def _lenient(self) -> bool:
        """Whether a predictor that cannot be taught is left to its LM, since nobody has named it."""
        return self.predictors is None or self.predictors in GROUPS

    def _sources(self, task: Compilation, chosen: list[str], rng: random.Random) -> "list[Source]":
        """What the training questions, and what the validation questions, say that the chosen should have done."""
        parts = (task.trainset, task.valset)
        samples = [up_to(part, QUESTIONS_A_ROW * self.rows, rng) for part in parts]
        taught: Sequence[Any] = (None, None)
        if self.judge_rows is not None:
            self.judge_rows.tell_of_others(task.student, task.trainset, task.valset)
            taught = self.judge_rows.parts(*parts)
        learnt = Source.of(task, samples[0], chosen, "train", self.rows, self, taught[0])
        held = Source.of(task, samples[1], chosen, "validation", MAX_VALIDATION, self, taught[1])
        held.leave_out(learnt)
        return [learnt, held]

    def _without_rows(self, program: dspy.Module, sources: "list[Source]", chosen: Collection[str]) -> dict[str, str]:
        """The chosen that no split, or only one, says anything of, and that are left to their LMs; with the reasons.

        These are predictors of our programs that nobody has named: no judges (decompositions are in few data sets), or
        judges that `judge_rows` has none for.

        Raises:
            InputError: There are others without rows, or none has any, or `judge_rows` are about none of the chosen.
            RaisfError: There are none since all runs failed.
        """
        ours, missing = owned(program), dict[str, str]()
        asked = {sources[0].gold.judge.get(name) for name in chosen}
        from_memory = any(name.rpartition(".")[2] == "answer_directly" for name in chosen)  # learns from rows of know
        if self.judge_rows is not None and not (asked & set(self.judge_rows.of) or from_memory):
            raise InputError(
                f"the judges' rows say nothing of {', '.join(chosen)}: leave --rows-from or --teacher (judge_rows=) "
                "out, or let judges learn, too"
            )
        for name in chosen:
            empty = next((source for source in sources if not source.rows_of(name)), None)
            if empty is None:
                continue
            judge = empty.gold.judge.get(name)
            passed_over = judge is None or (self.judge_rows is not None and judge not in self.judge_rows.of)
            if not (self._lenient and passed_over and name in ours):
                empty.check_ran()
                raise empty.why(name)
            missing[name] = str(empty.why(name))
        if len(missing) == len(chosen):
            for source in sources:
                source.check_ran()
            raise InputError(f"no rows to train on: {'; '.join(missing.values())}")
        return missing

    def _report(
        self,
        task: Compilation,
        sources: "list[Source]",
        trained: str,
        settings: dict[str, Any],
        predictors: dict[str, Any],
        missing: dict[str, str],
    ) -> dict[str, Any]:
        """The `compile_report`, with what there is to say of each predictor that was trained, and why others were not.

        `trained` is what tables call it.
        """
        rows = self.judge_rows
        return {
            "how": self.how,
            "trained": trained,
            **settings,
            "labels": self.labels,
            "trainset": len(task.trainset),
            "valset": len(task.valset),
            "predictors": predictors,
            "missing": missing,
            **({"judge_rows": {**rows.report, **_held_out(rows, task, predictors)}} if rows else {}),
            "unlabelled": {
                f"{name}, {source.split}": told for source in sources for name, told in source.gold.unlabelled.items()
            },
            "runs": {source.split: source.runs for source in sources if source.runs},
        }


def _held_out(rows: JudgeRows, task: Compilation, predictors: Collection[str]) -> dict[str, list[str]]:
    """The predictors that were validated on training questions, since no row is of a validation question."""
    if not rows.holds_out(task.trainset, task.valset):
        return {}
    validated = rows.parts(task.trainset, task.valset)[1]
    judges = {name: JUDGE_ROLES.get(role_of(one)) for name, one in task.student.named_predictors()}
    return {"held_out": [name for name in predictors if validated.get(judges[name] or "")]}


@dataclass(slots=True)
class Source:
    """What one split says each predictor should have done, in `most` rows each: gold where it does, else right runs."""

    split: str
    most: int
    gold: Rows
    judging: Sequence[str] = ()
    traced: Traced = field(default_factory=Traced)
    taught: bool = False

    @classmethod
    def of(
        cls,
        task: Compilation,
        examples: Examples,
        chosen: list[str],
        split: str,
        most: int,
        options: JudgeTraining,
        taught: Any,
    ) -> "Source":
        """The rows of a split for the chosen predictors; `taught`, by judge, take the place of gold's.

        Labels and runs lie in the journal, since LMs may answer otherwise when asked again.
        """
        gold = collect_rows(
            task.student,
            examples,
            labels=options.labels,
            threads=options.threads,
            journal=task.journal,
            strict=False,
            only_ours=True,
            taught=taught,
            most=most,
            names=chosen,
        )
        _add_answerers(gold, task, examples, chosen, options)
        asked, predictors = judges(task.student), dict(task.student.named_predictors())
        judging = [name for name in owned(task.student) if role_of(predictors[name]) in JUDGED]
        for name in judging:
            why = "no question has a gold answer" if name in asked else "the program does not ask it"
            gold.missing.setdefault(name, InputError(why))
        source = cls(split, most, gold, judging, taught=task.teacher is not None)
        if any(source._may_trace(name) for name in chosen):
            source.traced = traced_rows(
                task.teacher or task.student,
                examples,
                options.metric,
                threads=options.threads,
                progress=options.progress,
                journal=task.journal,
                name=f"{split} run",
            )
        return source

    @property
    def runs(self) -> dict[str, int] | None:
        """What came of the runs that rows were taken from; None where there were none."""
        traced = self.traced
        return {"made": traced.runs, "failed": traced.failed, "wrong": traced.wrong} if traced.runs else None

    def origin(self, name: str) -> str:
        """Where a predictor's rows come from, for the report."""
        return "gold" if name in self.gold.of else "teacher's right runs" if self.taught else "own right runs"

    def rows_of(self, name: str) -> list[dspy.Example]:
        """A predictor's rows; none where it has none."""
        if (rows := self.gold.of.get(name)) or not self._may_trace(name):
            return rows or []
        traced = self.traced.of.get(name, [])
        return [with_verdict(row) for row in traced] if name in self.gold.judge else traced

    def _may_trace(self, name: str) -> bool:
        """A judge's own verdicts are no lesson for it: lucky runs would confirm it in its mistakes."""
        return name not in self.gold.of and (self.taught or name not in self.judging)

    def leave_out(self, learnt: "Source") -> None:
        """Takes out the rows about what another split's rows are about: two questions may share a sub-question."""
        for mine, theirs in ((self.gold.of, learnt.gold.of), (self.traced.of, learnt.traced.of)):
            for name in mine.keys() & theirs.keys():
                asked = {_about(row) for row in theirs[name]} - {None}
                others = [row for row in mine[name] if _about(row) not in asked]
                if mine[name] and not others:
                    logger.warning("%s: all validation rows are about questions that are learnt: they say little", name)
                mine[name] = others or mine[name]

    def check_ran(self) -> None:
        """Raise what the runs failed with, where all did: other questions would not help."""
        check_ran(self.traced.runs, self.traced.broken, self.traced.error, f"every {self.split} question that was run")

    def why(self, name: str) -> InputError:
        """Why a predictor has no rows, and what to do."""
        found, traced = self.gold.missing.get(name), self.traced
        reasons, besides = ([found.text], found.besides) if found else ([], "")
        if self.runs and self._may_trace(name):
            last = f" (the last time with: {error_text(traced.error)})" if traced.error else ""
            reasons.append(f"of {traced.runs} runs {traced.failed} failed{last} and {traced.wrong} were wrong")
            if traced.runs > traced.failed and name not in traced.asked:
                copies = "dspy.BestOfN and dspy.Refine ask a copy of what they hold: then compile that"
                reasons.append(f"none that ended asked it, or only a copy of it ({copies})")
        more = f"give more {self.split} questions, or an LM that labels passages and decompositions (--teacher)"
        besides += ", or, in Python, judge_rows=, or a program that answers them right (teacher=)"
        return InputError(f"no {self.split} rows for {name!r}: {'; '.join([*reasons, more])}", besides)


def _about(row: dspy.Example) -> str | None:
    return print_of(str(row.question)) if "question" in row else None


def _add_answerers(
    gold: Rows, task: Compilation, examples: Examples, chosen: Sequence[str], options: JudgeTraining
) -> None:
    """What gold says of the answerers that are to be trained; see `raisf.optimize.judges.answer_data`."""
    predictors, ours = dict(task.student.named_predictors()), owned(task.student)
    if not (examples := answered(examples)):
        return
    asked = {example.question for example in examples}
    knowing = {id(ours[name]): gold.of.get(name) for name in gold.judge if gold.judge[name] == "know"}
    for name in chosen:
        if name in gold.of or name not in ours or role_of(predictors[name]) not in ANSWERERS:
            continue
        owner = ours[name]
        verdicts = knowing.get(id(owner))
        # Nobody has said it of these: the judge has no rows, as where all are known or none, or those given are about
        # questions of the other split.
        judged = getattr(owner, "use_know", False)
        unsaid = judged if verdicts is None else asked.isdisjoint(row.question for row in verdicts)
        if role_of(predictors[name]) is DirectAnswer and unsaid:
            verdicts = know_examples(
                examples,
                answerer=predictors[name],
                labels=options.labels,
                threads=options.threads,
                journal=task.journal,
            )
        known = None if verdicts is None else [row.question for row in verdicts if row.verdict == "know"]
        rng = random.Random(f"{options.seed}/{name}")
        if rows := answer_rows(predictors[name], owner, examples, known, rng):
            gold.of[name] = rows


def chosen_predictors(program: dspy.Module, wanted: Sequence[str] | str | None) -> list[str]:
    """The predictors to train: those asked for; where nobody asks, the judges that the program uses, else all."""
    names = [name for name, _ in program.named_predictors()]
    if wanted == "all":
        ours, asked = owned(program), judges(program)
        judging = {name for name, one in program.named_predictors() if name in ours and role_of(one) in JUDGE_ROLES}
        return [name for name in names if name in asked or name not in judging]
    if wanted is not None and wanted != "judges":
        wanted = [wanted] if isinstance(wanted, str) else wanted
        if strangers := [name for name in wanted if name not in names]:
            raise InputError(f"no predictor {strangers[0]!r} in this program: choose of {', '.join(names)}")
        if not wanted:
            raise InputError(f"no predictor is to learn: name some of {', '.join(names)}")
        return list(wanted)
    if wanted == "judges" and not judges(program):
        raise InputError(f"no judges in this program, only {', '.join(names)}: name those that are to learn, or all")
    return judges(program) or names


def local_base(program: dspy.Module, name: str, base: LocalLM | str | None) -> LocalLM:
    """The LM whose base a predictor's weights are of: the one given, else its own.

    Raises:
        InputError: It is not in this process, or the weights could not be kept under the predictor's name.
    """
    check_folder_name(name)
    asked = dict(program.named_predictors())[name].lm
    lm = connect(base) if isinstance(base, str) else base or asked or dspy.settings.lm
    if not isinstance(lm, LocalLM):
        raise InputError(
            f"weights are trained in this process, and {getattr(lm, 'model', lm)} is elsewhere: "
            "give a base such as local/meta-llama/Llama-2-7b-hf (--base)"
        )
    return lm
