"""Rows for the judge of `know="truth"`: the draft of an answer that the judge is shown, and whether it is true."""

from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from raisf.evaluation.identity import describe, digest
from raisf.optimize.judges.judge_data import VERDICTS, Step
from raisf.optimize.judges.labels import from_memory
from raisf.optimize.runs import results
from raisf.programs.calls import Run
from raisf.programs.questions import is_unknown
from raisf.utils.journal import Journal
from raisf.utils.text import clean


def with_drafts(
    rows: Sequence[dspy.Example],
    answerer: Any,
    threads: int,
    journal: Journal | None = None,
    gold: Mapping[str, Step] | None = None,
) -> list[dspy.Example]:
    """Rows of self-knowledge with the LM's own answers from memory.

    A row whose answer is "unknown", cannot be read or could not be had is left out: the judge never meets it. The
    answerer is the program's predictor that answers from memory; DSPy's cache has what labelling asked it before. By
    `gold`, the questions' steps, each draft is told to be true or not, as what is known may yet be answered wrongly;
    without it the rows' verdicts stay.

    Raises:
        LMError: The LM failed on ten questions in a row.
    """
    kind = f"draft of {digest(describe(from_memory(answerer)))}"
    asked = {row.question: dspy.Example(question=row.question) for row in rows}

    def ask(question: str) -> dspy.Prediction:
        outputs = Run().ask(answerer, question=question)
        return dspy.Prediction(answer=None if outputs is None else clean(outputs.answer))

    found = results(
        ask,
        list(asked.values()),
        lambda example, prediction: prediction.answer,
        threads=threads,
        journal=journal,
        key=lambda example: f"{kind} {example.question}",
    )
    drafts = dict(zip(asked, found, strict=True))
    drafted = []
    for row in rows:
        draft = drafts[row.question] or ""
        if is_unknown(draft):
            continue
        verdict = row.verdict if gold is None else VERDICTS["know"][not gold[row.question].accepts(draft)]
        drafted.append(row.copy(answer=draft, verdict=verdict).with_inputs("question", "answer"))
    return drafted
