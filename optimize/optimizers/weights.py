"""Compiling to weights: the judges become LoRA adapters beside each other on one base, each trained on its own rows."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import dspy

from raisf.lm.adapter import scored_labels
from raisf.lm.connect import adapter_for, connect
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import Training, check_rank
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import TRAINING
from raisf.optimize.demonstrations import Rows, collect_rows, copy_of, judges
from raisf.optimize.journal import Journal
from raisf.optimize.judges.judge_data import Labels
from raisf.optimize.traces import Traced, traced_rows
from raisf.programs.program import Program
from raisf.utils.errors import InputError
from raisf.utils.files import read_json

# Validation rows a judge: the share that is right is known to some 6 points, and reading them costs little.
MAX_VALIDATION = 200
# Training questions a wanted row: a question gives one to three rows, of which the rarer verdict decides how many fit.
QUESTIONS_A_ROW = 2
SPLITS = ("train", "validation")


def train_weights(
    program: dspy.Module,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    *,
    base: LocalLM | str | None,
    teacher: dspy.Module | None,
    predictors: Sequence[str] | None,
    rows: int,
    labels: Labels,
    metric: Callable[..., Any],
    training: Training,
    work: Path | str,
    journal: Journal,
    threads: int,
    progress: bool,
) -> dspy.Module:
    """A copy of the program whose judges answer with weights trained for them; see `raisf.optimize.compile.compile`.

    The other predictors keep their LMs. The copy's `compile_report` says for each trained predictor where its rows came
    from, how many of each verdict, how many were dropped and why, and what `raisf.lm.finetune.lora.train` reports.

    Raises:
        InputError: No local base, a name that is no predictor, a predictor without rows, a judge with one verdict,
            a rank above the base's width.
        LMError: The LM failed on ten questions in a row.
        KeyboardInterrupt: Ctrl-C; the message says that the same call goes on.
    """
    chosen = _chosen(program, predictors)
    bases = {name: _base(program, name, base) for name in chosen}
    for lm in bases.values():
        check_rank(lm, training)
    rng = random.Random(training.seed)
    samples = [rng.sample(list(part), min(len(part), QUESTIONS_A_ROW * rows)) for part in (trainset, valset)]
    sources = []
    for split, sample in zip(SPLITS, samples, strict=True):
        collect = partial(_Source.of, program, sample, teacher, chosen, labels, metric, threads, progress)
        # Kept, because LMs may answer otherwise when they are asked again, and other rows are another training.
        sources.append(_Source.of_json(journal.once(split, lambda collect=collect: collect().as_json())))
    made: dict[str, _Made] = {}
    missing: dict[str, str] = {}
    for name in chosen:
        empty = next((source for source in sources if not source.rows_of(name)), None)
        if empty is None:
            made[name] = _Made(program, name, bases[name], sources, rows, rng)
        elif predictors is None and isinstance(program, Program) and name not in empty.gold.judge:
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
            options = {"name": name, "adapter": data.adapter, "progress": progress}
            folder = train(bases[name], learn, measure, work, training, **options)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{work} keeps what is trained, and the same command goes on from there") from None
        ours[name].lm = bases[name].with_weights(folder)
        report = {key: value for key, value in read_json(folder / TRAINING).items() if key not in ("rows", "settings")}
        reports[name] = {"source": sources[0].origin(name), "rows": data.counts, "dropped": data.dropped, **report}
    compiled.compile_report = {
        "how": "weights",
        "training": asdict(training),
        "seed": training.seed,
        "labels": labels,
        "trainset": len(trainset),
        "valset": len(valset),
        "predictors": reports,
        "missing": missing,
        "runs": {split: source.runs for split, source in zip(SPLITS, sources, strict=True) if source.runs},
    }
    return compiled


@dataclass(slots=True)
class _Source:
    """What one split says each predictor should have done: gold where it does, else right runs."""

    gold: Rows
    traced: Traced = field(default_factory=Traced)
    taught: bool = False

    @classmethod
    def of(
        cls,
        program: dspy.Module,
        examples: Sequence[dspy.Example],
        teacher: dspy.Module | None,
        chosen: list[str],
        labels: Labels,
        metric: Callable[..., Any],
        threads: int,
        progress: bool,
    ) -> "_Source":
        # A module of the user's own may have a predictor with a judge's fields that does something else.
        ours = isinstance(program, Program)
        gold = collect_rows(program, examples, labels=labels, threads=threads, strict=False) if ours else Rows()
        source = cls(gold, taught=teacher is not None)
        if any(source._may_trace(name) for name in chosen):
            source.traced = traced_rows(teacher or program, examples, metric, threads=threads, progress=progress)
        return source

    def as_json(self) -> dict[str, Any]:
        """As JSON-able values."""
        of = Rows(self.traced.of).as_json()["of"]
        return {"gold": self.gold.as_json(), "traced": {**asdict(self.traced), "of": of}, "taught": self.taught}

    @classmethod
    def of_json(cls, kept: dict[str, Any]) -> "_Source":
        """What `as_json` gave."""
        traced = {**kept["traced"], "of": Rows.of_json({"of": kept["traced"]["of"], "judge": {}, "missing": {}}).of}
        return cls(Rows.of_json(kept["gold"]), Traced(**traced), kept["taught"])

    @property
    def runs(self) -> dict[str, int] | None:
        traced = self.traced
        return {"made": traced.runs, "failed": traced.failed, "wrong": traced.wrong} if traced.runs else None

    def origin(self, name: str) -> str:
        return "gold" if name in self.gold.of else "teacher's right runs" if self.taught else "own right runs"

    def rows_of(self, name: str) -> list[dspy.Example]:
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


class _Made:
    """A predictor's training and validation rows as text, and the count of what was dropped on the way."""

    def __init__(
        self,
        program: dspy.Module,
        name: str,
        lm: LocalLM,
        sources: list[_Source],
        n: int,
        rng: random.Random,
    ):
        self.predictor: Any = dict(program.named_predictors())[name]
        # The programs here speak to an LM in its own format, DSPy's other modules in that of the settings.
        own = isinstance(program, Program)
        self.adapter: Any = adapter_for(lm) if own else dspy.settings.adapter or dspy.ChatAdapter()
        self.dropped = 0
        self.parts: list[list[TrainingRow]] = []
        self.counts: dict[str, dict[str, int]] = {}
        verdict = "verdict" if name in sources[0].gold.judge else (scored_labels(self.predictor.signature) or [""])[0]
        for split, source, most in zip(SPLITS, sources, (n, MAX_VALIDATION), strict=True):
            found = source.rows_of(name)
            drawn = _drawn(found, verdict, most, rng)
            counts = Counter(str(row.get(verdict, "")) for row in drawn)
            if verdict and len(counts) < 2:
                raise InputError(
                    f"{name!r} needs {split} rows of more than one {verdict}, found {len(found)} of "
                    f"{next(iter(counts))!r} alone: give questions of several sorts"
                )
            weights = {value: len(drawn) / len(counts) / count for value, count in counts.items()}
            texts = [(self._text(row), weights[str(row.get(verdict, ""))]) for row in drawn]
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


def _drawn(rows: Sequence[dspy.Example], verdict: str, n: int, rng: random.Random) -> list[dspy.Example]:
    """Up to n rows, as evenly over the verdicts as they can be had; weights in the loss even out the rest."""
    of: dict[str, list[dspy.Example]] = {}
    for row in rng.sample(list(rows), len(rows)):
        of.setdefault(str(row.get(verdict, "")), []).append(row)
    drawn: list[dspy.Example] = []
    for taken, same in enumerate(sorted(of.values(), key=len)):
        drawn += same[: (n - len(drawn)) // (len(of) - taken)]
    rng.shuffle(drawn)
    return drawn


def _chosen(program: dspy.Module, wanted: Sequence[str] | None) -> list[str]:
    """The predictors to train: those asked for, else the judges that the program uses, else all."""
    names = [name for name, _ in program.named_predictors()]
    if wanted is not None:
        if strangers := [name for name in wanted if name not in names]:
            raise InputError(f"no predictor {strangers[0]!r} in this program: choose of {', '.join(names)}")
        return list(wanted)
    return (judges(program) if isinstance(program, Program) else []) or names


def _base(program: dspy.Module, name: str, base: LocalLM | str | None) -> LocalLM:
    own = dict(program.named_predictors())[name].lm or dspy.settings.lm
    lm = connect(base) if isinstance(base, str) else base or own
    if not isinstance(lm, LocalLM):
        raise InputError(
            f"weights are trained in this process, and {getattr(lm, 'model', lm)} is elsewhere: "
            "give a base such as local/meta-llama/Llama-2-7b-hf (--base)"
        )
    return lm
