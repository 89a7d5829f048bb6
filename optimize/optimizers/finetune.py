"""Compiling to weights: the judges become LoRA adapters beside each other on one base, each trained on its own rows."""

import itertools
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import dspy

from raisf.lm.chat import scored_labels
from raisf.lm.finetune.lora import TrainingRow, fitting, train
from raisf.lm.finetune.training import Training, check_trainable
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import TRAINING
from raisf.optimize.copying import copy_of
from raisf.optimize.demonstrations import judges
from raisf.optimize.judges.judge_rows import weight_of
from raisf.optimize.judges.weighed import draw_evenly, even_weights
from raisf.optimize.optimizers.base import Compilation
from raisf.optimize.optimizers.row_writer import RowWriter
from raisf.optimize.optimizers.training_rows import JudgeTraining, Source, chosen_predictors, local_base
from raisf.utils.errors import InputError
from raisf.utils.files import read_json


@dataclass(kw_only=True, eq=False)
class FinetuneJudges(JudgeTraining):
    """Gives the judges weights of their own: LoRA adapters beside each other on one base, or whole models.

    Each is trained on its own rows, in this process; the other predictors keep their LMs. RA-ISF's judges and answerers
    learn from gold (`raisf.optimize.judges`), or what a teacher did in its right runs; all other predictors, and
    answerers that gold says nothing of, from right runs, the student's or the teacher's, each from the steps that it
    made itself. Rows hold the demonstrations that the predictor has. Each verdict has the same weight, and rows that
    have one of their own keep it within their verdict. A validation loss that no longer falls ends the training, and
    the weights of its lowest point are kept.

    Args:
        base: The local LM to train on, or its spec; None: the one that the predictor asks.
        predictors: Which to train: "judges", "all", or their names; None: "judges", or all where there is none. The
            paper trains judges alone.
        rows: Examples per predictor at most; 1,000 (Liu et al. 2024, section 4.4: as many prompts a data set).
        judge_rows: Rows of the judges that take the place of gold's; see `raisf.optimize.judges.judge_rows`.
        training: Method (LoRA or full), learning rate, rank, epochs and the like; None: the defaults with `seed`.
        labels: See `raisf.optimize.judges.labels.know_labels`.
        metric: Called as `metric(example, prediction, trace)`; at 1 a run teaches.
        seed: Of what answerers are shown; and of all else where `training` is None, which has its own.
        threads: Questions asked at a time.
        work: See `raisf.optimize.optimizers.base.Optimizer`.
        progress: Likewise.

    Its report says for each trained predictor where its rows came from, how many of each verdict, how many were dropped
    and why, and what `raisf.lm.finetune.lora.train` reports.
    """

    training: Training | None = None

    how = "weights"

    def _told(self, student: dspy.Module) -> Any:
        training = self.training or Training(seed=self.seed)
        for lm in self._bases(student).values():
            check_trainable(lm, training)
        return training.told()

    def _trained(self, names: set[str], program: dspy.Module) -> str:
        """What tables call it: the paper's "judges only", "all", or the predictors."""
        if names <= set(judges(program)):
            return "judges only"
        return "all" if self.predictors == "all" else ", ".join(sorted(names))

    def bases(self, student: dspy.Module) -> dict[str, LocalLM]:
        """As `Optimizer`'s; a whole model that is trained needs no other."""
        return {} if self.training is not None and self.training.method == "full" else self._bases(student)

    def _bases(self, student: dspy.Module) -> dict[str, LocalLM]:
        return {name: local_base(student, name, self.base) for name in chosen_predictors(student, self.predictors)}

    def _compile(self, task: Compilation) -> Any:
        program, training = task.student, self.training or Training(seed=self.seed)
        bases = self._bases(program)
        rng = random.Random(training.seed)
        sources = self._sources(task, list(bases), rng)
        missing = self._without_rows(program, sources, bases)
        made = {name: _Made(program, name, lm, sources, rng) for name, lm in bases.items() if name not in missing}
        compiled: Any = copy_of(program)
        ours = dict(compiled.named_predictors())
        reports = {}
        for name, data in made.items():
            try:
                learn, measure = data.parts
                folder = train(
                    bases[name],
                    learn,
                    measure,
                    self.work,
                    training,
                    name=name,
                    adapter=data.adapter,
                    progress=self.progress,
                )
            except KeyboardInterrupt:
                stopped = f"{self.work} keeps what is trained, and the same command goes on from there"
                raise KeyboardInterrupt(stopped) from None
            ours[name].lm = bases[name].with_weights(folder)
            report = {key: value for key, value in read_json(folder / TRAINING).items() if key != "settings"}
            reports[name] = {"source": sources[0].origin(name), **report, "rows": data.counts, "dropped": data.dropped}
        settings = {"training": training.told(), "seed": training.seed}
        trained = self._trained(set(made), program)
        compiled.compile_report = self._report(task, sources, trained, settings, reports, missing)
        return compiled


class _Made:
    """A predictor's training and validation rows as text, and the count of what was dropped on the way."""

    def __init__(self, program: dspy.Module, name: str, lm: LocalLM, sources: list[Source], rng: random.Random):
        predictor: Any = dict(program.named_predictors())[name]
        judges = name in sources[0].gold.judge
        self._verdict = "verdict" if judges else (scored_labels(predictor.signature) or [""])[0]
        self._name, self._lm, self._writer = name, lm, RowWriter(program, name, lm)
        self.adapter: Any = self._writer.adapter
        self.dropped = 0
        self.counts: dict[str, dict[str, int]] = {}
        self.parts = [self._weighed(source, self._drawn(source, rng)) for source in sources]

    def _drawn(self, source: Source, rng: random.Random) -> list[dspy.Example]:
        """The rows of a split, as even over the verdicts as can be had."""
        found = source.rows_of(self._name)
        drawn = draw_evenly(found, self._verdict, source.most, rng)
        counts = Counter(map(self._said, drawn))
        if self._verdict and len(counts) < 2:
            raise InputError(
                f"{self._name!r} needs {source.split} rows of more than one {self._verdict}, found {len(found)} of "
                f"{next(iter(counts))!r} alone: give questions of several sorts"
            )
        self.counts[source.split] = dict(counts) if self._verdict else {"rows": len(drawn)}
        return drawn

    def _weighed(self, source: Source, drawn: list[dspy.Example]) -> list[TrainingRow]:
        """The rows as text, where they can be put into words; those that the base can read whole with their weights."""
        texts = zip(drawn, map(self._writer.messages, drawn), strict=True)
        written = [(row, TrainingRow(text)) for row, text in texts if text is not None]
        self.dropped += len(drawn) - len(written)
        whole = fitting(self._lm, [row for _, row in written], self.adapter, self._name)
        said = [self._said(row) for row, _ in written]
        # Of who is no judge it may be a field.
        own = [weight_of(row) if self._name in source.gold.judge else 1.0 for row, _ in written]
        read = [*itertools.compress(said, whole)]
        lost = next((value for value in said if value not in read), None)
        if self._verdict and lost is not None and len(set(read)) < 2:
            raise InputError(
                f"{self._name}: none of its {said.count(lost)} {source.split} rows of {lost!r} fits into the base's "
                "context: give shorter passages, or a base that reads more"
            )
        weights = iter(even_weights(read, [*itertools.compress(own, whole)], self._name))
        rows = zip(written, whole, strict=True)
        return [replace(row, weight=next(weights)) if fits else row for (_, row), fits in rows]

    def _said(self, row: dspy.Example) -> str:
        return str(row.get(self._verdict, ""))
