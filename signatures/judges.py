"""The three judges of RA-ISF (Liu et al. 2024, section 3 and appendix A), and others that can take their places."""

from typing import Literal

import dspy


class SelfKnowledge(dspy.Signature):
    """Decide whether you know the answer to the question by heart, without looking anything up."""

    question: str = dspy.InputField()
    verdict: Literal["know", "unknown"] = dspy.OutputField()


class AnswerTruth(dspy.Signature):
    """Decide whether the proposed answer to the question is true. Say know if it is, unknown if it may be wrong."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField(desc="the proposed answer, from memory")
    verdict: Literal["know", "unknown"] = dspy.OutputField()


class PassageRelevance(dspy.Signature):
    """Decide whether the passage is relevant and sufficient to answer the question."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    verdict: Literal["relevant", "irrelevant"] = dspy.OutputField()


class ListwiseRelevance(dspy.Signature):
    """List the numbers, counted from 1, of the relevant passages that together are sufficient to answer the question.

    Give an empty list if all passages together do not suffice.
    """

    question: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    relevant_ids: list[int] = dspy.OutputField()


class PassagesSufficiency(dspy.Signature):
    """Decide whether the passages together are sufficient to answer the question, or something is missing."""

    question: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    verdict: Literal["sufficient", "insufficient"] = dspy.OutputField()


class Decomposition(dspy.Signature):
    """Break the question down into several simpler sub-questions and list them in the order to answer them.

    Write #1 for the answer of the first sub-question, #2 for the second, and so on.
    """

    question: str = dspy.InputField()
    sub_questions: list[str] = dspy.OutputField()
