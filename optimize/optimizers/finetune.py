"""Compiling to weights: the judges become LoRA adapters beside each other on one base, each trained on its own rows."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy

from raisf.evaluation.identity import gold_answers
from raisf.lm.chat import scored_labels
from raisf.lm.connect import adapter_for, connect
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import Training, check_rank
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import TRAINING
from raisf.optimize.demonstrations import JUDGES, Rows, collect_rows, copy_of, judges, judges_by_drafts
from raisf.optimize.judges.answer_data import ANSWERERS, answer_rows
from raisf.optimize.judges.judge_rows import JudgeRows
from raisf.optimize.judges.labels import Labels, check_asking, know_examples
from raisf.optimize.judges.predictor_roles import role_of
from raisf.optimize.optimizers.base import Examples, Optimizer, Task
from raisf.optimize.optimizers.selection import Metric, answer_exact_match
from raisf.optimize.traces import Traced, traced_rows
from raisf.optimize.within import owners
from raisf.programs.program import Program
from raisf.signatures.answers import DirectAnswer
from raisf.utils.errors import InputError
from raisf.utils.files import read_json

# Validation rows a judge: the share that is right is known to some 6 points, and reading them costs little.
MAX_VALIDATION = 200
# Training questions a wanted row: a question gives one to three rows, of which the rarer verdict decides how many fit.
QUESTIONS_A_ROW = 2
SPLITS = ("train", "validation")
GROUPS = ("judges", "all")
"""Words for several predictors at once."""


@dataclass(kw_only=True, eq=False)
class FinetuneJudges(Optimizer):
    """Gives the judges weights of their own: LoRA adapters beside each other on one base, or whole models.

    Each is trained on its own rows, in this process; the other predictors keep their LMs. RA-ISF's judges and answerers
    learn from gold (`raisf.optimize.judges`), or what a teacher did in its right runs; all other predictors, and
    answerers that gold says nothing of, from right runs, the student's or the teacher's, each from the steps that it
    made itself. Rows hold the demonstrations that the predictor has. A validation loss that
    no longer falls ends the training, and the weights of its lowest point are kept.

    Args:
        base: The local LM to train on, or its spec; None: the one that the predictor asks.
        predictors: Which to train: "judges", "all", or their names; None: "judges", or all where there is none. The
            paper trains judges alone.
        rows: Examples per predictor at most; 1,000, the paper's number (Liu et al. 2024, appendix A).
        judge_rows: Rows of the judges that take the place of gold's; see `raisf.optimize.judges.judge_rows`.
        training: Method (LoRA or full), learning rate, rank, epochs and the like; None: the defaults with `seed`.
        labels: See `raisf.optimize.judges.labels.know_labels`.
        metric: Called as `metric(example, prediction, trace)`; at 1 a run teaches.
        seed: Of the training, where that is None; `training.seed` else.
        threads: Questions asked at a time.
        work: See `raisf.optimize.optimizers.base.Optimizer`.
        progress: Likewise.

    Its report says for each trained predictor where its rows came from, how many of each verdict, how many were dropped
    and why, and what `raisf.lm.finetune.lora.train` reports.
    """

    base: LocalLM | str | None = None
    predictors: Sequence[str] | str | None = None
    rows: int = 1000
    judge_rows: JudgeRows | None = None
    training: Training | None = None
    labels: Labels = "model"
    metric: Metric = answer_exact_match
    seed: int = 0
    threads: int = 8

    how = "weights"
    trains = True

    def __post_init__(self) -> None:
        if self.rows < 2:
            raise InputError(f"rows must be at least 2, one of each verdict; found {self.rows}")
        check_asking(self.labels, self.threads)

    def _asked(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        training = self.training or Training(seed=self.seed)
        for lm in self._bases(student).values():
            check_rank(lm, training)
        return [getattr(self.base, "model", self.base), self.predictors, self.rows, self.labels, training.told()] + (
            [self.judge_rows.identity()] if self.judge_rows else []
        )

    @property
    def _lenient(self) -> bool:
        """Whether a predictor without rows is left to the base, since nobody has named it."""
        return self.predictors is None or self.predictors in GROUPS

    def _trained(self, names: set[str], program: dspy.Module) -> str:
        """What tables call it: the paper's "judges only", "all", or the predictors."""
        if names <= set(judges(program)):
            return "judges only"
        return "all" if self.predictors == "all" else ", ".join(sorted(names))

    def _functions(self) -> list[Callable[..., Any]]:
        return [self.metric]

    def _bases(self, student: dspy.Module) -> dict[str, LocalLM]:
        return {name: local_base(student, name, self.base) for name in chosen_predictors(student, self.predictors)}

    def _compile(self, task: Task) -> Any:
        program, training = task.student, self.training or Training(seed=self.seed)
        bases = self._bases(program)
        rng = random.Random(training.seed)
        parts = (task.trainset, task.valset)
        samples = [rng.sample(list(part), min(len(part), QUESTIONS_A_ROW * self.rows)) for part in parts]
        taught = self.judge_rows.parts(*parts) if self.judge_rows else [None, None]
        sources = [
            Source.of(task, sample, list(bases), split, self, rows)
            for split, sample, rows in zip(SPLITS, samples, taught, strict=True)
        ]
        made: dict[str, _Made] = {}
        missing: dict[str, str] = {}
        owner_of = owners(program)
        for name in bases:
            empty = next((source for source in sources if not source.rows_of(name)), None)
            if empty is None:
                made[name] = _Made(program, name, bases[name], sources, self.rows, rng)
            elif self._lenient and isinstance(owner_of[name], Program) and name not in empty.gold.judge:
                missing[name] = empty.why(name)  # decompositions are in few data sets; the base then goes on doing it
            else:
                raise InputError(f"no rows to train {name!r} on: {empty.why(name)}")
        if not made:
            raise InputError(f"no rows to train on: {'; '.join(missing.values())}")
        compiled: Any = copy_of(program)
        ours = dict(compiled.named_predictors())
        reports = {}
        for name, data in made.items():
            try:
                learn, measure = data.parts
                options: dict[str, Any] = {"name": name, "adapter": data.adapter, "progress": self.progress}
                folder = train(bases[name], learn, measure, self.work, training, **options)
            except KeyboardInterrupt:
                stopped = f"{self.work} keeps what is trained, and the same command goes on from there"
                raise KeyboardInterrupt(stopped) from None
            ours[name].lm = bases[name].with_weights(folder)
            report = {key: value for key, value in read_json(folder / TRAINING).items() if key not in ("settings",)}
            reports[name] = {"source": sources[0].origin(name), **report, "rows": data.counts, "dropped": data.dropped}
        compiled.compile_report = {
            "how": "weights",
            "trained": self._trained(set(made), program),
            "training": training.told(),
            "seed": training.seed,
            "labels": self.labels,
            "trainset": len(task.trainset),
            "valset": len(task.valset),
            "predictors": reports,
            "missing": missing,
            **({"judge_rows": dict(self.judge_rows.report)} if self.judge_rows else {}),
            "unlabelled": {
                f"{name}, {split}": told
                for split, source in zip(SPLITS, sources, strict=True)
                for name, told in source.gold.unlabelled.items()
            },
            "runs": {split: source.runs for split, source in zip(SPLITS, sources, strict=True) if source.runs},
        }
        return compiled


@dataclass(slots=True)
class Source:
    """What one split says each predictor should have done: gold where it does, else right runs."""

    gold: Rows
    traced: Traced = field(default_factory=Traced)
    taught: bool = False

    @classmethod
    def of(cls, task: Task, examples: Examples, chosen: list[str], split: str, options: Any, taught: Any) -> "Source":
        """The rows of a split. Labels and runs lie in the journal, since LMs may answer otherwise when asked again.

        Args:
            task: What is compiled.
            examples: The split's.
            chosen: The predictors that learn.
            split: Its name, for the journal.
            options: The optimizer, with `labels`, `threads`, `progress`, `metric` and `seed`.
            taught: By judge, rows that take the place of gold's.
        """
        labelling: dict[str, Any] = {"labels": options.labels, "threads": options.threads, "journal": task.journal}
        gold = collect_rows(task.student, examples, **labelling, strict=False, only_ours=True, taught=taught)
        _add_answerers(gold, task.student, examples, chosen, options, labelling)
        source = cls(gold, taught=task.teacher is not None)
        if any(source._may_trace(name) for name in chosen):
            tracing: dict[str, Any] = {"threads": options.threads, "progress": options.progress}
            tracing |= {"journal": task.journal, "name": f"{split} run"}
            source.traced = traced_rows(task.teacher or task.student, examples, options.metric, **tracing)
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
        return self.gold.of.get(name) or (self.traced.of.get(name, []) if self._may_trace(name) else [])

    def _may_trace(self, name: str) -> bool:
        """A judge's own verdicts are no lesson for it: lucky runs would confirm it in its mistakes."""
        return name not in self.gold.of and (self.taught or name not in self.gold.judge)

    def why(self, name: str) -> str:
        """Why a predictor has no rows, and what to do."""
        reasons = [self.gold.missing[name]] if name in self.gold.missing else []
        if self.runs:
            reasons.append("of {made} runs {failed} failed and {wrong} were wrong".format(**self.runs))
        return "; ".join([*reasons, "give more questions, or a teacher that answers them right (teacher=)"])


def _add_answerers(
    gold: Rows,
    program: dspy.Module,
    examples: Examples,
    chosen: list[str],
    options: Any,
    labelling: dict[str, Any],
) -> None:
    """What gold says of the answerers that are to be trained; see `raisf.optimize.judges.answer_data`."""
    predictors, owner_of = dict(program.named_predictors()), owners(program)
    if not all("question" in example and gold_answers(example) for example in examples):
        return
    knowing = {id(owner_of[name]): gold.of.get(name) for name in gold.judge if gold.judge[name] == "know"}
    for name in chosen:
        owner = owner_of[name]
        if name in gold.of or not isinstance(owner, Program) or role_of(predictors[name]) not in ANSWERERS:
            continue
        verdicts = knowing.get(id(owner))
        if verdicts is None and role_of(predictors[name]) is DirectAnswer and judges_by_drafts(owner):
            verdicts = know_examples(examples, answerer=predictors[name], **labelling)
        known = None if verdicts is None else [row.question for row in verdicts if row.verdict == "know"]
        rng = random.Random(f"{options.seed}/{name}")
        if rows := answer_rows(predictors[name], owner, examples, known, rng):
            gold.of[name] = rows


class _Made:
    """A predictor's training and validation rows as text, and the count of what was dropped on the way."""

    def __init__(
        self,
        program: dspy.Module,
        name: str,
        lm: LocalLM,
        sources: list[Source],
        n: int,
        rng: random.Random,
    ):
        self.predictor: Any = dict(program.named_predictors())[name]
        # The programs here speak to an LM in its own format, DSPy's other modules in that of the settings.
        own = isinstance(owners(program)[name], Program)
        self.adapter: Any = adapter_for(lm) if own else dspy.settings.adapter or dspy.ChatAdapter()
        self.dropped = 0
        self.parts: list[list[TrainingRow]] = []
        self.counts: dict[str, dict[str, int]] = {}
        verdict = "verdict" if name in sources[0].gold.judge else (scored_labels(self.predictor.signature) or [""])[0]
        for split, source, most in zip(SPLITS, sources, (n, MAX_VALIDATION), strict=True):
            found = source.rows_of(name)
            drawn = draw_evenly(found, verdict, most, rng)
            counts = Counter(str(row.get(verdict, "")) for row in drawn)
            if verdict and len(counts) < 2:
                raise InputError(
                    f"{name!r} needs {split} rows of more than one {verdict}, found {len(found)} of "
                    f"{next(iter(counts))!r} alone: give questions of several sorts"
                )
            weights = {value: len(drawn) / len(counts) / count for value, count in counts.items()}
            own = "weight" if name in source.gold.judge else ""  # elsewhere it may be a predictor's field
            texts = [(self._text(row), row.get(own) or weights[str(row.get(verdict, ""))]) for row in drawn]
            self.parts.append([TrainingRow(text, weight) for text, weight in texts if text is not None])
            self.dropped += sum(text is None for text, _ in texts)
            self.counts[split] = dict(counts) if verdict else {"rows": len(drawn)}

    def _text(self, row: dspy.Example) -> list[dict[str, str]] | None:
        """The row as the LM will meet it, demonstrations included; None if it cannot be put into words."""
        signature = self.predictor.signature
        inputs = {key: row.get(key) for key in signature.input_fields}
        outputs = {key: row.get(key) for key in signature.output_fields}
        if any(value is None for value in outputs.values()):
            return None
        try:
            made = self.adapter.format_finetune_data(
                signature=signature, demos=self.predictor.demos, inputs=inputs, outputs=outputs
            )
        except NotImplementedError:
            raise InputError(
                f"{type(self.adapter).__name__} writes no training rows: choose another adapter (--adapter compact)"
            ) from None
        return made["messages"]


def draw_evenly(rows: Sequence[dspy.Example], verdict: str, n: int, rng: random.Random) -> list[dspy.Example]:
    """Up to n rows, as evenly over the verdicts as they can be had; weights in the loss even out the rest."""
    of: dict[str, list[dspy.Example]] = {}
    for row in rng.sample(list(rows), len(rows)):
        of.setdefault(str(row.get(verdict, "")), []).append(row)
    drawn: list[dspy.Example] = []
    for taken, same in enumerate(sorted(of.values(), key=len)):
        drawn += same[: (n - len(drawn)) // (len(of) - taken)]
    rng.shuffle(drawn)
    return drawn


def chosen_predictors(program: dspy.Module, wanted: Sequence[str] | str | None) -> list[str]:
    """The predictors to train: those asked for, else the judges that the program uses, else all."""
    names = [name for name, _ in program.named_predictors()]
    if wanted == "all":
        idle = {name for name, one in program.named_predictors() if role_of(one) in JUDGES} - set(judges(program))
        own = {name for name, owner in owners(program).items() if isinstance(owner, Program)}
        return [name for name in names if name not in idle & own]
    if wanted is not None and wanted != "judges":
        wanted = [wanted] if isinstance(wanted, str) else wanted
        if strangers := [name for name in wanted if name not in names]:
            raise InputError(f"no predictor {strangers[0]!r} in this program: choose of {', '.join(names)}")
        return list(wanted)
    return judges(program) or names


def local_base(program: dspy.Module, name: str, base: LocalLM | str | None) -> LocalLM:
    """The LM whose base a predictor's weights are of: the one given, else its own.

    Raises:
        InputError: It is not in this process.
    """
    own = dict(program.named_predictors())[name].lm or dspy.settings.lm
    lm = connect(base) if isinstance(base, str) else base or own
    if not isinstance(lm, LocalLM):
        raise InputError(
            f"weights are trained in this process, and {getattr(lm, 'model', lm)} is elsewhere: "
            "give a base such as local/meta-llama/Llama-2-7b-hf (--base)"
        )
    return lm
