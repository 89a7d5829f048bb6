"""Rows for a program's predictors from its own right runs, or a teacher's: each predictor gets exactly its own.

DSPy's BootstrapFinetune pairs the steps of a run with predictors by their position; in a program that recurses, or asks
a predictor more than once, that trains one on another's rows. Here each step goes to the predictor that made it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import dspy

from raisf.evaluation.runner import Patience
from raisf.optimize.runs import plain, results, score_of, with_steps
from raisf.programs.questions import is_unknown
from raisf.utils.journal import Journal
from raisf.utils.progress import progress_bar
from raisf.utils.text import text_of


@dataclass(slots=True)
class Traced:
    """What came of the runs.

    Attributes:
        of: By predictor's name, examples of its inputs and outputs in right runs, each once.
        asked: The predictors that were asked in any run that came to an end.
        runs: How many were made.
        failed: Runs that ended in an error, an unreadable output among them.
        wrong: Runs that the metric did not pass.
        broken: Of those that failed, how many did not because of an unreadable output.
        error: The last one's of these.
    """

    of: dict[str, list[dspy.Example]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    runs: int = 0
    failed: int = 0
    wrong: int = 0
    broken: int = 0
    error: Exception | None = None

    @property
    def right(self) -> int:
        """Runs that the metric passed."""
        return self.runs - self.failed - self.wrong

    def add(self, later: "Traced") -> None:
        """Adds what came of more runs, of equal steps the first."""
        for name, steps in later.of.items():
            own = self.of.setdefault(name, [])
            own.extend(step for step in steps if step not in own)
        self.asked |= later.asked
        self.runs += later.runs
        self.failed += later.failed
        self.wrong += later.wrong
        self.broken += later.broken
        self.error = later.error or self.error


class _Run(TypedDict):
    """Whether a run was right, and its steps: each predictor's name, and of a right one its inputs and outputs."""

    right: bool
    steps: list[Any]


def traced_rows(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    metric: Callable[..., Any],
    *,
    threads: int,
    progress: bool,
    journal: Journal | None = None,
    name: str = "run",
) -> Traced:
    """Runs a program on examples and sorts the steps of its right runs by the predictor that made them.

    Steps of predictors that are not its own (made within a run) are passed over. The metric is called as
    `metric(example, prediction, steps)`; a run counts as right at 1 or True. The journal calls the runs by the name,
    which is the same for the same program and examples.

    Raises:
        LMError: The LM failed on ten examples in a row.
    """
    places = {id(example): place for place, example in enumerate(examples)}
    patience = Patience()

    def result(example: dspy.Example, run: dspy.Prediction) -> _Run | None:
        if run.prediction is None:
            return None
        if lacks_reply(run.prediction) or score_of(metric, example, run.prediction, run.steps) < 1:
            return {"right": False, "steps": [[name] for name in sorted({*filter(None, run.names)})]}
        return {"right": True, "steps": _own(run)}

    with progress_bar(progress) as bar:
        task = bar.add_task("collecting runs", total=len(examples), score="")
        runs = results(
            with_steps(program),
            examples,
            result,
            threads=threads,
            journal=journal,
            key=lambda example: f"{name}, example {places[id(example)]}",
            patience=patience,
            tell=lambda run: bar.update(task, advance=1),
        )
    ended = [run for run in runs if run is not None]
    right = [run for run in ended if run["right"]]
    traced = Traced(
        asked={step[0] for run in ended for step in run["steps"]},
        runs=len(runs),
        failed=len(runs) - len(ended),
        wrong=len(ended) - len(right),
        broken=patience.failed,
        error=patience.error,
    )
    seen = set[tuple[str, str]]()
    for predictor, inputs, outputs in (step for run in right for step in run["steps"]):
        step = dspy.Example({**inputs, **outputs})
        if (predictor, repr(step)) not in seen:
            seen.add((predictor, repr(step)))
            traced.of.setdefault(predictor, []).append(step.with_inputs(*inputs))
    return traced


def _own(run: dspy.Prediction) -> list[Any]:
    """The steps of the program's own predictors."""
    return [_step(name, *step) for name, step in zip(run.names, run.steps, strict=True) if name is not None]


def _step(name: str, predictor: Any, inputs: dict[str, Any], outputs: Any) -> list[Any]:
    gave = {key: outputs.get(key) for key in predictor.signature.output_fields}
    return [name, plain(inputs), plain(gave)]


def lacks_reply(prediction: dspy.Prediction) -> bool:
    """Whether an answer "unknown" may stand for a reply that cannot be read."""
    unread = getattr(getattr(prediction, "trace", None), "unreadable", 0)
    return bool(unread) and is_unknown(text_of(prediction.get("answer")))
