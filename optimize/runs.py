"""A program's runs over examples: what each came to, kept in a journal."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import dspy
from dspy.utils.exceptions import AdapterParseError
from dspy.utils.exceptions import LMError as DspyLMError
from pydantic_core import to_jsonable_python

from raisf.evaluation.outcome import Outcome
from raisf.evaluation.runner import Patience, ask_all, error_text, retold
from raisf.utils.errors import InputError, LMError, MetricError
from raisf.utils.journal import Journal

T = TypeVar("T")


def results(
    program: Callable[..., dspy.Prediction],
    examples: Sequence[dspy.Example],
    result: Callable[[dspy.Example, dspy.Prediction], T | None],
    *,
    threads: int,
    journal: Journal | None = None,
    key: Callable[[dspy.Example], str] = str,
    patience: Patience | None = None,
    tell: Callable[[T | None], None] = lambda found: None,
) -> list[T | None]:
    """What a program's run on each example comes to, in their order; None where it failed.

    The program is called with the inputs that an example marks, its question where it marks none.

    Args:
        program: With its LMs; or a `functools.partial` that runs it, its first argument (`with_steps`).
        examples: What it is run on.
        result: Of an example and its prediction; None counts as failed. Called with the caller's DSPy settings, several
            at a time: it may ask a metric, and that an LM. A `MetricError` is a failure on the example; what else it
            raises ends all.
        threads: Examples at a time.
        journal: Keeps the results, which are JSON-able then, and has those of an earlier call; failures are run again.
        key: What the journal calls an example's result.
        patience: Sees each outcome, for who gives up over several calls.
        tell: Called with each result as it is there, those of the journal first.

    Raises:
        LMError: An LM failed on ten examples in a row.
    """
    found: dict[int, T | None] = {}
    seen = Patience() if patience is None else patience

    def add(example: dspy.Example, made: T | None) -> None:
        found[id(example)] = made
        tell(made)

    def judge(outcome: Outcome) -> Outcome:
        if outcome.prediction is None:
            return outcome
        try:
            made = result(outcome.example.question, outcome.prediction)
        except MetricError as error:
            return replace(outcome, prediction=None, error=error)
        return replace(outcome, prediction=dspy.Prediction(made=made))

    def keep(outcome: Outcome) -> None:
        example = outcome.example.question
        made = None if outcome.prediction is None else outcome.prediction.made
        seen.saw(outcome)
        if made is not None and journal is not None:
            journal.add(key(example), made)
        add(example, made)

    if journal is not None:
        for example in examples:
            if key(example) in journal:
                add(example, journal.get(key(example)))
    # `ask_all` asks a question, and each example may have marked other inputs: so it travels whole as its question.
    waiting = [dspy.Example(question=example) for example in examples if id(example) not in found]
    ask_all(functools.partial(_ask, program), waiting, keep, threads=threads, judge=judge)
    return [found[id(example)] for example in examples]


def _ask(program: Callable[..., dspy.Prediction], question: dspy.Example) -> dspy.Prediction:
    return program(**marked(question).inputs())


def marked(example: dspy.Example) -> dspy.Example:
    """The example with its inputs marked: its question, where it does not say what they are."""
    return example if example._input_keys else example.with_inputs("question")


def with_steps(program: dspy.Module) -> Callable[..., dspy.Prediction]:
    """The program, giving its `prediction` together with the `steps` to it: predictor, inputs, outputs of each.

    The prediction is None where an LM's output could not be read. `names` are those of the steps' predictors, None for
    one that is not the program's own: the predictors themselves are copies where a node of a cluster took the steps.
    """
    return functools.partial(_steps_of, program)


def _steps_of(program: dspy.Module, **inputs: Any) -> dspy.Prediction:
    steps: list[Any] = []
    try:
        with dspy.context(trace=steps):
            prediction = program(**inputs)
    except AdapterParseError:  # an outcome of weak LMs, however many in a row: no reason to give up
        prediction = None
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    return dspy.Prediction(prediction=prediction, steps=steps, names=[names.get(id(step[0])) for step in steps])


def plain(value: Any) -> Any:
    """A value as a journal gives it back: pydantic's models as dicts, tuples as lists, strange things as text."""
    return to_jsonable_python(value, bytes_mode="base64", fallback=str)


def given_by(metric: Callable[..., Any], example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> Any:
    """What a metric gives for an answer, as it is.

    Raises:
        MetricError: An LM that it asks failed.
    """
    try:
        return metric(example, prediction, trace)
    except (AdapterParseError, DspyLMError, LMError) as error:
        raise retold(MetricError, error_text(error), error) from error


def score_of(
    metric: Callable[..., Any], example: dspy.Example, prediction: dspy.Prediction, trace: Any = None
) -> float:
    """What a metric gives for an answer.

    Raises:
        InputError: It is no number from 0 to 1.
        MetricError: An LM that the metric asks failed.
    """
    return as_share(given_by(metric, example, prediction, trace), metric)


def as_share(given: Any, metric: Callable[..., Any]) -> float:
    """What a metric gave, as a number from 0 to 1; see `score_of`."""
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    for bound in (0.0, 1.0):
        if math.isclose(value, bound, abs_tol=1e-9):  # 0.8 + 0.05 + 0.05 + 0.1 comes to more than 1
            value = bound
    if not 0 <= value <= 1:
        name = getattr(metric, "__name__", type(metric).__name__)
        raise InputError(f"the metric {name} gave {given!r:.40}: let it give a number from 0 to 1")
    return value
