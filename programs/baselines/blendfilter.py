"""BlendFilter: three queries for one question, the passages of each filtered by the LM, one answer from their union."""

from collections.abc import Callable
from functools import partial

import dspy

from raisf.programs.calls import Run
from raisf.programs.concurrency import Task, gather
from raisf.programs.program import Program, check
from raisf.programs.questions import clean
from raisf.programs.steps import generated, judge_listwise, search, texts, union
from raisf.programs.trace import Node, Step
from raisf.retrieval.passage import Retriever
from raisf.signatures.reasoning import GroundedReasoning, HelpfulPassages, Reasoning, WrittenPassage

_TOPIC = "Name to yourself the topic of the question. "
_FILTER = (
    "Set aside what you know yourself, and check each passage step by step. "
    "Then list only the numbers, counted from 1, of the passages that help to answer the question; "
    "give an empty list if there is none."
)
_YES_OR_NO = "Think step by step with the facts in the passages, then answer the question with yes or no only."
_YES_OR_NO_FROM_MEMORY = "Think step by step, one fact a sentence, then answer the question with yes or no only."


class BlendFilter(Program):
    """Searches with the question, with a reasoning before it, and with a passage from memory before it; then filters.

    The reasoning (external augmentation) is over the top k of the plain question; the passage (internal augmentation)
    the LM writes from memory. Each query's top k are filtered in a call of their own, and the answer is reasoned over
    the union of what is left. A filter that cannot be read keeps nothing; where nothing is left at all the answer is
    reasoned from memory.

    Args:
        retriever: Called as `retriever(query, k)`; shared, not copied, when the program is copied. May be set later.
        k: Passages a query.
        use_question: False leaves out the plain question's passages (the paper's "w/o q").
        use_external: False leaves out the external augmentation ("w/o q_ex").
        use_internal: False leaves out the internal augmentation ("w/o q_in").
        yes_no: The form for sets of yes/no questions: the filter names no topic, the answer is yes or no.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds after which a question starts no further call; None for no limit.

    Source:
        Wang et al. 2024, arXiv 2402.11129, section 3; without q, q_ex or q_in as in its ablations.
    """

    system = "blendfilter"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        use_question: bool = True,
        use_external: bool = True,
        use_internal: bool = True,
        yes_no: bool = False,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check("k", k, k >= 1, "1 or more")
        check("use_internal", use_internal, use_question or use_external or use_internal, "at least one query")
        self.k = k
        self.use_question = use_question
        self.use_external = use_external
        self.use_internal = use_internal
        self.yes_no = yes_no
        answer_from, answer = GroundedReasoning, Reasoning
        if yes_no:
            answer_from = GroundedReasoning.with_instructions(_YES_OR_NO)
            answer = Reasoning.with_instructions(_YES_OR_NO_FROM_MEMORY)
        self.write = dspy.Predict(WrittenPassage)
        self.filter = dspy.Predict(HelpfulPassages.with_instructions(_FILTER if yes_no else _TOPIC + _FILTER))
        self.reason_from = dspy.Predict(answer_from)
        self.reason = dspy.Predict(answer)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            chosen = (
                (self.use_question, self._plain),
                (self.use_external, self._external),
                (self.use_internal, self._internal),
            )
            blend = [Task(partial(self._filtered, run, question, augment)) for used, augment in chosen if used]
            node.steps = gather(blend)
            kept = [[passage for passage in step.passages if passage.relevant] for step in node.steps]
            node.passages = union(*kept)
            if not node.passages:
                return run.settle(node, "direct", "from memory, the filter kept no passage", self.reason)
            found = len(union(*(step.passages for step in node.steps)))
            reason = f"from {len(node.passages)} of {found} passages"
            run.settle(node, "passages", reason, self.reason_from, passages=texts(node.passages))
        return node

    def _filtered(self, run: Run, question: str, augment: Callable[[Run, str], str]) -> Step:
        """The search with one query, its passages judged."""
        generation = augment(run, question)
        step = search(run, clean(f"{generation} {question}"), self.k, generation)
        judge_listwise(run, self.filter, question, step.passages)
        return step

    def _plain(self, run: Run, question: str) -> str:
        return ""

    def _external(self, run: Run, question: str) -> str:
        found = search(run, question, self.k)
        return generated(run.ask(self.reason_from, question=question, passages=texts(found.passages)))

    def _internal(self, run: Run, question: str) -> str:
        prediction = run.ask(self.write, question=question)
        return clean(prediction.background) if prediction else ""
