"""Compiling a program: to few-shot prompts, selected on the validation set, or to weights for its judges."""

import importlib.util
import inspect
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, get_args

import dspy
from dspy.utils.callback import BaseCallback

from raisf.evaluation.identity import gold_answers
from raisf.evaluation.runner import progress_bar
from raisf.lm.connect import connect
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.optimize.demonstrations import copy_of
from raisf.optimize.journal import Journal, identity_of
from raisf.optimize.judges.judge_data import Labels, check_asking
from raisf.optimize.optimizers.search import Search
from raisf.optimize.optimizers.selection import Metric, Selection, answer_exact_match
from raisf.optimize.optimizers.weights import train_weights
from raisf.optimize.overlap import check_disjoint
from raisf.optimize.prompts import instructed, prompts_of
from raisf.programs.baselines.skr import SKR
from raisf.programs.calls import require_lm
from raisf.utils.errors import InputError

How = Literal["prompts", "weights"]
Strategy = Literal["labeled", "bootstrap", "random", "mipro", "gepa"]
# What each of them needs beyond the usual, and the extra that brings it.
NEEDS = {"mipro": ("optuna", "optimizers"), "gepa": ("gepa", "optimizers")}
# Whose each option is; where it is nobody's it would be passed over in silence.
OF_HOW = {
    "prompts": ("strategy", "demos", "candidates", "trials", "reflection_lm"),
    "weights": ("base", "predictors", "teacher", "rows", "training"),
}
OF_STRATEGY = {"candidates": ("random", "mipro"), "trials": ("mipro", "gepa"), "reflection_lm": ("mipro", "gepa")}
# Instructions are longer than answers, and an LM that reasons first writes more than them.
REFLECTION_TOKENS = 4096


def compile(
    program: dspy.Module,
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    how: How = "prompts",
    strategy: Strategy = "labeled",
    demos: int = 4,
    candidates: int = 6,
    trials: int = 20,
    reflection_lm: dspy.LM | str | None = None,
    labels: Labels = "model",
    metric: Metric = answer_exact_match,
    base: LocalLM | str | None = None,
    predictors: Sequence[str] | None = None,
    teacher: dspy.Module | None = None,
    rows: int = 1000,
    training: Training | None = None,
    work: Path | str = "runs/compile",
    seed: int = 0,
    threads: int = 8,
    progress: bool = True,
) -> dspy.Module:
    """A copy of the program that has learnt from the training set, with a `compile_report`.

    SKR-knn is fitted to the training set before all else, unless it is.

    how="prompts" gives it the demonstrations, and with some strategies the instructions, that did best on the
    validation set. All candidates answer the same questions of it; the program as it is given is among them and wins
    a tie.

    how="weights" gives its judges weights of their own, LoRA adapters beside each other on one base in this process,
    trained each on its own rows; the other predictors keep their LMs. RA-ISF's judges learn from gold, or what a
    teacher did in its right runs; the predictors of any other program from right runs, its own or the teacher's, each
    from the steps that it made itself. A validation loss that no longer falls ends the training, and the weights of its
    lowest point are kept.

    Args:
        program: With its LMs (or DSPy's settings) and its retriever; stays as it is.
        trainset: Demonstrations come from it alone. With answers; judges also want gold passages and decompositions.
        valset: Candidates are compared on it alone; shares no question with the training set.
        how: "prompts" or "weights".
        strategy: Of prompts. "labeled": the judges' demonstrations from gold, as many of each verdict. "bootstrap":
            also the steps of the program's own right runs for its other predictors. "random": the best of several such
            draws of both kinds, of different sizes. "mipro": an instruction and a draw for each predictor, by MIPROv2.
            "gepa": beginning with the better of no and labeled demonstrations, instructions that an LM rewrites by
            what gold says was wrong.
        demos: Demonstrations a predictor at most, 2 or more; 4, since each makes every later prompt longer.
        candidates: Draws of strategy "random", each of which costs a run over the validation set; of "mipro", the draws
            and the instructions that a predictor chooses from.
        trials: What "mipro" and "gepa" may spend, in runs over the validation set.
        reflection_lm: What writes instructions for "mipro" and "gepa", or its spec; None: the LM that the program's
            first predictor asks. A strong one pays.
        labels: How known questions are told from unknown ones: "model" asks the LM closed-book, "gold" believes the
            training set's `known`; see `raisf.optimize.judges.judge_data.know_examples`.
        metric: Called as `metric(example, prediction, trace)`, in [0, 1]; selects, and at 1 lets a run demonstrate.
        base: Weights: the local LM to train on, or its spec; None: the one that the predictor asks.
        predictors: Weights: the names of those to train; None: the judges in use, or all where there is none.
        teacher: Weights: a program with predictors of the same names; its right runs are the rows where gold has none.
        rows: Weights: examples a predictor at most; 1,000, the paper's number (Liu et al. 2024, appendix A).
        training: Weights: learning rate, rank, epochs and the like; its seed is used, not the one here.
        work: Where what is found so far lies, checkpoints and trained weights too: after a kill the same call goes on
            there, to the same result.
        seed: Of every draw; equal seeds and equal LM answers give equal programs.
        threads: Questions asked at a time.
        progress: Show a bar with the running scores on stderr.

    Raises:
        InputError: Unknown how, strategy or labels, an option of another how or strategy, an empty or overlapping set,
            answers missing, a judge with one verdict, a strategy whose extra is missing, a work folder that cannot be
            written or that another compile is writing into.
        LMError: The LM failed on ten questions in a row.
    """
    _check(how, strategy, demos, candidates, trials, rows)
    _check_used(how, strategy, locals())
    check_asking(labels, threads)
    _check_sets(trainset, valset)
    require_lm(program)
    if how == "prompts":
        _check_prompts(program, strategy)
        if metric is answer_exact_match:
            _check_answers(trainset, valset)
    start, calls = time.perf_counter(), _Calls()
    training = training or Training(seed=seed)
    lm = _reflection_lm(reflection_lm, program)
    if how == "prompts":
        asked: Any = [strategy, demos, candidates, trials, lm.model]
    else:
        teaching = teacher and identity_of(teacher)
        asked = [getattr(base, "model", base), predictors, teaching, rows, asdict(training)]
    sets = [[dict(example) for example in examples] for examples in (trainset, valset)]
    identity = [identity_of(program, metric), sets, labels, seed, asked]
    counting = dspy.context(callbacks=[*(dspy.settings.callbacks or []), calls])
    with Journal.alone(work, how, identity, trains=how == "weights") as journal, counting:
        program = _fitted(program, trainset, journal, threads)
        if how == "weights":
            compiled: Any = train_weights(
                program,
                trainset,
                valset,
                base=base,
                teacher=teacher,
                predictors=predictors,
                rows=rows,
                labels=labels,
                metric=metric,
                training=training,
                work=work,
                journal=journal,
                threads=threads,
                progress=progress,
            )
        else:
            with progress_bar(progress) as bar:
                selection = Selection(valset, metric, journal, lambda: calls.count, threads, bar)
                options: dict[str, Any] = {"labels": labels, "threads": threads, "seed": seed}
                search = Search(program, trainset, selection, journal, metric, **options)
                search.run(strategy, demos, candidates, trials, lm)
            compiled = copy_of(selection.best or program)
            given, best = prompts_of(program), prompts_of(compiled)
            told = {name: prompts["instructions"] for name, prompts in best.items()}
            compiled.compile_report = {
                "how": how,
                "strategy": strategy,
                "seed": seed,
                "labels": labels,
                "trainset": len(trainset),
                "valset": len(valset),
                "candidates": selection.tried,
                "chosen": selection.chosen,
                "failed": selection.patience.failed,
                "instructions": {name: text for name, text in told.items() if text != given[name]["instructions"]},
                "proposed": {name: len(texts) - 1 for name, texts in search.proposed.items()},
                "rows": {name: len(found) for name, found in search.rows.of.items()},
                "missing": search.rows.missing,
            }
        journal.close()
    seconds = round(time.perf_counter() - start, 2)
    compiled.compile_report |= {"lm_calls": calls.count, "seconds": seconds, "resumed": journal.found > 0}
    return compiled


def _reflection_lm(given: dspy.LM | str | None, program: dspy.Module) -> dspy.LM:
    """The LM that writes instructions: the one that is given, else the first that the program asks."""
    if isinstance(given, str):
        return connect(given, max_tokens=REFLECTION_TOKENS)
    if given is not None:
        if not isinstance(given, dspy.BaseLM):
            raise InputError(f"reflection_lm is {given!r}: give an LM, or a spec such as openai/gpt-4o")
        return given
    asked: Any = next((predictor.lm for _, predictor in program.named_predictors() if predictor.lm is not None), None)
    return asked or dspy.settings.lm


def _fitted(program: dspy.Module, trainset: Sequence[dspy.Example], journal: Journal, threads: int) -> dspy.Module:
    """The program, or where it is an SKR-knn that was never fitted, a copy that is."""
    if not isinstance(program, SKR) or program.cases is not None:
        return program
    made: Any = copy_of(program)
    made.learn(journal.once("cases", lambda: made.fit(trainset, threads).cases))
    return made


class _Calls(BaseCallback):
    """Counts LM calls, whoever makes them."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        with self._lock:
            self.count += 1


def _check(how: str, strategy: str, demos: int, candidates: int, trials: int, rows: int) -> None:
    for option, value, known in (("how", how, How), ("strategy", strategy, Strategy)):
        if value not in get_args(known):
            raise InputError(f"unknown {option} {value!r}: this version has {', '.join(get_args(known))}")
    minima = (("demos", demos, 2), ("rows", rows, 2), ("candidates", candidates, 1), ("trials", trials, 1))
    for option, value, least in minima:
        if value < least:
            reason = ", one of each verdict" if least == 2 else ""
            raise InputError(f"{option} must be at least {least}{reason}; found {value}")


def _check_used(how: str, strategy: str, given: dict[str, Any]) -> None:
    """Refuses options that differ from their defaults although nothing would read them."""
    options = inspect.signature(compile).parameters.values()
    for name in [option.name for option in options if option.name in given and given[option.name] != option.default]:
        owner = next((owner for owner, names in OF_HOW.items() if name in names), how)
        shown = f"{name} (--{name.replace('_', '-')})"
        if owner != how:
            raise InputError(f"{shown} is for how={owner!r} (--how {owner}), not for {how}: leave it out")
        if how == "prompts" and strategy not in OF_STRATEGY.get(name, (strategy,)):
            owners = " and ".join(OF_STRATEGY[name])
            raise InputError(f"{shown} is for strategy (--strategy) {owners}, not for {strategy}: leave it out")


def _check_prompts(program: dspy.Module, strategy: str) -> None:
    package, extra = NEEDS.get(strategy, ("", ""))
    if package and importlib.util.find_spec(package) is None:
        raise InputError(
            f"strategy {strategy!r} needs the package {package}, which is not installed: pip install {package}, or the "
            f"extra {extra!r} of this project; or take another strategy, such as random"
        )
    if strategy == "gepa" and not instructed(program):
        raise InputError(
            "strategy 'gepa' rewrites instructions, and the format in which this program's LMs are spoken to has none: "
            "take --adapter compact or chat, or another strategy"
        )


def _check_sets(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example] | None) -> None:
    if not trainset:
        raise InputError("the training set is empty: give a file with a question and its answer a line")
    if not valset:
        raise InputError("the validation set is missing or empty: what is learnt is judged on questions of its own")
    check_disjoint(trainset, {"validation": valset})


def _check_answers(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
    for name, examples in (("training", trainset), ("validation", valset)):
        for example in examples:
            if not gold_answers(example):
                raise InputError(
                    f"the {name} question {example.question!r} has no gold answer: add one or leave it out"
                )
