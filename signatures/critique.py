"""The critique of Self-RAG (Asai et al. 2024, arXiv 2310.11511, table 1), its reflection tokens as fields.

Its fourth judgement, whether a passage is relevant, is `raisf.signatures.judges.PassageRelevance`.
"""

from typing import Literal

import dspy


class RetrievalNeed(dspy.Signature):
    """Decide whether looking something up would help to answer the question."""

    question: str = dspy.InputField()
    retrieve: Literal["yes", "no"] = dspy.OutputField()


class Support(dspy.Signature):
    """Decide how far the passage supports the answer to the question: fully, partially or none."""

    question: str = dspy.InputField()
    passage: str = dspy.InputField()
    answer: str = dspy.InputField()
    support: Literal["fully", "partially", "none"] = dspy.OutputField()


class Usefulness(dspy.Signature):
    """Rate how useful the answer is to the one who asked, from 1, no answer at all, to 5, complete."""

    question: str = dspy.InputField()
    answer: str = dspy.InputField()
    usefulness: Literal["1", "2", "3", "4", "5"] = dspy.OutputField()
