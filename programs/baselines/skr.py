"""SKR-knn: whether to retrieve is voted by the training questions that are most like this one."""

import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import dspy

from raisf.evaluation.identity import digest
from raisf.programs.baselines.cot import CoT
from raisf.programs.baselines.cot_rag import CoTRAG
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.steps import read_found, reader
from raisf.programs.trace import Judgement, Node
from raisf.retrieval.passage import Retriever
from raisf.signatures.answers import DirectAnswer
from raisf.utils.checks import check, check_choice, check_count
from raisf.utils.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from raisf.retrieval.engines.dense import DenseEncoder


LabelledBy = Literal["reasoning", "answer"]

# The first questions come from several threads at once: one of them loads MiniLM and embeds the cases, the others wait.
_ONCE = threading.RLock()


class Case(TypedDict):
    """A training question that was answered right, and whether only with retrieval (helped)."""

    question: str
    helped: bool


class SKR(Program):
    """Answers from memory what resembles questions that needed no retrieval to be right, and retrieves for the rest.

    It has to be fitted (`raisf.FitSKR`) to the LM and the index that it runs with. What it has learnt is `cases`, which
    an artifact keeps as an option.

    Args:
        retriever: Called as `retriever(question, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages retrieved.
        neighbours: Training questions that vote.
        labelled_by: Whose answers tell where retrieval helps: "reasoning" asks the training questions step by step with
            and without passages, as the paper does; "answer" asks them as the program itself answers, at once.
        evidence: False answers at once, as the paper's; True quotes the sentence that holds the answer first.
        cases: What `raisf.FitSKR` has found; None before.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Wang et al. 2023, arXiv 2310.05002: its k-nearest-neighbour form. The embedding here is MiniLM's.
    """

    system = "skr-knn"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        neighbours: int = 10,
        labelled_by: LabelledBy = "reasoning",
        evidence: bool = True,
        cases: list[Case] | None = None,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check_count("neighbours", neighbours)
        check_choice("labelled_by", labelled_by, LabelledBy)
        self.k = k
        self.neighbours = neighbours
        self.labelled_by = labelled_by
        self.evidence = evidence
        self.answer_directly = dspy.Predict(DirectAnswer)
        self.answer_from = reader(evidence)
        self.learn(cases)

    def compared(self) -> tuple[Program, Program]:
        """The programs whose answers to a training question label it: without retrieval, and with it."""
        if self.labelled_by == "answer":
            direct, rag = Direct(), RAG(self.retriever, self.k, self.evidence)
            direct.answer_directly, rag.answer_from = self.answer_directly, self.answer_from
            return direct, rag
        cot, cot_rag = CoT(), CoTRAG(self.retriever, self.k)
        cot.reason.lm, cot_rag.reason_from.lm = self.answer_directly.lm, self.answer_from.lm
        return cot, cot_rag

    def learn(self, cases: list[Case] | None) -> None:
        """Take what an earlier fit has found; None forgets it.

        Raises:
            InputError: It is something else.
        """
        check("cases", cases, cases is None or _are_cases(cases), "what raisf.FitSKR has found, or None")
        self.cases = cases
        # A plain value, so that the records of a run are bound to what the program had learnt.
        self.fitted = None if cases is None else digest(cases)

    def check_fitted(self) -> None:
        """Raise InputError where there are no cases that could vote."""
        if not self.cases:
            raise InputError(
                "skr-knn has not been fitted: compile it (raisf compile --program skr-knn, or raisf.FitSKR), or load "
                "an artifact of a fitted one"
            )

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            node.know = self._knows(question)
            if node.know.verdict == "know":
                reason = f"from memory, as were {node.know.probability:.0%} of the questions most like it"
                return run.settle(node, "direct", reason, self.answer_directly)
            read_found(run, node, self.k, self.answer_from)
        return node

    def _knows(self, question: str) -> Judgement:
        self.check_fitted()
        helped = [case["helped"] for case in self.cases or []]
        nearest = (self._vectors() @ embed([question])[0]).argsort(kind="stable")[::-1][: self.neighbours]
        share, knows = vote([helped[i] for i in nearest], helped)
        return Judgement(verdict="know" if knows else "unknown", probability=share)

    def read_models(self) -> None:
        """Reads MiniLM and embeds the cases, so that the first questions need not wait for it."""
        if self.cases:
            self._vectors()

    def _vectors(self) -> "np.ndarray":
        known = tuple(case["question"] for case in self.cases or [])
        with _ONCE:
            return _case_vectors(known)


def _are_cases(cases: Any) -> bool:
    return isinstance(cases, list) and all(
        isinstance(case, dict) and isinstance(case.get("question"), str) and isinstance(case.get("helped"), bool)
        for case in cases
    )


def vote(nearest: Sequence[bool], everyone: Sequence[bool]) -> tuple[float, bool]:
    """Whether a question counts as known, by its nearest training questions.

    Args:
        nearest: Whether retrieval helped, for each neighbour.
        everyone: The same for all cases. Where few were known, few known neighbours are enough.

    Returns:
        The share of neighbours that were known, and whether that is no less than among all cases.

    Source:
        Wang et al. 2023: known where l / (k - l) >= m / n, with l of k neighbours and m of m + n cases,
        which is the same without the division by zero.
    """
    share = nearest.count(False) / len(nearest)
    return share, share > 0 and share >= everyone.count(False) / len(everyone)


def embed(questions: Sequence[str]) -> "np.ndarray":
    """Unit vectors `(n_questions, dim)` of all-MiniLM-L6-v2.

    Raises:
        InputError: The package that MiniLM comes in is not installed.
    """
    import numpy as np

    with _ONCE:
        encoder = _encoder()
    vectors = np.concatenate([vector.numpy() for vector in encoder.encode_queries(questions)])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@cache
def _case_vectors(questions: tuple[str, ...]) -> "np.ndarray":
    return embed(questions)


@cache
def _encoder() -> "DenseEncoder":
    from raisf.retrieval.encoders.checkpoint import MINILM
    from raisf.retrieval.engines.dense import find_model

    return find_model(MINILM).encoder()
