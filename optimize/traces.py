"""Rows for a program's predictors from its own right runs, or a teacher's: each predictor gets exactly its own.

DSPy's BootstrapFinetune pairs the steps of a run with predictors by their position; in a program that recurses, or asks
a predictor more than once, that trains one on another's rows. Here each step goes to the predictor that made it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from evaluation.runner import Outcome, ask_all, progress_bar


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


def traced_rows(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    metric: Callable[..., Any],
    *,
    threads: int = 8,
    progress: bool = True,
) -> Traced:
    """Runs a program on examples and sorts the steps of its right runs by the predictor that made them.

    Args:
        program: With its LMs. Steps of predictors that are not its own (made within a run) are passed over.
        examples: With inputs marked.
        metric: Called as `metric(example, prediction, steps)`; a run counts as right at 1 or True.
        threads: Examples at a time.
        progress: Show a bar on stderr.

    Raises:
        LMError: The LM failed on ten examples in a row.
    """
    names = {id(predictor): name for name, predictor in program.named_predictors()}
    traced, seen = Traced(runs=len(examples)), set()
    runs: dict[int, dspy.Prediction] = {}
    with progress_bar(progress) as bar:
        task = bar.add_task("collecting runs", total=len(examples), score="")

        def keep(outcome: Outcome) -> None:
            bar.update(task, advance=1)
            if outcome.prediction is None or outcome.prediction.prediction is None:
                traced.failed += 1
            else:
                runs[id(outcome.example.question)] = outcome.prediction

        # `ask_all` calls with a question alone; these programs may take any inputs, so the whole example travels there.
        ask_all(_Recorder(program), [dspy.Example(question=e) for e in examples], keep, threads=threads)
    for example in examples:  # in their order, whichever came first
        run = runs.get(id(example))
        if run is None:
            continue
        if float(metric(example, run.prediction, run.steps)) < 1:
            traced.wrong += 1
            continue
        for predictor, inputs, outputs in run.steps:
            name = names.get(id(predictor))
            step = dspy.Example(**inputs, **{key: outputs.get(key) for key in predictor.signature.output_fields})
            if name is not None and (name, repr(step)) not in seen:
                seen.add((name, repr(step)))
                traced.of.setdefault(name, []).append(step.with_inputs(*inputs))
    return traced


class _Recorder(dspy.Module):
    """A program whose prediction is the program's own together with the steps to it."""

    def __init__(self, program: dspy.Module):
        super().__init__()
        self.program = program

    def forward(self, question: dspy.Example) -> dspy.Prediction:
        steps: list[Any] = []
        try:
            with dspy.context(trace=steps):
                return dspy.Prediction(prediction=self.program(**question.inputs()), steps=steps)
        except AdapterParseError:  # an outcome of weak LMs, however many in a row: no reason to give up
            return dspy.Prediction(prediction=None, steps=steps)
