"""What the systems that search more than once have in common: a search as a step, passages that pile up, a filter."""

from collections.abc import Iterable, Sequence
from typing import Any

import dspy

from raisf.programs.calls import Run
from raisf.programs.questions import clean, is_unknown
from raisf.programs.trace import JudgedPassage, Judgement, Step


def search(run: Run, query: str, k: int, generation: str = "") -> Step:
    """The top k passages of a query, as a step for the node's record.

    Args:
        run: The question's.
        query: What is searched for.
        k: Passages at most.
        generation: What the LM wrote that led to the query.
    """
    found = run.found(run.search(query, k))
    return Step(generation=generation, query=query, passages=[JudgedPassage.of(passage) for passage in found])


def texts(passages: Iterable[JudgedPassage]) -> list[str]:
    """The passages as they stand in a prompt."""
    return [passage.prompt_text for passage in passages]


def union(*sets: Sequence[JudgedPassage], limit: int | None = None) -> list[JudgedPassage]:
    """The passages of all sets in their order, each once, up to a limit."""
    by_pid: dict[str, JudgedPassage] = {}
    for passages in sets:
        for passage in passages:
            by_pid.setdefault(passage.pid, passage)
    return list(by_pid.values())[:limit]


def generated(prediction: dspy.Prediction | None) -> str:
    """A reasoning and its answer as one text, to search with; "" where the LM's output could not be read."""
    if prediction is None:
        return ""
    answer = clean(prediction.answer)
    return clean(f"{prediction.reasoning or ''} {'' if is_unknown(answer) else answer}")


def judge_listwise(run: Run, judge: dspy.Predict, question: str, passages: Sequence[JudgedPassage]) -> None:
    """Ask which passages are relevant, in one call; every verdict goes into its passage's record.

    The judge's one output is the list of their numbers, from 1; a number that no passage has is passed over beside
    others, and alone is unreadable. Where there are no passages there is no call.
    """
    if not passages:
        return
    prediction = run.ask(judge, question=question, passages=texts(passages))
    signature: Any = judge.signature
    (listed,) = signature.output_fields
    for number, passage in enumerate(passages, 1):
        if prediction is None:
            passage.judgement = Judgement.unread()
        else:
            relevant = number in (prediction[listed] or [])
            passage.judgement = Judgement(verdict="relevant" if relevant else "irrelevant")
