"""Candidates compared on the validation set: all of them on the same questions, each question of each asked once."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import dspy
from rich.progress import Progress

from raisf.evaluation.examples import answer_of, check_answered, gold_answers
from raisf.evaluation.identity import digest
from raisf.evaluation.intervals import Score, bootstrap, paired_difference
from raisf.evaluation.metrics import accuracy, are_yes_no, exact_match
from raisf.evaluation.runner import Patience, check_ran
from raisf.optimize.prompts import prompts_of
from raisf.optimize.runs import results, score_of
from raisf.utils.checks import check, is_number
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal

Metric = Callable[..., float]
GIVEN, ZERO_SHOT = "as given", "zero-shot"
"""What the student is called among the candidates: the second if it has learnt nothing before."""


def answer_exact_match(
    example: dspy.Example,
    prediction: dspy.Prediction,
    trace: Any = None,
    pred_name: str | None = None,
    pred_trace: Any = None,
) -> float:
    """Exact match of the answer, in the form DSPy's optimizers call a metric in, GEPA among them."""
    gold = _gold(example)
    return exact_match(answer_of(prediction, answers=gold), gold, example.get("scoring"))


def answer_accuracy(
    example: dspy.Example,
    prediction: dspy.Prediction,
    trace: Any = None,
    pred_name: str | None = None,
    pred_trace: Any = None,
) -> float:
    """The same for questions whose answer is yes or no, which is read leniently: "Yes, it is." is right too."""
    gold = _gold(example)
    return accuracy(answer_of(prediction, answers=gold), gold, example.get("scoring"))


def _gold(example: dspy.Example) -> list[str]:
    """The gold answers; without any every score would be 0, and an optimizer would choose by nothing."""
    if not (answers := gold_answers(example)):
        raise InputError(f"no gold answer, but {', '.join(example.keys())}: give each example `answer` or `answers`")
    return answers


def metric_for(examples: Sequence[dspy.Example]) -> Metric:
    """What counts as a right answer to some questions: accuracy where each is answered yes or no, else exact match."""
    closed = bool(examples) and all(are_yes_no(gold_answers(example)) for example in examples)
    return answer_accuracy if closed else answer_exact_match


def check_metric(metric: Metric) -> None:
    """Makes sure that a metric can be called as all are here, `metric(example, prediction, trace)`.

    Raises:
        InputError: It is no function, takes fewer, or wants more.
    """
    if not callable(metric):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may not be checked
        raise InputError(
            f"the metric is {metric!r:.60}: give a function of (example, prediction, trace), such as "
            "dspy.evaluate.answer_exact_match"
        )
    try:
        signature = inspect.signature(metric)
    except (TypeError, ValueError):  # some callables in C have none
        return
    try:
        signature.bind(dspy.Example(), dspy.Prediction(), None)
    except TypeError as error:
        raise InputError(
            f"the metric {metric_name(metric)}{signature} cannot be called as metric(example, prediction, trace) "
            f"({error}): let it take these three, and no more without a default"
        ) from error


def check_gold(metric: Metric, trainset: Sequence[dspy.Example], valset: Sequence[dspy.Example]) -> None:
    """Refuses, before any work, questions that a metric of ours cannot score: one of these ends all runs."""
    if metric in (answer_exact_match, answer_accuracy):
        check_answered(trainset, "training")
        check_answered(valset, "validation")


def metric_name(metric: Metric) -> str:
    """What tables call a metric."""
    ours: dict[Metric, str] = {answer_exact_match: "exact match", answer_accuracy: "accuracy"}
    name = next((name for one, name in ours.items() if metric is one), None)
    return name or getattr(metric, "__name__", type(metric).__name__)


def check_prices(call_price: float, search_price: float) -> None:
    """Refuses prices that are no numbers, or below zero.

    Raises:
        InputError: One is.
    """
    for name, price in (("call_price", call_price), ("search_price", search_price)):
        check(name, price, is_number(price) and price >= 0, "0 or more, a finite number of right answers")


class Selection:
    """The candidates so far, and the best of them.

    Args:
        valset: What they are compared on.
        metric: Called as `metric(example, prediction, trace)`, in [0, 1]; a failed question counts 0.
        journal: Keeps the answers' values.
        calls: How many LM calls there have been.
        threads: Questions asked at a time.
        bar: Where to show how far a candidate is.
        key: What tells candidates apart; None: their prompts.

    Attributes:
        valset: As given.
        bar: Likewise.
        patience: Counts the runs that failed, and gives up after ten in a row.
        tried: For each candidate its name, score, LM calls, and its difference to the first with its interval.
        best: The one with the highest score, the earliest of equal ones; None before the first.
        chosen: Its name.
    """

    def __init__(
        self,
        valset: Sequence[dspy.Example],
        metric: Metric,
        journal: Journal,
        calls: Callable[[], int],
        threads: int,
        bar: Progress,
        key: Callable[[dspy.Module], str] | None = None,
    ):
        self.valset, self.metric = valset, metric
        self.tried: list[dict[str, Any]] = []
        self.best: dspy.Module | None = None
        self.chosen = ""
        self._journal, self._calls, self._threads, self.bar = journal, calls, threads, bar
        self._key = key or _key
        self._numbers = {id(example): number for number, example in enumerate(valset)}
        self._scores: dict[str, Score] = {}
        self._failed: set[str] = set()
        self.patience = Patience()
        self._first: list[float] = []
        self._highest = -math.inf

    @property
    def failed(self) -> int:
        """How many questions failed, with one candidate at least."""
        return len({name.rpartition("/")[2] for name in self._failed})

    def score(self, name: str, program: dspy.Module) -> Score:
        """The program's score on the whole validation set. One that is equal to an earlier one is no candidate.

        Raises:
            LMError: The LM failed on ten questions in a row, or for the first candidate, the student, on all of them.
            RaisfError: The program did, for another reason than a reply that cannot be read.
        """
        key, before = self._key(program), self._calls()
        if key in self._scores:
            return self._scores[key]
        task = self.bar.add_task(name, total=len(self.valset), score="")
        values = self.values(program, self.valset, lambda score: self.bar.update(task, advance=1, score=score))
        if not self.tried:  # a student that cannot run would win with 0 of them
            check_ran(len(values), self.patience.failed, self.patience.error, "every validation question")
        score = self._scores[key] = bootstrap(values)
        self._first = self._first or values
        self.tried.append(
            {
                "name": name,
                "score": score.as_dict(),
                "difference": paired_difference(values, self._first).as_dict(),
                "lm_calls": self._calls() - before,
            }
        )
        if score.value > self._highest:
            self.best, self.chosen, self._highest = program, name, score.value
        return score

    def values(
        self, program: dspy.Module, examples: Sequence[dspy.Example], show: Callable[[str], None]
    ) -> list[float]:
        """The metric on some examples of the validation set, in their order; shows the mean so far after each."""
        key, values = self._key(program), list[float]()

        def name(example: dspy.Example) -> str:
            return f"{key}/{self._numbers[id(example)]}"

        def tell(value: float | None) -> None:
            values.append(value or 0.0)
            show(f"{100 * sum(values) / len(values):.1f}")

        # Failures are not for the journal: who goes on may have better luck.
        asked = [example for example in examples if name(example) not in self._failed]
        for _ in range(len(examples) - len(asked)):
            tell(None)
        found = results(
            program,
            asked,
            self._value,
            threads=self._threads,
            journal=self._journal,
            key=name,
            patience=self.patience,
            tell=tell,
        )
        known = {name(example): value for example, value in zip(asked, found, strict=True)}
        self._failed |= {one for one, value in known.items() if value is None}
        return [known.get(name(example)) or 0.0 for example in examples]

    def _value(self, example: dspy.Example, prediction: dspy.Prediction) -> float:
        return score_of(self.metric, example, prediction)


def _key(program: dspy.Module) -> str:
    return digest(prompts_of(program))
