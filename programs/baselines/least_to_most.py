"""Least-to-Most: break the question down once, solve the parts in order, each with the earlier answers in sight."""

import dspy

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.questions import UNKNOWN, listed, references
from raisf.programs.steps import as_facts, fill_in
from raisf.programs.trace import Node
from raisf.signatures.answers import DirectAnswer, NextAnswer
from raisf.signatures.judges import Decomposition


class LeastToMost(Program):
    """Lists sub-questions, answers them one after the other from memory, and the question itself last.

    Each prompt, the last one too, carries all earlier sub-questions with their answers, and asks the LM to answer from
    memory with these in sight; the first has none to carry and is asked plainly. A sub-question that names one without
    an answer ("#1") is not asked. Nothing is retrieved.

    Args:
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Zhou et al. 2023, arXiv 2205.10625, section 2: decomposition once, then sequential solving.
    """

    system = "least-to-most"

    def __init__(self, max_calls: int | None = None, max_seconds: float | None = None) -> None:
        super().__init__(None, max_calls, max_seconds)
        self.decompose = dspy.Predict(Decomposition)
        self.answer_directly = dspy.Predict(DirectAnswer)
        self.compose = dspy.Predict(NextAnswer)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            prediction = run.ask(self.decompose, question=question)
            texts = listed((prediction.sub_questions or []) if prediction else [])
            node.sub_questions = [Node(question=text, depth=1) for text in texts]
            for number, sub in enumerate(node.sub_questions):
                self._solve(run, sub, node.sub_questions[:number])
            if not node.sub_questions:
                why = "could not be read" if prediction is None else "gave no sub-question"
                return run.settle(node, "direct", f"from memory, the decomposition {why}", self.answer_directly)
            found = sum(sub.answer != UNKNOWN for sub in node.sub_questions)
            reason = f"from {found} of {len(node.sub_questions)} sub-answers"
            run.settle(node, "decomposed", reason, self.compose, facts=as_facts(node.sub_questions))
        return node

    def _solve(self, run: Run, node: Node, earlier: list[Node]) -> None:
        node.waits_for = references(node.question, before=len(earlier) + 1)
        if not fill_in(node, {number: earlier[number - 1].answer for number in node.waits_for}):
            return
        with run.work(node):
            if earlier:
                reason = f"from memory, {len(earlier)} earlier in sight"
                run.settle(node, "direct", reason, self.compose, facts=as_facts(earlier))
            else:
                run.settle(node, "direct", "from memory", self.answer_directly)
