"""Compiling to probes: a logistic regression a judge on the hidden states of the local LM, fitted in seconds."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
import numpy as np

from raisf.evaluation.identity import digest
from raisf.evaluation.judges import auroc_score
from raisf.lm.chat import scored_labels
from raisf.lm.local.model import LocalLM
from raisf.lm.local.probes import PROBE, Probe, read_probe, read_report
from raisf.optimize.copying import copy_of
from raisf.optimize.judges.judge_rows import weight_of
from raisf.optimize.judges.weighed import draw_evenly, even_weights
from raisf.optimize.optimizers.base import Compilation
from raisf.optimize.optimizers.probe_fit import LabelledStates, fit_probe, tried_layers
from raisf.optimize.optimizers.row_writer import format_of, inputs_of
from raisf.optimize.optimizers.training_rows import JudgeTraining, Source, chosen_predictors, local_base
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder
from raisf.utils.usage import tell_resumed


@dataclass(kw_only=True, eq=False)
class ProbeJudges(JudgeTraining):
    """Gives the judges probes: logistic regressions on the hidden states of their LM, in place of its label tokens.

    A probe reads the state of one layer at the prompt's last token, where the label would be written. It costs a
    verdict nothing, is fitted in seconds and takes some kilobytes; but it is of one base, in this process. Any
    predictor can have one whose only output is a `Literal` of strings or a `bool`. It learns from the rows that
    `raisf.FinetuneJudges` learns from, with the rarer label weighing more; rows that have a weight keep it within their
    label. The layer and the penalty are those with the lowest log loss on the validation rows.

    Args:
        base: The local LM whose states are read, or its spec; None: the one that the predictor asks.
        predictors: Which get a probe: "judges", "all", or their names; None: "judges", or all where there is none. Of
            the first two, those that give no label keep their LM.
        rows: Examples per predictor at most.
        judge_rows: Rows of the judges that take the place of gold's; see `raisf.optimize.judges.judge_rows`.
        labels: See `raisf.optimize.judges.labels.know_labels`.
        metric: Called as `metric(example, prediction, trace)`; at 1 a run teaches.
        seed: Of the rows that are drawn.
        threads: Questions asked at a time.
        work: See `raisf.optimize.optimizers.base.Optimizer`.
        progress: Likewise.

    Its report says for each predictor where its rows came from, how many of each label, how many were left out, the
    layer, C (of the penalty), and on the validation rows log loss (nats, labels weighing alike) and AUROC, which are a
    little too good, since the layer was chosen there.

    Source:
        Azaria and Mitchell 2023, arXiv 2304.13734.
    """

    how = "probe"

    def _told(self, student: dspy.Module) -> Any:
        self.bases(student)
        return self.seed

    def bases(self, student: dspy.Module) -> dict[str, LocalLM]:
        """By predictor that gets a probe, what it is read off."""
        predictors: dict[str, Any] = dict(student.named_predictors())
        chosen = chosen_predictors(student, self.predictors)
        fit = [name for name in chosen if scored_labels(predictors[name].signature, bools=True)]
        if others := [name for name in chosen if name not in fit]:
            if not self._lenient or not fit:
                raise InputError(
                    f"{others[0]!r} gives no label: a probe is for predictors whose only output is a Literal of "
                    "strings, or a bool; choose others (--train-predictors), or --how weights"
                )
        bases = {name: local_base(student, name, self.base) for name in fit}
        for name, lm in bases.items():
            if lm.lora is not None:
                raise InputError(
                    f"{name!r} has a LoRA adapter, and a probe reads the plain base: give that (--base), by which it "
                    "loses the adapter"
                )
            lm.base_engine.read_layers()  # refuses an encoder-decoder
        return bases

    def _compile(self, task: Compilation) -> Any:
        program, rng = task.student, random.Random(self.seed)
        bases = self.bases(program)
        sources = self._sources(task, list(bases), rng)
        chosen = chosen_predictors(program, self.predictors)
        missing = {name: "it gives no label" for name in chosen if name not in bases}
        missing |= self._without_rows(program, sources, bases)
        compiled: Any = copy_of(program)
        ours = dict(compiled.named_predictors())
        reports: dict[str, Any] = {}
        for name, lm in bases.items():
            if name in missing:
                continue
            start = time.perf_counter()
            folder, counts = self._fit(program, name, lm, sources, rng)
            ours[name].lm = lm.with_weights(folder)
            told = {key: value for key, value in read_report(folder).items() if key not in ("format", "curve")}
            # Not in the probe's own report: by that it is known, and the same probe takes other seconds each time.
            took = round(time.perf_counter() - start, 2)
            reports[name] = {"source": sources[0].origin(name), **told, "rows": counts, "seconds": took}
        compiled.compile_report = self._report(task, sources, ", ".join(reports), {"seed": self.seed}, reports, missing)
        return compiled

    def _fit(
        self, program: dspy.Module, name: str, lm: LocalLM, sources: list[Source], rng: random.Random
    ) -> tuple[Path, dict[str, dict[str, int]]]:
        """The folder with a predictor's probe, fitted unless it lies there, and how many rows of each label it has."""
        data = [_Asked.of(program, name, lm, source, rng) for source in sources]
        counts = {source.split: part.counts for source, part in zip(sources, data, strict=True)}
        identity = digest([lm.base, lm.adapter_name, [part.identity for part in data]])
        out = Path(self.work) / f"{name}-probe-{identity[:8]}"
        with contextlib.suppress(InputError):  # nothing is there, or something torn: it is fitted again
            read_probe(out)
            if read_report(out).get("identity") == identity:
                tell_resumed()
                return out, counts
        labels, layers = data[0].labels, tried_layers(len(lm.base_engine.read_layers()))
        states = [part.states(lm, layers, name) for part in data]
        probe, report = fit_probe(labels, layers, states[0], states[1])
        report["validation"] |= _interval(probe, states[1], layers.index(probe.layer))
        told = {
            "base": lm.base,
            "identity": identity,
            "adapter": lm.adapter_name,
            **report,
            "too_long": sum(len(part.gold) - len(found.gold) for part, found in zip(data, states, strict=True)),
        }
        with atomic_folder(out, PROBE, "*") as folder:
            probe.write(folder, told)
        return out, counts


@dataclass(frozen=True, slots=True)
class _Asked:
    """A predictor's rows of one split, as the LM is asked them."""

    requests: list[Any]
    labels: list[str]
    gold: list[int]
    groups: list[str]  # the question that a row is about
    weights: list[float]  # among the rows of its label

    @classmethod
    def of(cls, program: dspy.Module, name: str, lm: LocalLM, source: Source, rng: random.Random) -> "_Asked":
        predictor: Any = dict(program.named_predictors())[name]
        output, labels = scored_labels(predictor.signature, bools=True) or ("", [])
        # A bool is labelled true and false.
        said = [(row, row[output]) for row in source.rows_of(name)]
        named = [(row, str(value).lower() if isinstance(value, bool) else value) for row, value in said]
        fitting = [dspy.Example(row, **{output: label}) for row, label in named if label in labels]
        drawn = draw_evenly(fitting, output, source.most, rng)
        found = {row[output] for row in drawn}
        least, wanted = (len(labels), "each label") if source.split == "train" else (2, "more than one label")
        if len(found) < least:
            raise InputError(
                f"{name!r} needs {source.split} rows of {wanted} ({', '.join(labels)}), found {len(drawn)} of "
                f"{', '.join(sorted(found)) or 'none'}: give questions of several sorts"
            )
        groups = [str(row.get("question", place)) for place, row in enumerate(drawn)]
        gold = [labels.index(row[output]) for row in drawn]
        weights = [weight_of(row) if name in source.gold.judge else 1.0 for row in drawn]
        return cls(_requests(program, name, lm, drawn), labels, gold, groups, weights)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.labels[gold] for gold in self.gold))

    @property
    def identity(self) -> list[Any]:
        texts = [[request.system, [message.text for message in request.messages]] for request in self.requests]
        weighed = [] if set(self.weights) == {1.0} else [self.weights]
        return [texts, self.labels, self.gold, *weighed]

    def states(self, lm: LocalLM, layers: Sequence[int], name: str) -> LabelledStates:
        """What the base computes of the rows that it can read whole."""
        found = lm.hidden(self.requests, layers)
        kept = [place for place, state in enumerate(found) if state is not None]
        gold = np.array([self.gold[place] for place in kept], int)
        if len(set(gold.tolist())) < len(set(self.gold)):
            dropped = len(found) - len(kept)
            raise InputError(f"{name}: {dropped} of {len(found)} rows do not fit into the base's context")
        labels, groups = [self.labels[one] for one in gold], [self.groups[place] for place in kept]
        weights = np.array(even_weights(labels, [self.weights[place] for place in kept], name))
        return LabelledStates(np.stack([found[place] for place in kept]), gold, weights, groups)  # type: ignore[arg-type]


def _requests(program: dspy.Module, name: str, lm: LocalLM, rows: Sequence[dspy.Example]) -> list[Any]:
    """What the predictor asks of the LM for each row, demonstrations included."""
    predictor: Any = dict(copy_of(program).named_predictors())[name]

    def ask(recorder: LocalLM) -> None:
        predictor.lm = recorder
        with dspy.context(adapter=format_of(program, name, recorder)):
            for row in rows:
                predictor(**inputs_of(predictor.signature, row))

    requests = lm.recorded(ask)
    if len(requests) != len(rows) or any(request.config.response_format is None for request in requests):
        raise InputError(
            f"{name!r} asks {lm.model} for a written verdict, which a probe does not give: open the LM with another "
            "format (--adapter compact), or leave the predictor out"
        )
    return requests


def _interval(probe: Probe, rows: LabelledStates, place: int) -> dict[str, float]:
    """The interval of the AUROC on the validation rows, those of a question drawn together; of two labels alone."""
    if len(probe.labels) > 2:
        return {}
    logits = probe.logits(rows.states[:, place])
    score = auroc_score((rows.gold == 0).tolist(), (logits[:, 0] - logits[:, 1]).tolist(), rows.groups)
    return {"low": score.low, "high": score.high}
