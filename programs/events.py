"""What changes while a question is answered, as typed events, and the tree that they add up to.

`program.stream(question)` yields them. A node is named by its place in the tree: "0" is the question that was asked,
"0.2" its second sub-question. Every event tells the whole of what it is about, so one that repeats an earlier one
replaces it.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from raisf.programs.trace import Cost, JudgedPassage, Judgement, Node, Route, Step, Trace

ROOT = "0"
"""The node of the question that was asked."""


class QuestionEvent(BaseModel):
    """A node has come up, has been begun, or has another text now that its "#1" references are filled in."""

    type: Literal["question"] = "question"
    node: str
    question: str
    depth: int
    waits_for: list[int] = []
    begun: bool
    """False while it only stands in the list that its question was broken down into."""


class KnowEvent(BaseModel):
    """The self-knowledge judge has spoken."""

    type: Literal["know"] = "know"
    node: str
    judgement: Judgement


class PassagesEvent(BaseModel):
    """A search has brought passages; those that were judged have their verdicts."""

    type: Literal["passages"] = "passages"
    node: str
    passages: list[JudgedPassage]


class JudgementEvent(BaseModel):
    """A passage of the node, by its number from 1, has been judged."""

    type: Literal["judgement"] = "judgement"
    node: str
    passage: int
    judgement: Judgement


class SufficiencyEvent(BaseModel):
    """The judge of sufficiency has spoken of the node's relevant passages."""

    type: Literal["sufficiency"] = "sufficiency"
    node: str
    judgement: Judgement


class StepEvent(BaseModel):
    """A system that works in steps has done one, by its number from 1."""

    type: Literal["step"] = "step"
    node: str
    number: int
    step: Step


class AnswerEvent(BaseModel):
    """A node has ended."""

    type: Literal["answer"] = "answer"
    node: str
    answer: str
    route: Route
    reason: str
    evidence: str | None = None
    found_afterwards: bool = False
    cited: str | None = None
    grounded: bool | None = None
    from_passage: int | None = None
    readable: bool = True
    seconds: float


class CostEvent(BaseModel):
    """What the question has cost so far. Tokens count once their call is over."""

    type: Literal["cost"] = "cost"
    cost: Cost


class DoneEvent(BaseModel):
    """The end: the answer, and the whole trace, in which repeated work is shown once.

    Attributes:
        answer: "unknown" where there is none.
        trace: None where a module of the user's own keeps none.
        confidence: The root's (`raisf.programs.trace.Node.confidence`).
    """

    type: Literal["done"] = "done"
    answer: str
    trace: Trace | None
    confidence: float | None = None


Event = Annotated[
    QuestionEvent
    | KnowEvent
    | PassagesEvent
    | JudgementEvent
    | SufficiencyEvent
    | StepEvent
    | AnswerEvent
    | CostEvent
    | DoneEvent,
    Field(discriminator="type"),
]


OUTCOME = tuple(name for name in AnswerEvent.model_fields if name not in ("type", "node", "answer", "route", "reason"))
"""What an `AnswerEvent` tells of its node beside the answer, its route and its reason."""


class GrowingTrace:
    """The trace as far as events have told it; the answer of a node that has not ended is empty.

    Args:
        system: The program's name.
    """

    def __init__(self, system: str) -> None:
        self._nodes: dict[str, Node] = {ROOT: Node(question="", answer="")}
        self.trace = Trace(system=system, root=self._nodes[ROOT], cost=Cost())

    def add(self, event: Event) -> None:
        """Takes up what an event tells; they come in the order of the stream."""
        if isinstance(event, DoneEvent):
            self.trace = event.trace or self.trace
        elif isinstance(event, CostEvent):
            self.trace.cost = event.cost
        else:
            self._change(self._node(event.node), event)

    def _change(self, node: Node, event: Event) -> None:
        if isinstance(event, QuestionEvent):
            node.question, node.depth, node.waits_for = event.question, event.depth, event.waits_for
            node.reason = "..." if event.begun else "waits"
        elif isinstance(event, KnowEvent):
            node.know = event.judgement
        elif isinstance(event, PassagesEvent):
            node.passages = event.passages
        elif isinstance(event, JudgementEvent):
            node.passages[event.passage - 1].judgement = event.judgement
        elif isinstance(event, SufficiencyEvent):
            node.sufficient = event.judgement
        elif isinstance(event, StepEvent):
            node.steps[event.number - 1 : event.number] = [event.step]
        elif isinstance(event, AnswerEvent):
            node.end(event.route, event.reason, event.answer)
            for name in OUTCOME:
                setattr(node, name, getattr(event, name))

    def _node(self, place: str) -> Node:
        if place not in self._nodes:
            self._nodes[place] = Node(question="", answer="")
            self._node(place.rpartition(".")[0]).sub_questions.append(self._nodes[place])
        return self._nodes[place]
