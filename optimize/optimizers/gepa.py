"""GEPA (Agrawal et al. 2025, arXiv 2507.19457): instructions rewritten by an LM that reads what went wrong.

The search and the reflection prompt are the `gepa` package's and DSPy's. Between them stands an adapter of our own, not
`dspy.GEPA`'s: that one reflects on any one of a predictor's calls in a run, mostly a right one where a node makes five
judgements; it tells predictors apart by their signatures; and it counts a dead endpoint as wrong answers.
"""

import contextlib
import io
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import dspy
from dspy.teleprompt.gepa import InstructionProposer
from dspy.utils.exceptions import AdapterParseError
from pydantic import ValidationError

from raisf.evaluation.identity import describe_lm, digest
from raisf.evaluation.metrics import accuracy, exact_match
from raisf.lm.failures import explain
from raisf.optimize.judges.feedback import Feedback
from raisf.optimize.optimizers.base import Examples
from raisf.optimize.optimizers.few_shot import Draws, Prompting, reflection_lm
from raisf.optimize.optimizers.selection import Selection, answer_accuracy
from raisf.optimize.prompts import instructed, prompts_of, with_instructions, with_prompts, writing_adapter
from raisf.optimize.runs import as_share, given_by, plain, results, with_steps
from raisf.utils.errors import InputError, LMError

logger = logging.getLogger(__name__)

# Questions a reflection: the package's default; more make the prompt long, fewer show chance.
MINIBATCH = 3
# Proposals in a row that cannot be read, after which the reflection LM is plainly too weak for the task.
MAX_UNREADABLE = 10


@dataclass(kw_only=True, eq=False)
class GEPA(Prompting):
    """Begins with the better of no and labeled demonstrations; then an LM rewrites instructions by what was wrong.

    A judge is told what gold says of its very call; the other predictors how the run ended.

    Args:
        trials: What the search may spend, in runs over the validation set.
        reflection_lm: What writes instructions, or its spec; None: the LM that the student's first predictor asks. A
            strong one pays.
        demos: See `raisf.optimize.optimizers.few_shot.Prompting`, also for the others.
    """

    trials: int = 20
    reflection_lm: dspy.LM | str | None = None

    name = "gepa"
    package = "gepa"
    least: ClassVar[dict[str, int]] = {"trials": 1}

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        settings = super()._settings(student, trainset, valset)
        if not instructed(student):
            raise InputError(
                "strategy 'gepa' rewrites instructions, and the format in which this program's LMs are spoken to has "
                "none: take --adapter compact or chat, or another strategy"
            )
        return [*settings, describe_lm(reflection_lm(self.reflection_lm, student))]

    def _search(self, draws: Draws, selection: Selection) -> None:
        student = draws.task.student
        prompts = draws.kept("labeled", lambda: draws.labeled(self.demos, Random(self.seed)))
        selection.score("labeled", with_prompts(student, prompts))
        for name, candidate in self._evolve(selection.best or student, draws, selection):
            selection.score(name, candidate)

    def _evolve(self, program: dspy.Module, draws: Draws, selection: Selection) -> Iterator[tuple[str, dspy.Module]]:
        """The programs that GEPA finds, each better than its parent on some training questions.

        Raises:
            LMError: An LM failed on ten questions in a row, or no proposal can be read.
        """
        from gepa.api import optimize

        student, trainset = draws.task.student, draws.sample
        score = accuracy if self.metric is answer_accuracy else exact_match
        feedback = Feedback(student, trainset, draws.rows, score)
        lm = reflection_lm(self.reflection_lm, student)
        budget = self.trials * len(selection.valset)
        adapter: Any = _Adapter(program, draws, selection, feedback, lm, budget)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints on its own
            result = optimize(
                seed_candidate={name: prompts_of(program)[name]["instructions"] for name in instructed(program)},
                trainset=list(trainset),
                valset=list(selection.valset),
                adapter=adapter,
                module_selector=adapter.blamed,
                reflection_minibatch_size=min(MINIBATCH, len(trainset)),
                use_merge=True,
                max_metric_calls=budget,
                stop_callbacks=lambda gepa_state: adapter.error is not None,
                logger=_Silent(),
                track_best_outputs=False,
                seed=self.seed,
            )
        if adapter.error is not None:
            raise adapter.error
        if not adapter.own:
            logger.warning(
                "no run asked a predictor of this program, or only copies of them: nothing can be learnt from the runs "
                "(dspy.BestOfN and dspy.Refine ask a copy of what they hold: compile that)"
            )
        for number, instructions in enumerate(result.candidates):
            yield f"gepa {number}", with_instructions(program, instructions)


class _Adapter:
    """Runs candidates, says which predictor was wrong, and has it rewritten."""

    def __init__(
        self,
        program: dspy.Module,
        draws: Draws,
        selection: Selection,
        feedback: Feedback,
        reflection_lm: dspy.LM,
        budget: int,
    ):
        self.error: Exception | None = None
        self.own = False  # whether any run asked predictors of the program's own
        self._program, self._draws, self._selection = program, draws, selection
        self._feedback, self._lm = feedback, reflection_lm
        self._metric, self._threads, self._journal = draws.options.metric, draws.options.threads, draws.task.journal
        self._places = {id(example): place for place, example in enumerate(draws.sample)}
        self._blamed: Counter[str] = Counter()
        self._proposals = self._unreadable = 0
        bar = selection.bar
        task = bar.add_task("gepa", total=budget, score="")
        self._show = lambda score: bar.update(task, advance=1, score=score)

    def evaluate(self, batch: list[dspy.Example], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        """The metric on some questions; of training questions also a record a step."""
        from gepa.core.adapter import EvaluationBatch

        program = with_instructions(self._program, candidate)
        # The search wants traces of both sets, but reflects on those of the training set alone.
        if not all(id(example) in self._places for example in batch):
            values = self._selection.values(program, batch, self._show)
            return EvaluationBatch([None] * len(batch), values, trajectories=[[] for _ in batch])
        runs = self._runs(program, batch)
        for _ in batch:
            self._show("")
        steps = [run["steps"] for run in runs]
        return EvaluationBatch([None] * len(batch), [run["score"] for run in runs], trajectories=steps)

    def blamed(
        self, state: Any, steps: list[list[dict[str, Any]]], scores: Any, number: Any, candidate: dict[str, str]
    ) -> list[str]:
        """The predictor to rewrite: of the candidate's that were wrong the one rewritten least, then wrong most."""
        names = (step["component"] for run in steps for step in run if step["wrong"])
        wrong = Counter(name for name in names if name in candidate)
        if not wrong:
            return []
        name = min(wrong, key=lambda name: (self._blamed[name], -wrong[name], name))
        self._blamed[name] += 1
        return [name]

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Of each run the first wrong call of the predictor, and beside it a right one: what to mend, what to keep."""
        found: dict[str, list[dict[str, Any]]] = {}
        for name in components_to_update:
            for run in eval_batch.trajectories or []:
                own = [step for step in run if step["component"] == name]
                for wrong in (True, False):
                    found.setdefault(name, []).extend([one["record"] for one in own if one["wrong"] is wrong][:1])
        return found

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """New instructions; none where the reflection LM's output cannot be read."""
        if self.error is not None or not any(reflective_dataset.values()):
            return {}
        self._proposals += 1
        asked = digest([candidate, reflective_dataset])
        try:
            made = self._journal.once(
                f"proposal {self._proposals} {asked}",
                lambda: self._propose(candidate, reflective_dataset, components_to_update),
            )
        except Exception as error:
            self.error = error  # raised here, it would be swallowed, and the LM asked once more
            return {}
        self._unreadable = 0 if made else self._unreadable + 1
        if self._unreadable >= MAX_UNREADABLE:
            self.error = LMError(
                f"{self._lm.model} wrote no instruction that can be read, {MAX_UNREADABLE} times in a row: give a "
                "stronger LM to write them (--reflection-lm)"
            )
        return made

    def _propose(self, candidate: dict[str, str], found: Any, names: list[str]) -> dict[str, str]:
        proposer = InstructionProposer(adapter=writing_adapter(self._lm))
        try:
            with dspy.context(lm=self._lm):
                return proposer(candidate, found, names)
        except (AdapterParseError, ValidationError, ValueError):
            return {}
        except Exception as error:
            raise explain(error, self._lm) from error

    def _runs(self, program: dspy.Module, batch: list[dspy.Example]) -> list[dict[str, Any]]:
        """Each question's score and the steps to it, by the predictors that made them."""
        made = digest(prompts_of(program))
        runs = results(
            with_steps(program),
            batch,
            self._run,
            threads=self._threads,
            journal=self._journal,
            key=lambda example: f"run {made}/{self._places[id(example)]}",
            patience=self._selection.patience,
        )
        self._draws.failed += runs.count(None)
        self.own |= any(run["steps"] for run in runs if run is not None)
        return [{"score": 0.0, "steps": []} if run is None else run for run in runs]

    def _run(self, example: dspy.Example, run: dspy.Prediction) -> dict[str, Any]:
        ended = run.prediction if run.prediction is not None else dspy.Prediction(answer="")
        said = 0.0 if run.prediction is None else given_by(self._metric, example, ended)
        score, advice = as_share(said, self._metric), getattr(said, "feedback", None)
        steps = []
        for name, (predictor, inputs, outputs) in zip(run.names, run.steps, strict=True):
            if name is not None:
                remark = self._feedback.on(name, predictor, inputs, outputs, example, ended, score)
                gave = {key: outputs.get(key) for key in predictor.signature.output_fields}
                told = " ".join(map(str, filter(None, (remark.text, advice))))
                record = {"Inputs": plain(inputs), "Generated Outputs": plain(gave), "Feedback": told}
                wrong = score < 1 if remark.right is None else not remark.right
                steps.append({"component": name, "record": record, "wrong": wrong})
        return {"score": score, "steps": steps}


class _Silent:
    def log(self, message: str) -> None:
        """Says nothing: compiling has a bar of its own."""
