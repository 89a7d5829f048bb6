"""CoT: one call that reasons before it answers, from memory."""

import dspy

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.trace import Node
from raisf.signatures.reasoning import Reasoning


class CoT(Program):
    """Thinks step by step from memory, then answers.

    Args:
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Wei et al. 2022, arXiv 2201.11903; without demonstrations Kojima et al. 2022, arXiv 2205.11916.
    """

    system = "cot"

    def __init__(self, max_calls: int | None = None, max_seconds: float | None = None) -> None:
        super().__init__(None, max_calls, max_seconds)
        self.reason = dspy.Predict(Reasoning)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            run.settle(node, "direct", "from memory, step by step", self.reason)
        return node
