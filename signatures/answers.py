"""How a question is answered: from memory, from passages, from the answers of other questions."""

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


class PassageAnswer(dspy.Signature):
    """Answer the question from the passages in one or a few words."""

    passages: list[str] = dspy.InputField()
    question: str = dspy.InputField()  # last: a small LM reads it right before it answers
    answer: str = dspy.OutputField()


class ComposedAnswer(dspy.Signature):
    """Answer the question from the facts, each a sub-question and its answer, in one or a few words."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="sub-question = answer, or unknown where it was not found")
    answer: str = dspy.OutputField()


class NextAnswer(dspy.Signature):
    """Answer the question from memory in one or a few words. The facts are earlier questions with their answers."""

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="earlier question = answer, or unknown where it was not found")
    answer: str = dspy.OutputField()


class FinalAnswer(dspy.Signature):
    """Give the final answer to the question in one or a few words.

    Before it stand the follow-up questions that were asked on the way, each with its intermediate answer.
    """

    question: str = dspy.InputField()
    facts: list[str] = dspy.InputField(desc="a follow-up question and its intermediate answer")
    answer: str = dspy.OutputField(desc="so the final answer is")
