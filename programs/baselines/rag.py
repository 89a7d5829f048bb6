"""RAG: retrieve once, read once."""

import dspy

from programs.calls import Run
from programs.program import Program, check
from programs.trace import JudgedPassage, Node
from retrieval.passage import Retriever
from signatures.answers import GroundedAnswer


class RAG(Program):
    """Reads all of the top k passages, whatever they say, and answers: the "RAG" of the paper's Table 1.

    Args:
        retriever: Called as `retriever(question, k)`; shared, not copied, when the program is copied. May be set later.
        k: Passages retrieved.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds after which a question starts no further call; None for no limit.
    """

    system = "rag"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check("k", k, k >= 1, "1 or more")
        self.k = k
        self.answer_from = dspy.Predict(GroundedAnswer)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            passages = run.found(run.search(question, self.k))
            node.passages = [JudgedPassage.of(passage) for passage in passages]
            texts = [passage.prompt_text for passage in passages]
            run.settle(node, "passages", f"from {len(texts)} passages", self.answer_from, passages=texts)
        return node
