"""The three ways in which RA-ISF answers: from memory, from passages, from the answers of sub-questions."""

import dspy


class DirectAnswer(dspy.Signature):
    """Answer the question from memory in one or a few words."""

    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class GroundedAnswer(dspy.Signature):
    """Answer the question from the passages: first copy the sentence that holds the answer, then the short answer."""

    question: str = dspy.InputField()
    passages: list[str] = dspy.InputField()
    evidence: str = dspy.OutputField(desc="that sentence; a name where it says he, she or it")
    answer: str = dspy.OutputField(desc="one or a few words")


class ComposedAnswer(dspy.Signature):
    """Answer the question from the facts, each a sub-question and its answer, in one or a few words."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="sub-question = answer, or unknown where it was not found")
    answer: str = dspy.OutputField()
