"""RA-ISF: retrieval-augmented iterative self-feedback (Liu et al. 2024, arXiv 2403.06840)."""

from functools import partial
from typing import Literal, get_args

import dspy

from programs.calls import Run
from programs.concurrency import Later, gather
from programs.program import Program, check
from programs.questions import UNKNOWN, clean, fill, normal, references
from programs.trace import JudgedPassage, Judgement, Node
from retrieval.passage import Passage, Retriever
from signatures.answers import ComposedAnswer, DirectAnswer, GroundedAnswer
from signatures.judges import Decomposition, ListwiseRelevance, PassageRelevance, SelfKnowledge

Relevance = Literal["pointwise", "listwise"]

# A rambling LM may list hundreds; with three levels below each, an unlimited budget would never see the end.
MAX_SUB_QUESTIONS = 10


class RAISF(Program):
    """Algorithm 1 of the paper: judge, retrieve, filter, and break down what is left.

    What runs beside what, what a node may end as, and what it costs is in its trace (`programs.trace`). A question is
    broken down into at most 10 sub-questions; what an LM lists beyond that is left out.

    Args:
        retriever: Called as `retriever(question, k)`; shared, not copied, when the program is copied. May be set later.
        k: Passages retrieved for a question.
        max_depth: The paper's D_th. The question asked is depth 0; a sub-question deeper than this is "unknown".
        relevance: "pointwise" judges each passage alone, all at the same time (Algorithm 1); "listwise" judges them in
            one call (the paper's appendix).
        use_know: False never asks the self-knowledge judge (the paper's "No SKM").
        use_relevance: False goes from unknown straight to decomposition and retrieves nothing ("No PRM").
        use_decomposition: False answers "unknown" where no passage is relevant ("No QDM").
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds after which a question starts no further call; None for no limit.

    Source:
        Section 3, Algorithm 1, Table 2 and Appendix A. Line 14 writes M(q, P), Eq. 3 the relevant passages: we do that.
    """

    system = "ra-isf"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        max_depth: int = 3,
        relevance: Relevance = "pointwise",
        use_know: bool = True,
        use_relevance: bool = True,
        use_decomposition: bool = True,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check("k", k, k >= 1, "1 or more")
        check("max_depth", max_depth, max_depth >= 0, "0 or more")
        check("relevance", relevance, relevance in get_args(Relevance), " or ".join(get_args(Relevance)))
        self.k = k
        self.max_depth = max_depth
        self.relevance = relevance
        self.use_know = use_know
        self.use_relevance = use_relevance
        self.use_decomposition = use_decomposition
        self.know = dspy.Predict(SelfKnowledge)
        self.relevant = dspy.Predict(PassageRelevance if relevance == "pointwise" else ListwiseRelevance)
        self.decompose = dspy.Predict(Decomposition)
        self.answer_directly = dspy.Predict(DirectAnswer)
        self.answer_from = dspy.Predict(GroundedAnswer)
        self.compose = dspy.Predict(ComposedAnswer)

    def _answer(self, run: Run, question: str) -> Node:
        return self._solve(run, question, depth=0, above=frozenset())

    def _solve(self, run: Run, question: str, depth: int, above: frozenset[str]) -> Node:
        """Algorithm 1. `above` holds the questions on the way down from the root: none of them is asked again."""
        with run.node(question, depth) as node:
            if depth > self.max_depth:
                return node.end("depth", f"deeper than max_depth={self.max_depth}")
            if normal(question) in above:
                return node.end("cycle", "the same question stands above it")
            search = run.search(question, self.k) if self.use_relevance else None  # while the next judge thinks
            if self.use_know and self._knows(run, node):
                if search:
                    search.drop()
                return run.settle(node, "direct", "from memory", self.answer_directly)
            if search:
                relevant = self._relevant(run, node, run.found(search))
                if relevant:
                    reason = f"from {len(relevant)} of {len(node.passages)} passages"
                    return run.settle(node, "passages", reason, self.answer_from, passages=relevant)
            if not self.use_decomposition:
                return node.end("no_passages", "no relevant passage, and decomposition is off")
            sub_questions = self._break_down(run, node)
            if not sub_questions:
                return node.end("no_sub_questions", "the decomposition gave no sub-question")
            node.sub_questions = self._solve_all(run, sub_questions, depth + 1, above | {normal(question)})
            # Also when every sub-answer is unknown, as in Algorithm 1: the LM has the last word.
            facts = [f"{sub.question} = {sub.answer}" for sub in node.sub_questions]
            found = sum(sub.answer != UNKNOWN for sub in node.sub_questions)
            reason = f"from {found} of {len(facts)} sub-answers"
            return run.settle(node, "decomposed", reason, self.compose, facts=facts)
        return node  # the budget was spent inside the block

    def _knows(self, run: Run, node: Node) -> bool:
        node.know = run.judge(self.know, question=node.question)
        return node.know.verdict == "know"

    def _relevant(self, run: Run, node: Node, passages: list[Passage]) -> list[str]:
        """The prompt texts of the relevant passages; every judgement goes into the node's record."""
        node.passages = [JudgedPassage.of(passage) for passage in passages]
        judge = self._judge_each if self.relevance == "pointwise" else self._judge_list
        texts = [passage.prompt_text for passage in passages]
        if texts:
            judge(run, node, texts)
        return [text for text, judged in zip(texts, node.passages, strict=True) if judged.relevant]

    def _judge_each(self, run: Run, node: Node, texts: list[str]) -> None:
        def judge(text: str, passage: JudgedPassage) -> None:
            passage.judgement = run.judge(self.relevant, question=node.question, passage=text)

        gather([Later(partial(judge, *pair)) for pair in zip(texts, node.passages, strict=True)])

    def _judge_list(self, run: Run, node: Node, texts: list[str]) -> None:
        prediction = run.ask(self.relevant, question=node.question, passages=texts)
        for number, passage in enumerate(node.passages, 1):
            if prediction is None:
                passage.judgement = Judgement(verdict=None, readable=False)
            else:  # a number that no passage has is passed over
                relevant = number in (prediction.relevant_ids or [])
                passage.judgement = Judgement(verdict="relevant" if relevant else "irrelevant")

    def _break_down(self, run: Run, node: Node) -> list[str]:
        """The node's sub-questions; one that differs from an earlier one only in its spelling takes that one's."""
        prediction = run.ask(self.decompose, question=node.question)
        listed = [clean(text) for text in (prediction.sub_questions or [] if prediction else [])]
        spelling: dict[str, str] = {}
        return [spelling.setdefault(normal(text), text) for text in listed if normal(text)][:MAX_SUB_QUESTIONS]

    def _solve_all(self, run: Run, sub_questions: list[str], depth: int, above: frozenset[str]) -> list[Node]:
        """All sub-questions side by side; one that names earlier ones ("#1") waits for those, and for no others."""
        tasks: list[Later[Node]] = []
        for number, text in enumerate(sub_questions, 1):
            named = {earlier: tasks[earlier - 1] for earlier in references(text, before=number)}
            tasks.append(Later(partial(self._solve_sub, run, text, named, depth, above)))
        return gather(tasks)

    def _solve_sub(self, run: Run, text: str, named: dict[int, Later[Node]], depth: int, above: frozenset[str]) -> Node:
        answers = {number: task.get().answer for number, task in named.items()}
        missing = [f"#{number}" for number, answer in answers.items() if answer == UNKNOWN]
        if missing:
            node = Node(question=text, depth=depth).end("reference", f"no answer for {' and '.join(missing)}")
        else:
            node = self._solve(run, fill(text, answers), depth, above)
        node.waits_for = list(named)
        return node
