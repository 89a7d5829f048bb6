"""Direct: one call, the answer from memory."""

import dspy

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.trace import Node
from raisf.signatures.answers import DirectAnswer


class Direct(Program):
    """Asks the LM and nothing else.

    Args:
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        The "Direct" of Liu et al. 2024 (RA-ISF), arXiv 2403.06840, table 1.
    """

    system = "direct"

    def __init__(self, max_calls: int | None = None, max_seconds: float | None = None) -> None:
        super().__init__(None, max_calls, max_seconds)
        self.answer_directly = dspy.Predict(DirectAnswer)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            run.settle(node, "direct", "from memory", self.answer_directly)
        return node
