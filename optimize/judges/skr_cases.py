"""What SKR-knn learns: which training questions retrieval helps with, and which it does not."""

import logging
from collections.abc import Sequence

import dspy

from raisf.evaluation.examples import check_answered, gold_answers
from raisf.evaluation.identity import describe, digest
from raisf.evaluation.metrics import accuracy
from raisf.evaluation.runner import check_ran
from raisf.optimize.judges.labels import check_labelled, missing_labels, scores
from raisf.programs.baselines.skr import SKR, Case
from raisf.utils.errors import InputError
from raisf.utils.journal import Journal

logger = logging.getLogger(__name__)


def skr_cases(
    program: SKR, trainset: Sequence[dspy.Example], *, threads: int = 8, journal: Journal | None = None
) -> list[Case]:
    """Asks each training question with and without retrieval; those that were right either way are the cases.

    Retrieval helped where only the answer with passages is right. A question says nothing and is no case whose answers
    are both wrong, or of which one could not be read, or was cut off. The journal keeps what each answer is worth; what
    has no value there is asked again.

    Raises:
        InputError: A question has no gold answer, or none was answered right, with passages or without.
        LMError: The LM failed on ten questions in a row, or on all; or most of its replies cannot be read.

    Source:
        Wang et al. 2023, arXiv 2310.05002, Eq. 4.
    """
    check_answered(trainset, "training")

    def right(example: dspy.Example, answer: str) -> float:
        return accuracy(answer, gold_answers(example), example.get("scoring"))

    asked, of = list(dict.fromkeys(example.question for example in trainset)), digest(describe(program))
    without, helped = (
        scores(answers, trainset, right, f"{way} {of}", threads, journal)
        for way, answers in zip(("without", "with"), program.compared(), strict=True)
    )
    labelled = [question for question in asked if question in without.of and question in helped.of]
    unreadable, failed = without.unreadable | helped.unreadable, without.failed | helped.failed
    error = helped.error or without.error
    if not labelled:
        check_ran(len(asked), len(failed), error, "every question that was asked with and without passages")
    check_labelled(len(asked), len(unreadable))
    if told := missing_labels(len(asked), len(unreadable), len(failed - unreadable), error):
        logger.warning(told)
    right_once = [question for question in labelled if helped.of[question] or without.of[question]]
    if not right_once:
        raise InputError(
            f"none of {len(labelled)} training questions was answered right, with passages or without: "
            "give more of them, some that the LM knows and some that the passages answer"
        )
    return [Case(question=question, helped=helped.of[question] > without.of[question]) for question in right_once]
