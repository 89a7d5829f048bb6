"""RAG: retrieve once, read once."""

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.steps import read_found, reader
from raisf.programs.trace import Node
from raisf.retrieval.passage import Retriever
from raisf.utils.checks import check_count


class RAG(Program):
    """Reads all of the top k passages, whatever they say, and answers.

    Args:
        retriever: Called as `retriever(question, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages retrieved.
        evidence: False answers at once, as the paper's; True quotes the sentence that holds the answer first.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        The "RAG" of Liu et al. 2024 (RA-ISF), arXiv 2403.06840, table 1.
    """

    system = "rag"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        evidence: bool = True,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        self.k = k
        self.evidence = evidence
        self.answer_from = reader(evidence)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            read_found(run, node, self.k, self.answer_from)
        return node
