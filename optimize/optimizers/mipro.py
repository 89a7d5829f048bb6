"""MIPROv2 (Opsahl-Ong et al. 2024, arXiv 2406.11695): instructions and demonstrations chosen together, by trials.

The proposer and the search are DSPy's. What it gets wrong in a program that judges and recurses is given to it instead:
demonstrations with as many of each verdict, an evaluation that knows a dead endpoint from a wrong answer and keeps each
question's value, and LMs that are not reset.
"""

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Sequence
from typing import Any

import dspy
from dspy.propose import GroundedProposer
from dspy.propose.grounded_proposer import TIPS
from dspy.utils.exceptions import AdapterParseError

from raisf.evaluation.identity import gold_answers
from raisf.lm.connect import explain
from raisf.optimize.journal import Journal
from raisf.optimize.optimizers.selection import Metric, Selection
from raisf.optimize.prompts import Prompts, instructed, prompts_of, with_prompts, writing_adapter
from raisf.utils.errors import RaisfError


def search(
    program: dspy.Module,
    trainset: Sequence[dspy.Example],
    selection: Selection,
    shown: Sequence[Prompts],
    metric: Metric,
    *,
    prompt_lm: dspy.LM,
    instructions: int,
    trials: int,
    journal: Journal,
    seed: int,
) -> dict[str, list[str]]:
    """Tries combinations of instructions and demonstrations, predictor by predictor; the selection keeps the scores.

    Args:
        program: To begin with; its prompts are the first choice of each predictor.
        trainset: What the proposer is shown.
        selection: Scores each trial on the whole validation set.
        shown: Prompts whose demonstrations are the other choices.
        metric: As the selection's.
        prompt_lm: Writes instructions.
        instructions: How many each predictor may choose from, its own among them.
        trials: How many combinations are tried; each is a run over the validation set.
        journal: Keeps what was proposed.
        seed: Of the proposals and the search.

    Returns:
        By predictor's name, the instructions it could choose from; of those that no instruction reaches, its own.

    Raises:
        LMError: An LM failed on ten questions in a row, or while it wrote instructions.
    """
    optimizer = _MIPRO(
        program, selection, [prompts_of(program), *shown], metric, prompt_lm, instructions, journal, seed
    )
    before = logging.getLogger("dspy").level
    logging.getLogger("dspy").setLevel(logging.ERROR)  # it logs every trial
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            optimizer.compile(
                with_prompts(program, prompts_of(program)),
                trainset=list(trainset),
                valset=list(selection.valset),
                num_trials=trials,
                minibatch=False,
            )
    except _Ended as ended:
        raise ended.error from ended.error.__cause__
    finally:
        logging.getLogger("dspy").setLevel(before)
    return optimizer.proposed


class _Ended(BaseException):
    """Carries an error past DSPy's evaluation of a candidate, which would count any Exception as a score of 0."""

    def __init__(self, error: RaisfError):
        self.error = error


class _MIPRO(dspy.MIPROv2):
    """DSPy's, with demonstrations and an evaluation of ours, and a proposer that survives what it cannot read."""

    def __init__(
        self,
        program: dspy.Module,
        selection: Selection,
        choices: Sequence[Prompts],
        metric: Metric,
        prompt_lm: dspy.LM,
        instructions: int,
        journal: Journal,
        seed: int,
    ):
        lms = [predictor.lm for _, predictor in program.named_predictors()]
        task_lm = dspy.settings.lm or next(lm for lm in lms if lm is not None)
        super().__init__(
            metric,
            prompt_model=prompt_lm,
            task_model=task_lm,
            auto=None,
            num_candidates=instructions,
            seed=seed,
            track_stats=False,
        )
        self.proposed: dict[str, list[str]] = {}
        self._program, self._selection, self._choices, self._journal = program, selection, choices, journal
        self._lm, self._n, self._trials, self._first_seed = prompt_lm, instructions, 0, seed

    def _bootstrap_fewshot_examples(self, program: Any, *_: Any, **__: Any) -> Any:
        return {
            place: [[dspy.Example(**demo) for demo in prompts[name]["demos"]] for prompts in self._choices]
            for place, (name, _) in enumerate(program.named_predictors())
        }

    def _propose_instructions(
        self, program: Any, trainset: list[dspy.Example], demo_candidates: Any, *_: Any, **__: Any
    ) -> dict[int, list[str]]:
        names = [name for name, _ in program.named_predictors()]
        own = {name: prompts["instructions"] for name, prompts in prompts_of(program).items()}
        wanted = [name for name in names if name in instructed(self._program)] if self._n > 1 else []
        written: dict[str, list[str]] = {}
        if wanted:
            written = self._journal.once(
                "instructions", lambda: self._write(program, wanted, trainset, demo_candidates)
            )
        # As the file gives them back, so that equal ones are one choice.
        self.proposed = {name: list(dict.fromkeys([own[name], *written.get(name, [])])) for name in names}
        return {place: self.proposed[name] for place, name in enumerate(names)}

    def _write(
        self, program: Any, wanted: Sequence[str], trainset: list[dspy.Example], demo_candidates: Any
    ) -> dict[str, list[str]]:
        """By predictor's name, what the prompt LM proposes; what of it cannot be read is left out."""
        rng = random.Random(self._first_seed)
        # The proposer shows a demonstration only if it is marked as one of a run.
        marked = {
            place: [[dspy.Example(augmented=True, **demo) for demo in demos] for demos in sets]
            for place, sets in demo_candidates.items()
        }
        rows = [_bare(example) for example in trainset]
        written: dict[str, list[str]] = {}
        with dspy.context(adapter=writing_adapter(self._lm)):
            proposer = GroundedProposer(self._lm, program, rows, use_instruct_history=False, rng=rng)
            for place, (name, predictor) in enumerate(program.named_predictors()):
                for number in range(1, self._n if name in wanted else 1):
                    tip = TIPS[rng.choice(list(TIPS))]
                    proposer.use_tip = bool(tip)
                    try:
                        text = proposer.propose_instruction_for_predictor(
                            program, predictor, place, marked, number % len(marked[place]), {}, tip
                        )
                    except AdapterParseError:
                        continue
                    except Exception as error:
                        explained = explain(error, self._lm)
                        raise _Ended(explained) if isinstance(explained, RaisfError) else explained from error
                    written.setdefault(name, []).append(text)
        return written

    def _optimize_prompt_parameters(self, *given: Any, **options: Any) -> Any:
        program, instructions, demos, _, *rest = given  # the fourth is its evaluation
        arguments: list[Any] = [program, instructions, demos, self._evaluate, *rest]
        return super()._optimize_prompt_parameters(*arguments, **options)

    def _evaluate(self, candidate: Any, **_: Any) -> dspy.Prediction:
        """Stands for `dspy.Evaluate`."""
        name = f"mipro {self._trials}"
        self._trials += 1
        try:
            score = self._selection.score(name, with_prompts(self._program, prompts_of(candidate)))
        except RaisfError as error:
            raise _Ended(error) from error
        return dspy.Prediction(score=100 * score.value, results=[])


def _bare(example: dspy.Example) -> dspy.Example:
    """Question and answer alone: ids and gold passages would only fill the proposer's prompt."""
    if not isinstance(example.get("question"), str):
        return example
    gold = gold_answers(example)
    return dspy.Example(question=example.question, **({"answer": gold[0]} if gold else {})).with_inputs("question")
