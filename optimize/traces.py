"""Rows for a program's predictors from its own right runs, or a teacher's: each predictor gets exactly its own.

DSPy's BootstrapFinetune pairs the steps of a run with predictors by their position; in a program that recurses, or asks
a predictor more than once, that trains one on another's rows. Here each step goes to the predictor that made it.
"""

import contextvars
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from raisf.evaluation.runner import Outcome, ask_all, progress_bar
from raisf.programs.questions import is_unknown
from raisf.utils.journal import Journal
from raisf.utils.text import text_of


@dataclass(slots=True)
class Traced:
    """What came of the runs.

    Attributes:
        of: By predictor's name, examples of its inputs and outputs in right runs, each once.
        runs: How many were made.
        failed: Runs that ended in an error, an unreadable output among them.
        wrong: Runs that the metric did not pass.
    """

    of: dict[str, list[dspy.Example]] = field(default_factory=dict)
    runs: int = 0
    failed: int = 0
    wrong: int = 0

    @property
    def right(self) -> int:
        """Runs that the metric passed."""
        return self.runs - self.failed - self.wrong


def traced_rows(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    metric: Callable[..., Any],
    *,
    threads: int = 8,
    progress: bool = True,
    journal: Journal | None = None,
    name: str = "run",
) -> Traced:
    """Runs a program on examples and sorts the steps of its right runs by the predictor that made them.

    Args:
        program: With its LMs. Steps of predictors that are not its own (made within a run) are passed over.
        examples: With inputs marked.
        metric: Called as `metric(example, prediction, steps)`; a run counts as right at 1 or True.
        threads: Examples at a time.
        progress: Show a bar on stderr.
        journal: Keeps each run, and has those of an earlier call; one that failed is made again.
        name: What the journal calls them, the same for the same program and examples.

    Raises:
        LMError: The LM failed on ten examples in a row.
    """
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    traced, seen = Traced(runs=len(examples)), set()
    passes, runs = readable(metric), {}
    context = contextvars.copy_context()  # a metric may ask an LM of the caller's settings, and `keep` has others
    keys = {id(example): f"{name} {place}" for place, example in enumerate(examples)}
    if journal is not None:
        runs = {id(e): journal.get(keys[id(e)]) for e in examples if keys[id(e)] in journal}
    with progress_bar(progress) as bar:
        task = bar.add_task("collecting runs", total=len(examples), completed=len(runs), score="")

        def keep(outcome: Outcome) -> None:
            bar.update(task, advance=1)
            run, example = outcome.prediction, outcome.example.question
            if run is None or run.prediction is None:
                traced.failed += 1
                return
            right = float(context.run(passes, example, run.prediction, run.steps)) >= 1
            runs[id(example)] = [_step(names, *step) for step in run.steps if id(step[0]) in names] if right else None
            if journal is not None:
                journal.add(keys[id(example)], runs[id(example)])

        waiting = [example for example in examples if id(example) not in runs]
        ask_whole(with_steps(program), waiting, keep, threads=threads)
    for example in examples:  # in their order, whichever came first
        run = runs.get(id(example), [])
        traced.wrong += run is None
        for predictor, inputs, outputs in run or []:
            step = dspy.Example(**inputs, **outputs)
            if (predictor, repr(step)) not in seen:
                seen.add((predictor, repr(step)))
                traced.of.setdefault(predictor, []).append(step.with_inputs(*inputs))
    return traced


def _step(names: dict[int, str], predictor: Any, inputs: dict[str, Any], outputs: Any) -> list[Any]:
    return [
        names[id(predictor)],
        dict(inputs),
        {key: outputs.get(key) for key in predictor.signature.output_fields},
    ]


def readable(metric: Callable[..., Any]) -> Callable[..., Any]:
    """The metric, for which no run is right whose "unknown" may stand for a reply that is missing or cannot be read."""

    def passes(example: dspy.Example, prediction: dspy.Prediction, trace: Any = None) -> Any:
        return 0.0 if lacks_reply(prediction) else metric(example, prediction, trace)

    return passes


def lacks_reply(prediction: dspy.Prediction) -> bool:
    """Whether an answer "unknown" may stand for a reply that is missing or cannot be read."""
    told = getattr(prediction, "trace", None)
    unread = getattr(told, "unreadable", 0) or getattr(told, "failed", 0)
    return bool(unread) and is_unknown(text_of(prediction.get("answer")))


def ask_whole(
    program: Callable[..., dspy.Prediction],
    examples: Sequence[dspy.Example],
    keep: Callable[[Outcome], None],
    *,
    threads: int,
) -> None:
    """`ask_all` for programs that may take other inputs than a question.

    They are called with the inputs that an example marks, its question where it marks none. An outcome's
    `example.question` is the whole example.
    """

    def ask(question: dspy.Example) -> dspy.Prediction:
        return program(**marked(question).inputs())

    # `ask_all` takes the same fields of all, and each may mark others: so the whole example travels as its question.
    ask_all(ask, [dspy.Example(question=example) for example in examples], keep, threads=threads)


def marked(example: dspy.Example) -> dspy.Example:
    """The example with its inputs marked: its question, where it does not say what they are."""
    return example if example._input_keys else example.with_inputs("question")


def with_steps(program: dspy.Module) -> Callable[..., dspy.Prediction]:
    """The program, giving its `prediction` together with the `steps` to it: predictor, inputs, outputs of each.

    The prediction is None where an LM's output could not be read.
    """

    def ask(**inputs: Any) -> dspy.Prediction:
        steps: list[Any] = []
        try:
            with dspy.context(trace=steps):
                return dspy.Prediction(prediction=program(**inputs), steps=steps)
        except AdapterParseError:  # an outcome of weak LMs, however many in a row: no reason to give up
            return dspy.Prediction(prediction=None, steps=steps)

    return ask
