"""MIPROv2 (Opsahl-Ong et al. 2024, arXiv 2406.11695): instructions and demonstrations chosen together, by trials.

The proposer is DSPy's, the search is Optuna's. The rest of `dspy.MIPROv2` is done here, because a program that judges
and recurses wants it otherwise: demonstrations with as many of each verdict, an evaluation that knows a dead endpoint
from a wrong answer and keeps each question's value, and LMs that are not reset.
"""

import contextlib
import io
import logging
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import dspy
from dspy.propose import GroundedProposer
from dspy.propose.grounded_proposer import TIPS
from dspy.utils.exceptions import AdapterParseError

from raisf.evaluation.examples import gold_answers
from raisf.evaluation.identity import describe_lm
from raisf.lm.failures import explain
from raisf.optimize.optimizers.base import Examples
from raisf.optimize.optimizers.few_shot import Draws, Prompting, reflection_lm
from raisf.optimize.optimizers.selection import Selection
from raisf.optimize.prompts import Prompts, instructed, prompts_of, with_prompts, writing_adapter


@dataclass(kw_only=True, eq=False)
class MIPRO(Prompting):
    """Chooses an instruction and a draw of demonstrations for each predictor, together, by a tree-structured search.

    Args:
        candidates: The draws, and the instructions, that a predictor chooses from; its own are among the instructions.
        trials: Combinations tried, each of which costs a run over the validation set.
        reflection_lm: What writes instructions, or its spec; None: the LM that the student's first predictor asks. A
            strong one pays.
        demos: See `raisf.optimize.optimizers.few_shot.Prompting`, also for the others.
    """

    candidates: int = 6
    trials: int = 20
    reflection_lm: dspy.LM | str | None = None

    name = "mipro"
    package = "optuna"
    least: ClassVar[dict[str, int]] = {"candidates": 1, "trials": 1}

    def _settings(self, student: dspy.Module, trainset: Examples, valset: Examples) -> Any:
        return [*super()._settings(student, trainset, valset), describe_lm(reflection_lm(self.reflection_lm, student))]

    def _search(self, draws: Draws, selection: Selection) -> None:
        student, journal = draws.task.student, draws.task.journal
        shown = [draws.kept(*draws.numbered(number)) for number in range(self.candidates)]
        choices = [prompts_of(student), *shown]
        own = {name: prompts["instructions"] for name, prompts in choices[0].items()}
        reached = instructed(student)
        wanted = [name for name in own if name in reached] if self.candidates > 1 else []
        written: dict[str, list[str]] = {}
        if wanted:
            lm = reflection_lm(self.reflection_lm, student)
            written = journal.once("instructions", lambda: self._write(student, wanted, draws.sample, choices, lm))
        # As the file gives them back, so that equal ones are one choice.
        texts = {name: list(dict.fromkeys([own[name], *written.get(name, [])])) for name in own}
        draws.proposed = {name: len(found) - 1 for name, found in texts.items()}
        search(student, selection, texts, choices, trials=self.trials, seed=self.seed)

    def _write(
        self, program: Any, wanted: Sequence[str], trainset: Examples, choices: Sequence[Prompts], lm: Any
    ) -> dict[str, list[str]]:
        """By predictor's name, what the reflection LM proposes; what of it cannot be read is left out."""
        rng = random.Random(self.seed)
        copy = with_prompts(program, prompts_of(program))
        # The proposer shows a demonstration only if it is marked as one of a run.
        marked = {
            place: [[dspy.Example(demo, augmented=True) for demo in prompts[name]["demos"]] for prompts in choices]
            for place, (name, _) in enumerate(copy.named_predictors())
        }
        rows = [_bare(example) for example in trainset]
        written: dict[str, list[str]] = {}
        with _silent(), dspy.context(adapter=writing_adapter(lm)):
            proposer = GroundedProposer(lm, copy, rows, use_instruct_history=False, rng=rng)
            for place, (name, predictor) in enumerate(copy.named_predictors()):
                for number in range(1, self.candidates if name in wanted else 1):
                    tip = TIPS[rng.choice(list(TIPS))]
                    proposer.use_tip = bool(tip)
                    try:
                        text = proposer.propose_instruction_for_predictor(
                            copy, predictor, place, marked, number % len(marked[place]), {}, tip
                        )
                    except AdapterParseError:
                        continue
                    except Exception as error:
                        raise explain(error, lm) from error
                    written.setdefault(name, []).append(text)
        return written


def search(
    student: dspy.Module,
    selection: Selection,
    instructions: dict[str, list[str]],
    choices: Sequence[Prompts],
    *,
    trials: int,
    seed: int,
) -> None:
    """Tries combinations of instructions and demonstrations, predictor by predictor; the selection keeps the scores.

    The search is deterministic: a compilation that goes on makes the same trials, with values of the journal. By
    predictor's name there are instructions to choose from; the demonstrations are those of `choices`. The student's own
    prompts are the first of both.

    Raises:
        LMError: An LM failed on ten questions in a row.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = [name for name, _ in student.named_predictors()]
    space: dict[str, Any] = {}
    for place, name in enumerate(names):
        space[f"{place} instruction"] = optuna.distributions.CategoricalDistribution(range(len(instructions[name])))
        space[f"{place} demos"] = optuna.distributions.CategoricalDistribution(range(len(choices)))

    def score(number: int, picked: dict[str, int]) -> float:
        prompts = {
            name: {
                "instructions": instructions[name][picked[f"{place} instruction"]],
                "demos": choices[picked[f"{place} demos"]][name]["demos"],
            }
            for place, name in enumerate(names)
        }
        return selection.score(f"mipro {number}", with_prompts(student, prompts)).value

    with warnings.catch_warnings(action="ignore"):  # multivariate sampling is called experimental
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    first = dict.fromkeys(space, 0)
    made = optuna.trial.create_trial(params=first, distributions=space, value=score(0, first))
    study.add_trial(made)
    for number in range(1, trials + 1):
        trial = study.ask(space)
        study.tell(trial, score(number, trial.params))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """DSPy's proposer prints and logs what it writes, across our bar."""
    log = logging.getLogger("dspy")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        log.setLevel(before)


def _bare(example: dspy.Example) -> dspy.Example:
    """Question and answer alone: ids and gold passages would only fill the proposer's prompt."""
    if not isinstance(example.get("question"), str):
        return example
    gold = gold_answers(example)
    return dspy.Example(question=example.question, **({"answer": gold[0]} if gold else {})).with_inputs("question")
