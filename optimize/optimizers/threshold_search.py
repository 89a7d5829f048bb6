"""A program's answers under other thresholds of its judges: asked once, answered from memory where nothing changes."""

import functools
import itertools
import threading
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import dspy
import numpy as np
from numpy.typing import NDArray

from raisf.evaluation.judges import cuts
from raisf.evaluation.runner import Patience
from raisf.optimize.inner_traces import leave_traces, with_traces
from raisf.optimize.optimizers.fold_choice import choose
from raisf.optimize.optimizers.kinds_of_know import turn
from raisf.optimize.optimizers.selection import Metric
from raisf.optimize.remembering import remember, remembering
from raisf.optimize.runs import results, score_of
from raisf.optimize.within import program_within
from raisf.programs.ra_isf import RAISF
from raisf.programs.self_knowledge import Know

# Quantiles of a judge's probabilities that are tried, by how many judges have any: each combination is a run over the
# validation set, from memory mostly.
GRID = {1: 6, 2: 6, 3: 3}


class Thresholds(NamedTuple):
    """Of each judge that has one, also of those that the program does not ask."""

    know: float
    relevance: float
    sufficiency: float

    @classmethod
    def of(cls, program: RAISF) -> "Thresholds":
        """A program's."""
        return cls(*(getattr(program, f"{judge}_threshold") for judge in cls._fields))

    def give(self, program: RAISF) -> None:
        """Lets a program have these."""
        for judge, at in self._asdict().items():
            setattr(program, f"{judge}_threshold", at)


class Answers(NamedTuple):
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
    """Runs RA-ISF on the validation set with other thresholds, and with other kinds of self-knowledge.

    A module that contains one is run whole: the metric is of what the module gives, calls and searches are those of the
    RA-ISF in it.

    Args:
        student: The program or module; stays as it is.
        valset: The questions.
        metric: Called as `metric(example, prediction, trace)`; a question that failed twice counts 0.
        threads: Questions asked at a time.
        bar: Where to show how far it is.

    Attributes:
        program: The RA-ISF in a copy that makes equal calls once, of the kind that is tried.
        seen: By judge, the probabilities that it has given where the program asked it, being of this kind.
        tried: How many combinations of kind and thresholds have been tried.
        failed: The `id()` of each question that failed twice under one of these, and counts as wrong there.
    """

    def __init__(self, student: dspy.Module, valset: Sequence[dspy.Example], metric: Metric, threads: int, bar: Any):
        self.seen: dict[str, set[float]] = defaultdict(set)
        self._student = remembering(student)
        self.program = program_within(self._student, RAISF, "")
        leave_traces(self.program)
        self._first = dict(vars(self.program))
        self.tried = 0
        self.failed: set[int] = set()
        self._valset, self._metric, self._threads = valset, metric, threads
        self._found: dict[Thresholds, Answers] = {}
        self._patience = Patience()
        self._lock = threading.Lock()
        self._bar = bar
        self._task = bar.add_task("calibrating", total=None, score="")

    def turn(self, kind: Know) -> None:
        """Try this kind of self-knowledge from now on; what other judges and answerers have said is remembered."""
        self._found = {}
        vars(self.program).update(self._first)
        turn(self.program, kind)
        if self.program.know is not self._first["know"]:
            remember(self.program.know)
        self.seen.clear()
        self._bar.update(self._task, description=f"calibrating {kind}", completed=0, total=None)

    def expect(self, combinations: int) -> None:
        """Tell the bar how many there will be of this kind."""
        self._bar.update(self._task, total=combinations * len(self._valset))

    def at(self, thresholds: Thresholds) -> Answers:
        """The answers with these thresholds."""
        if thresholds in self._found:
            return self._found[thresholds]
        thresholds.give(self.program)

        def row(example: dspy.Example, run: dspy.Prediction) -> tuple[float, float, float]:
            with self._lock:
                for trace in run.traces:
                    self._note(trace.root)
            costs = [trace.cost for trace in run.traces]
            right = score_of(self._metric, example, run.prediction)
            calls, searches = sum(cost.lm_calls for cost in costs), sum(cost.retrievals for cost in costs)
            return right, float(calls), float(searches)

        def advance(made: Any) -> None:
            self._bar.update(self._task, advance=1)

        ask = functools.partial(self._ask, self._student)
        rows = results(ask, self._valset, row, threads=self._threads, patience=self._patience, tell=advance)
        # A call that failed once would tell against the thresholds that it happened to. Asked one by one, those that
        # always fail are never ten in a row.
        for place, made in enumerate(rows):
            if made is None:
                rows[place] = results(ask, [self._valset[place]], row, threads=1)[0]
        self.failed |= {id(example) for example, made in zip(self._valset, rows, strict=True) if made is None}
        self._found[thresholds] = Answers(*np.array([made or (0.0, 0.0, 0.0) for made in rows]).T)
        self.tried += 1
        return self._found[thresholds]

    def _ask(self, student: dspy.Module, **inputs: Any) -> dspy.Prediction:
        # Bound to the bar, so that a cluster's nodes cannot be sent it: what is remembered is remembered here.
        return with_traces(student, **inputs)

    def _note(self, root: Any) -> None:
        for node in root.walk():
            given = [("know", node.know), ("sufficiency", node.sufficient)]
            for judge, judgement in [*given, *(("relevance", passage.judgement) for passage in node.passages)]:
                if judgement is not None and judgement.probability is not None:
                    self.seen[judge].add(judgement.probability)


def best_answers(
    trial: Trial, now: Thresholds, more: Mapping[str, float], prices: tuple[float, float], groups: Sequence[Hashable]
) -> tuple[Thresholds, Answers]:
    """The thresholds with the best answers, and the answers under those that were chosen without their fold.

    Each judge's are what it has `now`, that of `more`, and quantiles of the probabilities that the program meets. Those
    that hold now stay if none are better beyond chance. `prices` are a call's and a search's, in right answers;
    `groups` are what each question is drawn with, (n,).
    """
    trial.at(now)
    most = GRID[max(1, sum(map(bool, trial.seen.values())))]
    grid = []
    for judge, at in now._asdict().items():
        seen = list(trial.seen[judge])
        grid.append(list(dict.fromkeys([at, more.get(judge, at), *cuts(seen, 0, 1, most=most)])) if seen else [at])
    tried = [Thresholds(*map(float, one)) for one in itertools.product(*grid)]
    trial.expect(len(tried))
    found = [trial.at(one) for one in tried]  # the first is what holds now
    chosen, picks = choose(np.array([answers.worth(*prices) for answers in found]), groups)
    places = np.arange(len(picks))
    held_out = Answers(*(np.array(values)[picks, places] for values in zip(*found, strict=True)))
    return tried[chosen], held_out


def guarded(trial: Trial, now: Thresholds, fitted: Mapping[str, float]) -> Thresholds:
    """The fitted thresholds, as many of them as can be set without costing answers."""
    least = trial.at(now).right.mean() - 1e-12
    for many in range(len(fitted), 0, -1):
        for some in itertools.combinations([judge for judge in now._fields if judge in fitted], many):
            moved = now._replace(**{judge: fitted[judge] for judge in some})
            if trial.at(moved).right.mean() >= least:
                return moved
    return now
