"""What SKR-knn learns: which training questions retrieval helps with, and which it does not."""

import logging
from collections.abc import Sequence
from typing import Any

import dspy

from raisf.evaluation.examples import check_answered, gold_answers
from raisf.evaluation.identity import describe, digest
from raisf.evaluation.metrics import accuracy
from raisf.evaluation.outcome import Outcome
from raisf.evaluation.runner import ask_all, check_ran
from raisf.optimize.judges.labels import check_labelled, missing_labels
from raisf.programs.baselines.skr import SKR, Case
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal

logger = logging.getLogger(__name__)


def skr_cases(
    program: SKR, trainset: Sequence[dspy.Example], *, threads: int = 8, journal: Journal | None = None
) -> list[Case]:
    """Asks each training question with and without retrieval; those where it made a difference are the cases.

    A question of which an answer could not be read, or was cut off, says nothing and is no case.

    Args:
        program: With its LMs and its retriever; stays as it is.
        trainset: With answers; a question whose two answers are both right or both wrong says nothing.
        threads: Questions asked at a time.
        journal: Keeps the answers' values, and has those of an earlier call; what has none is asked again.

    Raises:
        InputError: A question has no gold answer, or retrieval made no difference anywhere.
        LMError: The LM failed on ten questions in a row, or on all; or most of its replies cannot be read.
    """
    check_answered(trainset, "training")
    without, with_passages = program.compared()
    ways: dict[str, Any] = {"without": without, "with": with_passages}
    of, right = digest(describe(program)), dict[str, dict[str, float]]()
    unreadable, failed = set[str](), dict[str, Exception | None]()
    asked = list(dict.fromkeys(example.question for example in trainset))
    for way, answers in ways.items():
        kind = f"{way} {of}"
        scores = right[way] = {} if journal is None else journal.kept(kind, asked)

        def keep(outcome: Outcome, kind: str = kind, scores: dict[str, float] = scores) -> None:
            question = outcome.example.question
            if outcome.prediction is None:
                failed[question] = outcome.error
            elif outcome.prediction.trace.unreadable:
                unreadable.add(question)
            else:
                scores[question] = accuracy(
                    outcome.prediction.answer, gold_answers(outcome.example), outcome.example.get("scoring")
                )
                if journal is not None:
                    journal.add(f"{kind} {question}", scores[question])

        ask_all(answers, [example for example in trainset if example.question not in scores], keep, threads=threads)
    labelled = [q for q in asked if q in right["with"] and q in right["without"]]
    error = next(reversed(failed.values()), None)
    if not labelled:
        check_ran(len(asked), len(failed), error, "every question that was asked with and without passages")
    check_labelled(len(asked), len(unreadable))
    if told := missing_labels(len(asked), len(unreadable), len(failed.keys() - unreadable), error):
        logger.warning(told)
    differ = [q for q in labelled if right["with"][q] != right["without"][q]]
    if not differ:
        raise InputError(
            f"retrieval made no difference on any of {len(labelled)} training questions: "
            "give more of them, some that the LM knows and some that the passages answer"
        )
    return [Case(question=q, helped=right["with"][q] > right["without"][q]) for q in differ]
