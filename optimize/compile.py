"""Compiling a program to few-shot prompts: demonstrations from the training set, selected on the validation set."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import dspy
from dspy.utils.callback import BaseCallback
from rich.progress import Progress

from data.errors import InputError
from evaluation.identity import gold_answers
from evaluation.intervals import Score, bootstrap
from evaluation.metrics import exact_match, normalise
from evaluation.runner import Outcome, ask_all, progress_bar
from optimize.demonstrations import JUDGE_QUESTIONS, Rows, bootstrap_demos, collect_rows, copy_of, draw
from optimize.judge_data import Labels
from programs.calls import require_lm

How = Literal["prompts"]
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
    seed: int = 0,
    threads: int = 8,
    progress: bool = True,
) -> dspy.Module:
    """A copy of the program with the demonstrations that did best on the validation set.

    The program as it is given is always among the candidates and wins a tie: compiling never makes it worse there. The
    result carries `compile_report`: strategy, every candidate's score with n, the chosen one, LM calls, seconds.

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
        seed: Of every draw; equal seeds and equal LM answers give equal programs.
        threads: Questions asked at a time.
        progress: Show a bar with the running scores on stderr.

    Raises:
        InputError: Unknown how or strategy, an empty or overlapping set, answers missing, a judge with one verdict.
        LMError: The LM failed on ten questions in a row.
    """
    _check(how, strategy, demos, candidates, trainset, valset)
    require_lm(program)
    start, calls = time.perf_counter(), _Calls()
    chance = random.Random(seed)
    sample = chance.sample(list(trainset), min(len(trainset), JUDGE_QUESTIONS))
    tried: list[dict[str, Any]] = []
    best, best_score, chosen = program, -1.0, ""
    with dspy.context(callbacks=[*(dspy.settings.callbacks or []), calls]), progress_bar(progress) as bar:
        labelling = bar.add_task("labelling", total=None, score="")
        rows = collect_rows(program, sample, labels=labels, threads=threads, strict=strategy != "bootstrap")
        bar.remove_task(labelling)
        for name, candidate in _candidates(program, rows, strategy, demos, candidates, seed, trainset, metric):
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
        "rows": {name: len(found) for name, found in rows.of.items()},
        "missing": rows.missing,
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


def _check(
    how: str, strategy: str, demos: int, candidates: int, trainset: Sequence[Any], valset: Sequence[Any] | None
) -> None:
    for option, value, known in (("how", how, How), ("strategy", strategy, Strategy)):
        if value not in get_args(known):
            raise InputError(f"unknown {option} {value!r}: this version has {', '.join(get_args(known))}")
    if demos < 2:
        raise InputError(f"demos must be at least 2, one of each verdict; found {demos}")
    if candidates < 1:
        raise InputError(f"candidates must be at least 1, found {candidates}")
    if not trainset:
        raise InputError("the training set is empty: give a file with a question and its answer a line")
    if not valset:
        raise InputError("the validation set is missing or empty: candidates are compared on questions of their own")
    for name, examples in (("training", trainset), ("validation", valset)):
        for example in examples:
            if not gold_answers(example):
                raise InputError(
                    f"the {name} question {example.question!r} has no gold answer: add one or leave it out"
                )
    _check_disjoint(trainset, valset)


def _check_disjoint(trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
    trained = {normalise(example.question): example.question for example in trainset}
    # An id that is only a number is a place in a file, and both files have a first line.
    ids = {str(e.id): e.question for e in trainset if e.get("id") is not None and not str(e.id).isdigit()}
    both = [e for e in valset if normalise(e.question) in trained or str(e.get("id")) in ids]
    if both:
        raise InputError(
            f"{len(both)} of {len(valset)} validation questions are training questions too, such as "
            f"{both[0].question!r}: a score on them says nothing; give disjoint sets"
        )
