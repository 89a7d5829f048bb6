"""A program's answers under other thresholds of its judges: asked once, answered from memory where nothing changes."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy
import numpy as np
from numpy.typing import NDArray

from raisf.evaluation.runner import Outcome, ask_all
from raisf.optimize.optimizers.selection import Metric
from raisf.optimize.remembering import remembering
from raisf.optimize.traces import Patience
from raisf.programs.ra_isf import RAISF

Thresholds = tuple[float, float]
"""Of know and of relevance."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What each validation question came to, in their order.

    Attributes:
        right: The metric, (n,).
        calls: LM calls, (n,), whether memory answered them or not.
        searches: Searches whose passages were used, (n,). Whether one is begun in vain is a matter of speed.
    """

    right: NDArray[np.float64]
    calls: NDArray[np.float64]
    searches: NDArray[np.float64]

    def worth(self, call_price: float, search_price: float) -> NDArray[np.float64]:
        """What is right less what it cost, in right answers, (n,)."""
        return self.right - call_price * self.calls - search_price * self.searches


class Trial:
    """Runs RA-ISF on the validation set with pairs of thresholds.

    Args:
        program: Stays as it is.
        valset: The questions.
        metric: Called as `metric(example, prediction, trace)`; a failed question counts 0.
        threads: Questions asked at a time.
        bar: Where to show how far it is.

    Attributes:
        seen: By judge, the probabilities that it has given where the program asked it.
    """

    def __init__(self, program: RAISF, valset: Sequence[dspy.Example], metric: Metric, threads: int, bar: Any):
        self.seen: dict[str, set[float]] = defaultdict(set)
        self._program: Any = remembering(program)
        self._valset, self._metric, self._threads = valset, metric, threads
        self._found: dict[Thresholds, Answers] = {}
        self._patience = Patience()
        self._bar = bar
        self._task = bar.add_task("calibrating", total=None, score="")

    @property
    def pairs(self) -> int:
        """How many pairs of thresholds have been tried."""
        return len(self._found)

    def expect(self, pairs: int) -> None:
        """Tell the bar how many pairs there will be."""
        self._bar.update(self._task, total=pairs * len(self._valset))

    def at(self, thresholds: Thresholds) -> Answers:
        """The answers with a pair of thresholds."""
        if thresholds in self._found:
            return self._found[thresholds]
        self._program.know_threshold, self._program.relevance_threshold = thresholds
        rows: dict[int, tuple[float, float, float]] = {}

        def keep(outcome: Outcome) -> None:
            self._patience.saw(outcome)
            rows[id(outcome.example)] = (0.0, 0.0, 0.0)
            if outcome.prediction is not None:
                cost = outcome.prediction.trace.cost
                right = float(self._metric(outcome.example, outcome.prediction, None))
                rows[id(outcome.example)] = (right, float(cost.lm_calls), float(cost.retrievals))
                self._note(outcome.prediction.trace.root)
            self._bar.update(self._task, advance=1)

        ask_all(self._program, self._valset, keep, threads=self._threads)
        table = np.array([rows[id(example)] for example in self._valset]).T
        self._found[thresholds] = Answers(*table)
        return self._found[thresholds]

    def _note(self, root: Any) -> None:
        for node in root.walk():
            if node.know is not None and node.know.probability is not None:
                self.seen["know"].add(node.know.probability)
            for passage in node.passages:
                if passage.judgement is not None and passage.judgement.probability is not None:
                    self.seen["relevance"].add(passage.judgement.probability)
