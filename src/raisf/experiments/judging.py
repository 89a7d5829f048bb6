"""One judge of a program alone, held to gold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from raisf.utils.errors import LMError

if TYPE_CHECKING:
    import dspy
    from rich.progress import Progress

    from raisf.evaluation.judges import JudgeReport
    from raisf.utils.journal import Journal


def judge_alone(
    program: "dspy.Module",
    judge: Any,
    examples: "Sequence[dspy.Example]",
    *,
    labels: Any = "model",
    threads: int = 8,
    journal: "Journal | None" = None,
    progress: "bool | Progress" = True,
) -> "tuple[JudgeReport, list[Any], int]":
    """A judge of the program, asked alone about all that gold says of the questions.

    With a journal, what was said before is not asked again.

    Returns:
        Its report, the rows (`Judged` or `Decomposed`) it is made of, and how many are missing because a call failed or
        a reply could not be read and labels nothing.

    Raises:
        InputError: The program has no such judge, or the questions no such gold.
        LMError: The LM failed on ten rows in a row, or on all there are.
    """
    from raisf.optimize.judges.judge_data import steps
    from raisf.optimize.judges.judgements import decomposition_report, decompositions_of, judgements_of

    asking: dict[str, Any] = {"threads": threads, "journal": journal, "progress": progress}
    if judge == "decomposition":
        rows, errors = decompositions_of(program, examples, **asking)
        report = decomposition_report(rows)
    else:
        judged = judgements_of(program, judge, examples, labels=labels, **asking)
        rows, errors, report = judged.rows, judged.errors, judged.report()
        if judge == "know":  # also those that the LM was to answer, to tell whether it knows them, and did not
            errors = len({step.question for example in examples for step in steps(example)}) - len(rows)
    if not rows:
        raise LMError(f"the LM failed on all {errors} calls of the {judge} judge: see that it answers, and try again")
    return report, rows, errors
