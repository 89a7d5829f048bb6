"""What several systems have in common: a search as a step, passages that pile up, a filter, how passages are read."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dspy

from raisf.lm.connect import adapter_for
from raisf.lm.lists import plain
from raisf.programs.calls import Run
from raisf.programs.questions import UNKNOWN, bare, fill, is_unknown, normal, refuses
from raisf.programs.trace import JudgedPassage, Judgement, Node, Step
from raisf.signatures.answers import GroundedAnswer, PassageAnswer
from raisf.utils.checks import check_switches
from raisf.utils.text import clean, counted

_ANSWERED = "Intermediate answer:"
_LABEL = re.compile(r"^\**follow[-_ ]?up(?: question)?:\**\s*", re.IGNORECASE)
_NO_MORE = ("", "none", "no")  # and whatever else declines to ask


def fill_in(node: Node, answers: Mapping[int, str]) -> bool:
    """Puts earlier answers in place of references ("#1"). Where one is "unknown" it ends the node and gives False."""
    if missing := [f"#{number}" for number, answer in answers.items() if answer == UNKNOWN]:
        node.end("reference", f"no answer for {' and '.join(missing)}")
        return False
    node.question = fill(node.question, {number: bare(answer) for number, answer in answers.items()})
    return True


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


def read_found(run: Run, node: Node, k: int, reader: dspy.Predict, how: str = "") -> Node:
    """Ends a node with what a reader answers from the top k passages of its question; `how` is told in the reason."""
    node.passages = search(run, node.question, k).passages
    reason = f"from {counted(len(node.passages), 'passage')}{how}"
    return run.settle(node, "passages", reason, reader, passages=texts(node.passages))


def texts(passages: Iterable[JudgedPassage]) -> list[str]:
    """The passages as they stand in a prompt."""
    return [passage.prompt_text for passage in passages]


def union(*sets: Sequence[JudgedPassage], limit: int | None = None) -> list[JudgedPassage]:
    """The passages of all sets in their order, each once, up to a limit."""
    found: dict[tuple[str, str], JudgedPassage] = {}
    for passages in sets:
        for passage in passages:
            found.setdefault((passage.pid, passage.text), passage)  # retrievers give parts their document's id, too
    return list(found.values())[:limit]


def generated(prediction: dspy.Prediction | None) -> str:
    """A reasoning and its answer as one text, to search with; "" where the LM's output could not be read."""
    if prediction is None:
        return ""
    answer = clean(prediction.answer)
    return clean(f"{prediction.reasoning or ''} {'' if is_unknown(answer) else answer}")


def reader(evidence: bool) -> dspy.Predict:
    """The call that answers from passages.

    Args:
        evidence: Whether the sentence that holds the answer is quoted before it. In no paper it is.

    Raises:
        InputError: It is neither True nor False.
    """
    check_switches(evidence=evidence)
    return dspy.Predict(GroundedAnswer if evidence else PassageAnswer)


def next_question(said: object, asked: Sequence[Node]) -> str:
    """A follow-up question; "" where the LM wants no more of them, or asks one again.

    Of a reply in the form in which it reads the facts ("Follow up: ... Intermediate answer: ...") it is the question.
    """
    text = plain(_LABEL.sub("", plain(clean(said))).partition(_ANSWERED)[0])
    ends = refuses(text) or normal(text) in {*_NO_MORE, *(normal(sub.question) for sub in asked)}
    return "" if ends else text


def as_facts(solved: Iterable[Node]) -> list[str]:
    """Questions with their answers, as the LM that composes them reads them."""
    return [f"{node.question} = {node.answer}" for node in solved]


def facts_of(predictor: dspy.Predict, node: Node) -> list[str]:
    """The sub-questions with their answers, as the LM that is asked for the next one reads them."""
    if not reads_instructions(predictor.lm):
        return as_facts(node.sub_questions)
    return [f"Follow up: {sub.question} {_ANSWERED} {sub.answer}" for sub in node.sub_questions]


def reads_instructions(lm: Any = None) -> bool:
    """Whether an LM, DSPy's if None, is told what to do; the pocket models read only the forms they were trained on."""
    return getattr(adapter_for(lm or dspy.settings.lm), "instructions", True)


def judge_by_score(passages: Sequence[JudgedPassage], threshold: float) -> None:
    """Tell passages apart by the retriever's score s alone.

    It counts as the probability s / (1 + s), of which only the order means something. A passage without a score,
    or with one below 0, has the probability 0.
    """
    for passage in passages:
        score = max(0.0, passage.score or 0.0)
        probability = score / (1 + score)
        verdict = "relevant" if probability >= threshold else "irrelevant"
        passage.judgement = Judgement(verdict=verdict, probability=probability)


def judge_listwise(
    run: Run, judge: dspy.Predict, question: str, passages: Sequence[JudgedPassage], **more: Any
) -> None:
    """Ask which passages are relevant, in one call; every verdict goes into its passage's record.

    The judge's last output is the list of their numbers, from 1; a number that no passage has is passed over beside
    others, and alone is unreadable. Where there are no passages there is no call. `more` are the
    judge's other inputs.
    """
    if not passages:
        return
    prediction = run.ask(judge, question=question, passages=texts(passages), **more)
    signature: Any = judge.signature
    listed = [*signature.output_fields][-1]
    for number, passage in enumerate(passages, 1):
        if prediction is None:
            passage.judgement = Judgement.unread()
        else:
            relevant = number in (prediction[listed] or [])
            passage.judgement = Judgement(verdict="relevant" if relevant else "irrelevant")
