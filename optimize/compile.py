"""Compiling a program: to few-shot prompts, selected on the validation set, or to weights for its judges."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import dspy
from dspy.utils.callback import BaseCallback
from rich.progress import Progress

from data.errors import InputError
from evaluation.identity import gold_answers
from evaluation.intervals import Score, bootstrap
from evaluation.metrics import exact_match, normalise
from evaluation.runner import Outcome, ask_all, progress_bar
from lm.local import LocalLM
from lm.training import Training
from optimize.demonstrations import JUDGE_QUESTIONS, Rows, bootstrap_demos, collect_rows, copy_of, draw
from optimize.judge_data import Labels
from optimize.weights import train_weights
from programs.calls import require_lm

How = Literal["prompts", "weights"]
Strategy = Literal["labeled", "bootstrap", "random"]
Metric = Callable[..., float]


def answer_exact_match(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> float:
    """Exact match of the answer, in the form DSPy's optimizers call a metric in."""
    return exact_match(prediction.answer, gold_answers(example))


def compile(
    program: dspy.Module,
    *,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
    how: How = "prompts",
    strategy: Strategy = "labeled",
    demos: int = 4,
    candidates: int = 6,
    labels: Labels = "model",
    metric: Metric = answer_exact_match,
    base: LocalLM | str | None = None,
    predictors: Sequence[str] | None = None,
    teacher: dspy.Module | None = None,
    rows: int = 1000,
    training: Training | None = None,
    work: Path | str = "runs/weights",
    seed: int = 0,
    threads: int = 8,
    progress: bool = True,
) -> dspy.Module:
    """A copy of the program that has learnt from the training set, with a `compile_report`.

    how="prompts" gives it demonstrations: those that did best on the validation set. The program as it is given is
    always among the candidates and wins a tie: compiling never makes it worse there.

    how="weights" gives its judges weights of their own, LoRA adapters beside each other on one base in this process,
    trained each on its own rows; the other predictors keep their LMs. RA-ISF's judges learn from gold, or what a
    teacher did in its right runs; the predictors of any other program from right runs, its own or the teacher's, each
    from the steps that it made itself. A validation loss that no longer falls ends the training, and the weights of its
    lowest point are kept.

    Args:
        program: With its LMs (or DSPy's settings) and its retriever; stays as it is.
        trainset: Demonstrations come from it alone. With answers; judges also want gold passages and decompositions.
        valset: Candidates are compared on it alone; shares no question with the training set.
        how: "prompts": few-shot demonstrations.
        strategy: "labeled": the judges' demonstrations from gold, as many of each verdict. "bootstrap": also the steps
            of the program's own right runs for its other predictors. "random": the best of several such draws of both
            kinds, of different sizes.
        demos: Demonstrations a predictor at most, 2 or more; 4, since each makes every later prompt longer.
        candidates: Draws of strategy "random"; each costs one run over the validation set.
        labels: How known questions are told from unknown ones: "model" asks the LM closed-book, "gold" believes the
            training set's `known`; see `optimize.judge_data.know_examples`.
        metric: Called as `metric(example, prediction, trace)`, in [0, 1]; selects, and at 1 lets a run demonstrate.
        base: Weights: the local LM to train on, or its spec; None: the one that the predictor asks.
        predictors: Weights: the names of those to train; None: the judges in use, or all where there is none.
        teacher: Weights: a program with predictors of the same names; its right runs are the rows where gold has none.
        rows: Weights: examples a predictor at most; 1,000, the paper's number (Liu et al. 2024, appendix A).
        training: Weights: learning rate, rank, epochs and the like; its seed is used, not the one here.
        work: Weights: where checkpoints and trained weights lie; the same call goes on there after a kill.
        seed: Of every draw; equal seeds and equal LM answers give equal programs.
        threads: Questions asked at a time.
        progress: Show a bar with the running scores on stderr.

    Raises:
        InputError: Unknown how or strategy, an empty or overlapping set, answers missing, a judge with one verdict.
        LMError: The LM failed on ten questions in a row.
    """
    _check(how, strategy, demos, candidates, rows)
    _check_sets(trainset, valset)
    require_lm(program)
    start, calls = time.perf_counter(), _Calls()
    counting = dspy.context(callbacks=[*(dspy.settings.callbacks or []), calls])
    if how == "weights":
        with counting:
            trained: Any = train_weights(
                program,
                trainset,
                valset,
                base=base,
                teacher=teacher,
                predictors=predictors,
                rows=rows,
                labels=labels,
                metric=metric,
                training=training or Training(seed=seed),
                work=work,
                threads=threads,
                progress=progress,
            )
        trained.compile_report |= {"lm_calls": calls.count, "seconds": round(time.perf_counter() - start, 2)}
        return trained
    _check_answers(trainset, valset)
    chance = random.Random(seed)
    sample = chance.sample(list(trainset), min(len(trainset), JUDGE_QUESTIONS))
    tried: list[dict[str, Any]] = []
    best, best_score, chosen = program, -1.0, ""
    with counting, progress_bar(progress) as bar:
        labelling = bar.add_task("labelling", total=None, score="")
        shown = collect_rows(program, sample, labels=labels, threads=threads, strict=strategy != "bootstrap")
        bar.remove_task(labelling)
        for name, candidate in _candidates(program, shown, strategy, demos, candidates, seed, trainset, metric):
            before = calls.count
            score = _score(candidate, valset, metric, threads, bar, name)
            tried.append({"name": name, "score": score.as_dict(), "lm_calls": calls.count - before})
            if score.value > best_score:
                best, best_score, chosen = candidate, score.value, name
    compiled: Any = copy_of(best)
    compiled.compile_report = {
        "how": how,
        "strategy": strategy,
        "seed": seed,
        "labels": labels,
        "trainset": len(trainset),
        "valset": len(valset),
        "candidates": tried,
        "chosen": chosen,
        "rows": {name: len(found) for name, found in shown.of.items()},
        "missing": shown.missing,
        "lm_calls": calls.count,
        "seconds": round(time.perf_counter() - start, 2),
    }
    return compiled


def _candidates(
    program: dspy.Module,
    rows: Rows,
    strategy: Strategy,
    demos: int,
    candidates: int,
    seed: int,
    trainset: Sequence[dspy.Example],
    metric: Metric,
) -> Iterator[tuple[str, dspy.Module]]:
    """The programs to compare, each made when it is its turn.

    DSPy's BootstrapFewShotWithRandomSearch does the like, but takes the training set where the validation set is
    missing, leaves the LMs reset while it compares, and has no place for balancing the judges' demonstrations.
    """
    yield "as given" if any(p.demos for _, p in program.named_predictors()) else "zero-shot", program
    if strategy == "labeled":
        yield "labeled", draw(program, rows, demos, random.Random(seed))
    elif strategy == "bootstrap":
        yield "bootstrap", bootstrap_demos(program, rows, demos, random.Random(seed), trainset, metric)
    else:
        for number in range(candidates):
            chance = random.Random(f"{seed}/{number}")
            n = chance.randint(2, demos)
            if number % 2 == 0:
                yield f"labeled {number + 1}, up to {n}", draw(program, rows, n, chance)
            else:
                drawn = bootstrap_demos(program, rows, n, chance, trainset, metric)
                yield f"bootstrap {number + 1}, up to {n}", drawn


def _score(
    program: dspy.Module, valset: Sequence[dspy.Example], metric: Metric, threads: int, bar: Progress, name: str
) -> Score:
    values: dict[int, float] = {}
    task = bar.add_task(name, total=len(valset), score="")

    def keep(outcome: Outcome) -> None:
        right = 0.0 if outcome.prediction is None else float(metric(outcome.example, outcome.prediction, None))
        values[id(outcome.example)] = right
        bar.update(task, advance=1, score=f"{100 * sum(values.values()) / len(values):.1f}")

    ask_all(program, valset, keep, threads=threads)
    return bootstrap([values[id(example)] for example in valset])


class _Calls(BaseCallback):
    """Counts LM calls, whoever makes them."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        with self._lock:
            self.count += 1


def _check(how: str, strategy: str, demos: int, candidates: int, rows: int) -> None:
    for option, value, known in (("how", how, How), ("strategy", strategy, Strategy)):
        if value not in get_args(known):
            raise InputError(f"unknown {option} {value!r}: this version has {', '.join(get_args(known))}")
    for option, value, least in (("demos", demos, 2), ("rows", rows, 2), ("candidates", candidates, 1)):
        if value < least:
            reason = ", one of each verdict" if least == 2 else ""
            raise InputError(f"{option} must be at least {least}{reason}; found {value}")


def _check_sets(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example] | None) -> None:
    if not trainset:
        raise InputError("the training set is empty: give a file with a question and its answer a line")
    if not valset:
        raise InputError("the validation set is missing or empty: what is learnt is judged on questions of its own")
    _check_disjoint(trainset, valset)


def _check_answers(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
    for name, examples in (("training", trainset), ("validation", valset)):
        for example in examples:
            if not gold_answers(example):
                raise InputError(
                    f"the {name} question {example.question!r} has no gold answer: add one or leave it out"
                )


def _check_disjoint(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
    trained = {_asked(example) for example in trainset}
    # An id that is only a number is a place in a file, and both files have a first line.
    ids = {str(e.id) for e in trainset if e.get("id") is not None and not str(e.id).isdigit()}
    both = [e for e in valset if _asked(e) in trained or str(e.get("id")) in ids]
    if both:
        raise InputError(
            f"{len(both)} of {len(valset)} validation questions are training questions too, such as "
            f"{both[0].get('question', both[0])!r}: a score on them says nothing; give disjoint sets"
        )


def _asked(example: dspy.Example) -> str:
    """What a program is asked, spelling aside; examples of a program of the user's own need not have a question."""
    asked = example.get("question")
    return normalise(asked if isinstance(asked, str) else " ".join(map(str, example.inputs().values())))
