"""IRCoT: retrieval and reasoning in turns, a sentence at a time, then a reader over all that was found."""

from typing import Literal

import dspy

from raisf.programs import steps
from raisf.programs.calls import Run
from raisf.programs.program import Program
from raisf.programs.questions import first_sentence
from raisf.programs.steps import search, texts, union
from raisf.programs.trace import Node, Step
from raisf.retrieval.passage import Retriever
from raisf.signatures.reasoning import GroundedReasoning, NextThought
from raisf.utils.checks import check_choice, check_count, check_switches
from raisf.utils.text import clean, counted

Reader = Literal["reasoning", "answer"]


class IRCoT(Program):
    """Retrieves with the question, then with each sentence of its reasoning; a separate reader answers in the end.

    Of what the LM writes in a turn one sentence is kept. The reasoning ends with a sentence that says "answer is", with
    an unreadable one, or after `max_thoughts`; passages are collected up to `max_passages`, the earliest stay.

    Args:
        retriever: Called as `retriever(query, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages a search.
        max_passages: Passages collected at most.
        max_thoughts: Sentences of the reasoning at most; 8, the paper's.
        reader: "reasoning" thinks step by step over the collected passages, "answer" answers at once: the paper's two.
        evidence: Of the reader "answer": False answers at once, as the paper's; True quotes the sentence that holds the
            answer first.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Trivedi et al. 2023, arXiv 2212.10509, section 3, with its limit of 15 paragraphs and its two readers.
    """

    system = "ircot"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        max_passages: int = 15,
        max_thoughts: int = 8,
        reader: Reader = "reasoning",
        evidence: bool = True,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check_count("max_passages", max_passages)
        check_count("max_thoughts", max_thoughts)
        check_switches(evidence=evidence)
        check_choice("reader", reader, Reader)
        self.k = k
        self.max_passages = max_passages
        self.max_thoughts = max_thoughts
        self.reader = reader
        self.think = dspy.Predict(NextThought)
        self.evidence = evidence
        self.read = dspy.Predict(GroundedReasoning) if reader == "reasoning" else steps.reader(evidence)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            self._collect(run, node, question)
            thoughts: list[str] = []
            while len(thoughts) < self.max_thoughts and (thought := self._next(run, node, thoughts)):
                if "answer is" in thought.casefold():
                    node.steps.append(Step(generation=thought))
                    break
                thoughts.append(thought)
                self._collect(run, node, thought, thought)
            reason = f"from {counted(len(node.passages), 'passage')}, collected in {counted(len(thoughts) + 1, 'turn')}"
            run.settle(node, "passages", reason, self.read, passages=texts(node.passages))
        return node

    def _next(self, run: Run, node: Node, thoughts: list[str]) -> str:
        """The next sentence of the reasoning, or "" where none could be read."""
        passages = texts(node.passages)
        prediction = run.ask(self.think, question=node.question, passages=passages, thoughts=list(thoughts))
        return first_sentence(clean(prediction.thought)) if prediction else ""

    def _collect(self, run: Run, node: Node, query: str, thought: str = "") -> None:
        """Search, and keep of what comes what is new and has room."""
        step = search(run, query, self.k, thought)
        collected = union(node.passages, step.passages, limit=self.max_passages)
        step.passages = collected[len(node.passages) :]
        node.passages = collected
        node.steps.append(step)
