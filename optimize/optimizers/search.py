"""The strategies of compiling to prompts: each makes candidates, and a selection compares them."""

from collections.abc import Sequence
from random import Random
from typing import Any

import dspy

from raisf.optimize.demonstrations import JUDGE_QUESTIONS, Rows, bootstrap_demos, collect_rows, draw
from raisf.optimize.journal import Journal
from raisf.optimize.judges.feedback import Feedback
from raisf.optimize.judges.judge_data import Labels
from raisf.optimize.optimizers.selection import Metric, Selection
from raisf.optimize.prompts import Prompts, prompts_of, with_prompts


class Search:
    """Candidates for a program, made from training questions.

    DSPy's BootstrapFewShotWithRandomSearch does the like of "random", but takes the training set where the validation
    set is missing, leaves the LMs reset while it compares, and has no place for balancing the judges' demonstrations.

    Args:
        program: As it is given; it is the first candidate.
        trainset: What demonstrations and reflections come from.
        selection: Compares the candidates.
        journal: Keeps what was made, so that a killed search goes on with the very same.
        metric: See `raisf.optimize.compile.compile`.
        labels: Likewise.
        threads: Questions asked at a time.
        seed: Of every draw.

    Attributes:
        rows: What the judges' demonstrations are drawn from.
        proposed: By predictor's name, the instructions that "mipro" chose from.
    """

    def __init__(
        self,
        program: dspy.Module,
        trainset: Sequence[dspy.Example],
        selection: Selection,
        journal: Journal,
        metric: Metric,
        *,
        labels: Labels,
        threads: int,
        seed: int,
    ):
        self.rows = Rows()
        self.proposed: dict[str, list[str]] = {}
        self._program, self._trainset, self._selection, self._journal = program, trainset, selection, journal
        self._metric, self._labels, self._threads, self._seed = metric, labels, threads, seed
        self._sample = Random(seed).sample(list(trainset), min(len(trainset), JUDGE_QUESTIONS))

    def run(self, strategy: str, demos: int, candidates: int, trials: int, lm: dspy.LM) -> None:
        """Compares the program as it is with what a strategy makes of it; the arguments are `compile`'s.

        Raises:
            InputError: The strategy wants rows of both verdicts of each judge, and they cannot be had.
            LMError: An LM failed on ten questions in a row.
        """
        strict = strategy in ("labeled", "random")
        options: dict[str, Any] = {"labels": self._labels, "threads": self._threads, "strict": strict}
        labelling = self._selection.bar.add_task("labelling", total=None, score="")
        kept = self._journal.once("rows", lambda: collect_rows(self._program, self._sample, **options).as_json())
        self.rows = Rows.of_json(kept)
        self._selection.bar.remove_task(labelling)
        shown = any(predictor.demos for _, predictor in self._program.named_predictors())
        self._selection.score("as given" if shown else "zero-shot", self._program)
        match strategy:
            case "labeled":
                self._labeled(demos)
            case "bootstrap":
                self._bootstrap(demos)
            case "random":
                self._random(demos, candidates)
            case "mipro":
                self._mipro(demos, candidates, trials, lm)
            case "gepa":
                self._gepa(demos, trials, lm)

    def _labeled(self, demos: int) -> None:
        """One draw of the judges' demonstrations, by gold."""
        self._try("labeled", lambda: draw(self._program, self.rows, demos, Random(self._seed)))

    def _bootstrap(self, demos: int) -> None:
        """The same, and steps of the program's right runs for the others."""
        self._try("bootstrap", lambda: self._bootstrapped(demos, Random(self._seed)))

    def _random(self, demos: int, candidates: int) -> None:
        """Several draws of both kinds and of different sizes."""
        for number in range(candidates):
            self._try(*self._draw(number, demos))

    def _mipro(self, demos: int, candidates: int, trials: int, lm: dspy.LM) -> None:
        """A draw and an instruction for each predictor, chosen together in trials."""
        from raisf.optimize.optimizers.mipro import search

        shown = [self._kept(*self._draw(number, demos)) for number in range(candidates)]
        self.proposed = search(
            self._program,
            self._sample,
            self._selection,
            shown,
            self._metric,
            prompt_lm=lm,
            instructions=candidates,
            trials=trials,
            journal=self._journal,
            seed=self._seed,
        )

    def _gepa(self, demos: int, trials: int, lm: dspy.LM) -> None:
        """Instructions rewritten by what was wrong, on top of the better of no and labeled demonstrations."""
        from raisf.optimize.optimizers.gepa import evolve

        self._labeled(demos)
        found = evolve(
            self._selection.best or self._program,
            self._sample,
            self._selection,
            Feedback(self._program, self._sample, self.rows),
            self._metric,
            reflection_lm=lm,
            budget=trials * len(self._selection.valset),
            journal=self._journal,
            threads=self._threads,
            seed=self._seed,
        )
        for name, candidate in found:
            self._selection.score(name, candidate)

    def _draw(self, number: int, demos: int) -> tuple[str, Any]:
        rng = Random(f"{self._seed}/{number}")
        n = rng.randint(2, demos)
        if number % 2 == 0:
            return f"labeled {number + 1}, up to {n}", lambda: draw(self._program, self.rows, n, rng)
        return f"bootstrap {number + 1}, up to {n}", lambda: self._bootstrapped(n, rng)

    def _bootstrapped(self, n: int, rng: Random) -> dspy.Module:
        return bootstrap_demos(self._program, self.rows, n, rng, self._trainset, self._metric)

    def _try(self, name: str, make: Any) -> None:
        self._selection.score(name, with_prompts(self._program, self._kept(name, make)))

    def _kept(self, name: str, make: Any) -> Prompts:
        return self._journal.once(name, lambda: prompts_of(make()))
