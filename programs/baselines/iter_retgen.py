"""Iter-RetGen: retrieve with what was generated, generate from what was retrieved, and so on."""

import dspy

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.steps import generated, search, texts
from raisf.programs.trace import Node
from raisf.retrieval.passage import Retriever
from raisf.signatures.reasoning import GroundedReasoning
from raisf.utils.checks import check_count
from raisf.utils.text import clean, counted


class IterRetGen(Program):
    """Reasons over the top k passages, searches again with that reasoning before the question, and starts anew.

    Each turn reads the passages of its own search alone; the last turn's answer counts.

    Args:
        retriever: Called as `retriever(query, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages a turn.
        turns: Retrievals, each followed by a generation: the paper's T.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Shao et al. 2023, arXiv 2305.15294, section 3.
    """

    system = "iter-retgen"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        turns: int = 3,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check_count("turns", turns)
        self.k = k
        self.turns = turns
        self.reason_from = dspy.Predict(GroundedReasoning)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            self._retrieve(run, node, "")
            for _ in range(self.turns - 1):
                prediction = run.ask(self.reason_from, question=question, passages=texts(node.passages))
                self._retrieve(run, node, generated(prediction))
            reason = f"from {counted(len(node.passages), 'passage')}, in turn {self.turns}"
            run.settle(node, "passages", reason, self.reason_from, passages=texts(node.passages))
        return node

    def _retrieve(self, run: Run, node: Node, generation: str) -> None:
        step = search(run, clean(f"{generation} {node.question}"), self.k, generation)
        node.steps.append(step)
        node.passages = step.passages
