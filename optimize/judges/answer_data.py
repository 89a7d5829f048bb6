"""What the answerers should have said, worked out from training questions: their answers, passages and decompositions.

The paper trains the judges alone (Liu et al. 2024, appendix A). These rows are for who trains the whole program.
"""

import random
from collections.abc import Sequence
from typing import Any

import dspy

from raisf.evaluation.examples import gold_answers
from raisf.optimize.judges.judge_data import Step, checked, gold_among, searched_steps
from raisf.optimize.judges.predictor_roles import role_of
from raisf.programs.citations import holding_sentence
from raisf.programs.questions import UNKNOWN, YES_NO, filled, holds, normal
from raisf.programs.trace import JudgedPassage
from raisf.retrieval.adapting import searched
from raisf.retrieval.passage import Passage, Retriever
from raisf.signatures.answers import ComposedAnswer, DirectAnswer, GroundedAnswer, PassageAnswer
from raisf.utils.sampling import up_to

READERS = (GroundedAnswer, PassageAnswer)
ANSWERERS = (*READERS, DirectAnswer, ComposedAnswer)
MOST_OTHERS = 2
"""Passages beside the gold ones in a reader's row: what a relevance judge lets through by mistake."""
UNANSWERABLE = 0.2
"""The share of rows that teach to say "unknown", from passages, or facts, without the answer."""
SHARE = 2 / 3
"""Of a gold sentence's words that must stand in the passages shown: it may have a name where they say "she"."""


def answer_rows(
    predictor: Any,
    owner: Any,
    trainset: Sequence[dspy.Example],
    known: Sequence[str] | None,
    rng: random.Random,
) -> list[dspy.Example]:
    """Rows for one answerer, told by its signature's fields; none where gold says nothing of it.

    Readers want gold passages, composition wants decompositions. Answers from memory are learnt of the questions that
    are `known`; of all where that is None, as there is no judge of it.

    Raises:
        InputError: No questions, or one without a gold answer.
    """
    role, retriever = role_of(predictor), searched(owner)
    if role in READERS and retriever is not None:
        return reading_rows(trainset, retriever, getattr(owner, "k", 5), rng)
    if role is DirectAnswer:
        return recall_rows(trainset, known)
    return composition_rows(trainset, rng) if role is ComposedAnswer else []


def reading_rows(
    trainset: Sequence[dspy.Example], retriever: Retriever, k: int, rng: random.Random
) -> list[dspy.Example]:
    """Questions and sub-questions with passages to read, the sentence that holds the answer, and the answer.

    The passages are the gold ones that the retriever finds, with up to two others; a fifth of the rows have others
    alone, and "unknown". A question whose gold passages were not all found is left out, as what is left may not do,
    and so is one of whose gold, cut into parts, the parts with the sentence or the answer were not: rows of these that
    say "unknown" would be a third of all, and more the worse the retriever.
    """
    rows = []
    sentences = {example.question: example.get("gold_sentences") for example in trainset}
    for step, passages in searched_steps(trainset, retriever, k):
        gold = gold_among(step, passages)
        others = [one for one in passages if one not in gold and not holds(one.prompt_text, step.answers)]
        evidence = _evidence(step, gold, sentences.get(step.question) or []) if step.all_among(gold) else None
        if evidence is None:
            continue
        shown = up_to(others, rng.randint(0, MOST_OTHERS), rng)
        if others and rng.random() < UNANSWERABLE:
            rows.append(_read(step, shown or others[:1], "none", UNKNOWN))
        else:
            picked = [one for one in passages if one in gold or one in shown]  # in the retriever's order
            rows.append(_read(step, picked, evidence, step.answers[0]))
    return rows


def recall_rows(trainset: Sequence[dspy.Example], known: Sequence[str] | None) -> list[dspy.Example]:
    """Questions that the LM knows with their answers; all of them where nobody says what it knows."""
    wanted = None if known is None else set(known)
    return [
        dspy.Example(question=example.question, answer=gold_answers(example)[0]).with_inputs("question")
        for example in checked(trainset)
        if wanted is None or example.question in wanted
    ]


def composition_rows(trainset: Sequence[dspy.Example], rng: random.Random) -> list[dspy.Example]:
    """Questions with their gold sub-questions and answers as facts; in some the last is missing, and so the answer."""
    rows = []
    for example in checked(trainset):
        asked, found = list(example.get("sub_questions") or []), [str(a) for a in example.get("sub_answers") or []]
        if len(asked) < 2 or len(asked) != len(found):
            continue
        missing = rng.random() < UNANSWERABLE
        answers = [*found[:-1], UNKNOWN] if missing else found
        facts = [f"{text} = {answer}" for text, answer in zip(filled(asked, found), answers, strict=True)]
        answer = UNKNOWN if missing else gold_answers(example)[0]
        rows.append(
            dspy.Example(question=example.question, facts=facts, answer=answer).with_inputs("question", "facts")
        )
    return rows


def _read(step: Step, passages: Sequence[Passage], evidence: str, answer: str) -> dspy.Example:
    texts = [passage.prompt_text for passage in passages]
    row = dspy.Example(question=step.question, passages=texts, evidence=evidence, answer=answer)
    return row.with_inputs("question", "passages")


def _evidence(step: Step, gold: Sequence[Passage], quoted: Sequence[str]) -> str | None:
    """The sentences that gold quotes, else the one with the answer, "none" for yes or no; None if it is not there."""
    if quoted:  # perhaps with a name where a passage says "she"
        shown = _words(" ".join(passage.prompt_text for passage in gold))
        whole = all(len(words & shown) >= SHARE * len(words) for words in map(_words, quoted))
        return " ".join(quoted) if whole else None
    holding = [JudgedPassage.of(passage) for passage in gold if holds(passage.prompt_text, step.answers)]
    answer = next((one for one in step.answers if any(holds(p.prompt_text, (one,)) for p in holding)), "")
    otherwise = "none" if normal(step.answers[0]) in YES_NO else None
    return holding_sentence(step.question, answer, holding)[0] or otherwise


def _words(text: str) -> set[str]:
    return set(normal(text).split())
