"""CoT with retrieval: retrieve once, reason over what was found."""

import dspy

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.steps import read_found
from raisf.programs.trace import Node
from raisf.retrieval.passage import Retriever
from raisf.signatures.reasoning import GroundedReasoning
from raisf.utils.checks import check_count


class CoTRAG(Program):
    """Reads all of the top k passages, thinks step by step, then answers.

    Args:
        retriever: Called as `retriever(question, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages retrieved.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        The "CoT + retrieval" of Wang et al. 2024 (BlendFilter), arXiv 2402.11129, table 2.
    """

    system = "cot-rag"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        self.k = k
        self.reason_from = dspy.Predict(GroundedReasoning)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            read_found(run, node, self.k, self.reason_from, ", step by step")
        return node
