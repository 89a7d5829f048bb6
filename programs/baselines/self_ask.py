"""Self-Ask: follow-up questions one at a time, each answered from retrieval, then the answer."""

import dspy

from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.questions import UNKNOWN
from raisf.programs.steps import facts_of, next_question, read_found, reader
from raisf.programs.trace import Node
from raisf.retrieval.passage import Retriever
from raisf.signatures.answers import DirectAnswer, FinalAnswer
from raisf.signatures.reasoning import FollowUp
from raisf.utils.checks import check_count


class SelfAsk(Program):
    """Asks itself follow-up questions until they suffice, reads each one's answer from passages, and concludes.

    It stops at "none", at a follow-up that it has asked before, at an unreadable one, and after `max_follow_ups`. Where
    it asks none at all it answers from memory. The last call sees what the paper's does, each follow-up question and
    its intermediate answer; the pocket models read these in the form that they were trained on.

    Args:
        retriever: Called as `retriever(follow_up, k)`; shared by its copies, but for predictors in it. May be set
            later.
        k: Passages retrieved for a follow-up question.
        max_follow_ups: Follow-up questions at most; 5, since questions of the field take four facts at most.
        evidence: False answers at once, as the paper's reader; True quotes the sentence that holds the answer first.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Press et al. 2023, arXiv 2210.03350: self-ask with a search engine.
    """

    system = "self-ask"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        max_follow_ups: int = 5,
        evidence: bool = True,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check_count("max_follow_ups", max_follow_ups)
        self.k = k
        self.max_follow_ups = max_follow_ups
        self.evidence = evidence
        self.follow_up = dspy.Predict(FollowUp)
        self.answer_from = reader(evidence)
        self.answer_directly = dspy.Predict(DirectAnswer)
        self.compose = dspy.Predict(FinalAnswer)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            while len(node.sub_questions) < self.max_follow_ups and (follow_up := self._next(run, node)):
                node.sub_questions.append(Node(question=follow_up, depth=1))
                with run.work(node.sub_questions[-1]) as sub:
                    read_found(run, sub, self.k, self.answer_from)
            if not node.sub_questions:
                reason = "from memory, no follow-up question was asked"
                return run.settle(node, "direct", reason, self.answer_directly)
            found = sum(sub.answer != UNKNOWN for sub in node.sub_questions)
            reason = f"from {found} of {len(node.sub_questions)} follow-up answers"
            run.settle(node, "decomposed", reason, self.compose, facts=facts_of(self.compose, node))
        return node

    def _next(self, run: Run, node: Node) -> str:
        """The next follow-up question, or "" where there is none."""
        prediction = run.ask(self.follow_up, question=node.question, facts=facts_of(self.follow_up, node))
        return next_question(prediction.follow_up if prediction else "", node.sub_questions)
