"""If these failed, a module that keeps a signature or a tool to ask by later would be given the answers of another."""

from typing import Any

import dspy
import pytest

from raisf.evaluation.identity import describe


class Keeps(dspy.Module):
    """Makes its predictor as it runs."""

    def __init__(self, signature: Any) -> None:
        super().__init__()
        self.asked_by = signature

    def forward(self, question: str) -> dspy.Prediction:
        return dspy.Predict(self.asked_by)(question=question)


MADE: Any = dspy.Signature  # of a text too, which its type does not tell
ASKED = MADE("question -> answer", "Answer the question.")


@pytest.mark.parametrize(
    "other",
    [
        MADE("question -> verdict", "Answer the question."),
        MADE("question -> answer: int", "Answer the question."),
        ASKED.with_instructions("Answer in one word."),
        ASKED.with_updated_fields("answer", desc="one word"),
    ],
)
def test_a_signature_that_a_module_keeps_is_told(other: Any) -> None:
    same = MADE("question -> answer", "Answer the question.")
    assert describe(Keeps(ASKED)) == describe(Keeps(same)) != describe(Keeps(other))


class Tool:
    """Adds what it was made with, and counts how often."""

    def __init__(self, more: int) -> None:
        self._more, self._count = more, 0

    def add(self, number: int) -> int:
        self._count += 1
        return number + self._more


def test_what_an_object_was_made_with_is_told_and_not_what_it_remembers() -> None:
    used = Tool(1)
    used.add(5)
    assert describe(Keeps(Tool(1))) == describe(Keeps(used)) != describe(Keeps(Tool(2)))
