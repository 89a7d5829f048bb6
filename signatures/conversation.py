"""What makes a question out of a conversation."""

import dspy


class StandaloneQuestion(dspy.Signature):
    """Rewrite the last question of a conversation so that it can be understood without the earlier turns.

    Put names where it says he, she, it, they or there; add what it leaves out. Copy a question that stands alone.
    """

    turns: list[str] = dspy.InputField(desc="the earlier turns, each a speaker and what was said")
    question: str = dspy.InputField(desc="the last question")
    standalone: str = dspy.OutputField(desc="one question")
