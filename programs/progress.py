"""How far a question has come: the tree while it grows, and what has changed in it since the last look.

Changes are found by comparing the tree with what was told before. So programs only fill in their records, and a
reader that is slow gets fewer events, never more of them to keep.
"""

from collections.abc import Callable, Iterator
from typing import Any

from raisf.programs.events import (
    OUTCOME,
    ROOT,
    AnswerEvent,
    Event,
    JudgementEvent,
    KnowEvent,
    PassagesEvent,
    QuestionEvent,
    StepEvent,
    SufficiencyEvent,
)
from raisf.programs.trace import JudgedPassage, Node


class Growth:
    """A run's tree from its first node on.

    Attributes:
        root: The question that was asked, once it has been begun.
        changed: Called whenever there may be something new, from any thread; it must not block.
    """

    def __init__(self) -> None:
        self.root: Node | None = None
        self.changed: Callable[[], None] | None = None
        self._begun: set[int] = set()
        self._open: set[int] = set()
        self._told: dict[tuple[Any, ...], Any] = {}

    def begin(self, node: Node) -> None:
        """Take note that the work on a node begins."""
        self.root = self.root or node
        self._begun.add(id(node))
        self._open.add(id(node))
        self.tell()

    def end(self, node: Node) -> None:
        """Take note that a node has its answer."""
        self._open.discard(id(node))
        self.tell()

    def tell(self) -> None:
        """Call `changed`, if anybody listens."""
        if self.changed is not None:
            self.changed()

    def changes(self) -> list[Event]:
        """What has changed since the last call, a node before those below it."""
        return [] if self.root is None else list(self._changes(ROOT, self.root))

    def _changes(self, place: str, node: Node) -> Iterator[Event]:
        ended = node.finished and id(node) not in self._open
        begun = ended or id(node) in self._begun
        if self._note((place, "question"), (node.question, tuple(node.waits_for), begun)):
            yield QuestionEvent(
                node=place, question=node.question, depth=node.depth, waits_for=list(node.waits_for), begun=begun
            )
        if node.know is not None and self._note((place, "know"), node.know):
            yield KnowEvent(node=place, judgement=node.know)
        yield from self._passages(place, list(node.passages))
        if node.sufficient is not None and self._note((place, "sufficiency"), node.sufficient):
            yield SufficiencyEvent(node=place, judgement=node.sufficient)
        for number, step in enumerate(list(node.steps), 1):
            if self._note((place, "step", number), (step.generation, step.query, _verdicts(step.passages))):
                yield StepEvent(node=place, number=number, step=step.model_copy(deep=True))
        for number, child in enumerate(list(node.sub_questions), 1):
            yield from self._changes(f"{place}.{number}", child)
        outcome = {name: getattr(node, name) for name in OUTCOME}
        if ended and self._note((place, "answer"), (node.answer, node.route, node.reason, *outcome.values())):
            yield AnswerEvent(node=place, answer=node.answer, route=node.route, reason=node.reason, **outcome)

    def _passages(self, place: str, passages: list[JudgedPassage]) -> Iterator[Event]:
        verdicts = _verdicts(passages)
        if self._note((place, "passages"), tuple(pid for pid, _ in verdicts)):
            for number, (_, judgement) in enumerate(verdicts, 1):
                self._note((place, "judgement", number), judgement)
            yield PassagesEvent(node=place, passages=[passage.model_copy() for passage in passages])
            return
        for number, (_, judgement) in enumerate(verdicts, 1):
            if self._note((place, "judgement", number), judgement) and judgement is not None:
                yield JudgementEvent(node=place, passage=number, judgement=judgement)

    def _note(self, what: tuple[Any, ...], value: Any) -> bool:
        """Remember what is told; gives whether it is new or has changed. An empty tuple is no news the first time."""
        if self._told.get(what, ()) == value:
            return False
        self._told[what] = value
        return True


def _verdicts(passages: list[JudgedPassage]) -> tuple[tuple[str, Any], ...]:
    return tuple((passage.pid, passage.judgement) for passage in passages)
