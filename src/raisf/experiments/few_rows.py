"""What is learnt from when rows are few: which questions, and which of their rows."""

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from raisf.experiments.settings import PREDICTORS

if TYPE_CHECKING:
    import dspy

    from raisf.optimize.judges.judge_rows import JudgeRows


def questions_for(rows: int, trainset: "Sequence[dspy.Example]", seed: int) -> "list[dspy.Example]":
    """The training questions that so many rows a judge come from: twice as many, as `raisf compile --rows` takes.

    More rows take the same questions and others: so sizes are compared on what they share.

    Args:
        rows: A judge.
        trainset: All there are.
        seed: Of their order.
    """
    from raisf.optimize.optimizers.training_rows import QUESTIONS_A_ROW

    return random.Random(seed).sample(list(trainset), len(trainset))[: QUESTIONS_A_ROW * rows]


def questions_of_skr(rows: int | None, trainset: "Sequence[dspy.Example]", seed: int) -> "Sequence[dspy.Example]":
    """The training questions that SKR-knn asks, each twice: as many as so many rows a judge come from.

    Args:
        rows: A judge; None: as many as `raisf compile` takes.
        trainset: All there are; they are taken as they are where they are no more than that.
        seed: Of the draw.
    """
    from raisf.optimize.optimizers.training_rows import QUESTIONS_A_ROW, JudgeTraining

    rows = rows or JudgeTraining.rows
    return trainset if len(trainset) <= QUESTIONS_A_ROW * rows else questions_for(rows, trainset, seed)


def pool(
    program: "dspy.Module",
    trainset: "Sequence[dspy.Example]",
    rows: int,
    seed: int,
    threads: int,
) -> "JudgeRows":
    """As many of gold's rows a judge, for demonstrations to be drawn from; else those of 200 questions would be.

    Args:
        program: RA-ISF, with its LM and its retriever.
        trainset: The questions that they are of.
        rows: A judge, as evenly over the verdicts as can be had.
        seed: Of the draw.
        threads: Questions asked at a time.

    Returns:
        The rows; their report has the `seconds` that they took.
    """
    from raisf.optimize.demonstrations import collect_rows
    from raisf.optimize.judges.judge_rows import JudgeRows
    from raisf.optimize.judges.weighed import draw_evenly

    start, rng = time.perf_counter(), random.Random(seed)
    found = collect_rows(program, trainset, labels="model", threads=threads, strict=False).of
    of = {judge: draw_evenly(found.get(name, []), "verdict", rows, rng) for judge, name in PREDICTORS.items()}
    return JudgeRows(of, {"by": "gold", "seconds": round(time.perf_counter() - start, 2)})
