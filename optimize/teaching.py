"""A teacher's rows for an optimizer: as many as it will learn from."""

from collections.abc import Sequence

import dspy

from raisf.optimize.demonstrations import JUDGE_QUESTIONS
from raisf.optimize.judges.judge_rows import JudgeRows, teach
from raisf.optimize.optimizers.few_shot import Prompting
from raisf.optimize.optimizers.training_rows import MAX_VALIDATION, JudgeTraining


def teach_for(
    optimizer: JudgeTraining | Prompting,
    student: dspy.Module,
    teacher: dspy.LM,
    trainset: Sequence[dspy.Example],
    valset: Sequence[dspy.Example],
) -> JudgeRows:
    """What a teacher labels for an optimizer; see `raisf.optimize.judges.judge_rows.teach`.

    For weights and probes these are `rows` training questions, some 1,000 in the paper, and validation questions
    besides; for prompts the questions that demonstrations are drawn from.
    """
    weights = isinstance(optimizer, JudgeTraining)
    return teach(
        student,
        teacher,
        trainset,
        valset,
        questions=optimizer.rows if weights else JUDGE_QUESTIONS,
        validation=MAX_VALIDATION if weights else 0,
        labels=optimizer.labels,
        seed=optimizer.seed,
        threads=optimizer.threads,
        work=optimizer.work,
        progress=optimizer.progress,
    )
