"""What happened while a question was answered: a tree of records that goes to JSON and back."""

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, Field

from raisf.evaluation.confidence import confidence
from raisf.programs.questions import UNKNOWN, is_unknown, normal
from raisf.retrieval.passage import Passage
from raisf.utils.text import clean

Route = Literal[
    "direct",  # answered from memory
    "passages",  # answered from retrieved passages
    "decomposed",  # answered from the answers of sub-questions
    "acted",  # the LM ended its actions with an answer (ReAct)
    "depth",  # deeper than max_depth: not asked
    "cycle",  # equal to a question above it: not asked
    "reference",  # names a sub-question that has no answer: not asked
    "duplicate",  # solved elsewhere in the tree, with the same steps: nothing was asked again
    "no_passages",  # no relevant passages, or too few, and decomposition is switched off
    "no_sub_questions",  # the decomposition gave none
    "max_steps",  # as many actions as it may take, and none of them an answer
    "unreadable",  # no action of the LM could be read
    "withheld",  # answered, with less confidence than min_confidence
    "budget",  # max_calls or max_seconds was spent here
]


UNFINISHED = "not finished"
"""The reason of a node that has not ended."""


class Judgement(BaseModel):
    """What a judge said, or that it said nothing that could be read.

    An unreadable judgement is no verdict: it is no label to learn from, and no table counts it as right or wrong. Only
    the program's way on has a default for it, a cautious one: not known, not relevant.

    Attributes:
        verdict: The label, or None where the LM's output could not be read.
        probability: Of the judge's first label (know, relevant), where the LM gives probabilities.
        readable: False where the LM's output could not be read.
    """

    verdict: str | None
    probability: float | None = None
    readable: bool = True

    @classmethod
    def unread(cls) -> "Judgement":
        """The judgement of a judge whose output could not be read."""
        return cls(verdict=None, readable=False)


class JudgedPassage(BaseModel):
    """A retrieved passage. `citation` says where a reader finds it; `judgement` is None where nobody judged it."""

    pid: str
    title: str
    text: str
    citation: str = ""
    score: float | None = None
    judgement: Judgement | None = None

    @property
    def prompt_text(self) -> str:
        """The passage as one line for a language model."""
        return Passage(self.pid, self.text, self.title).prompt_text

    @property
    def relevant(self) -> bool:
        """Whether the judge said so."""
        return self.judgement is not None and self.judgement.verdict == "relevant"

    @classmethod
    def of(cls, passage: Passage) -> "JudgedPassage":
        """The record of a passage, before it is judged."""
        score = None if passage.score is None else float(passage.score)
        citation = passage.citation if passage.source else ""
        return cls(pid=passage.pid, title=passage.title, text=passage.text, citation=citation, score=score)


class Step(BaseModel):
    """A move of a system that works in steps: it writes something, and may search with it.

    Attributes:
        generation: What the LM wrote: a thought, a reasoning, a passage; empty where the step only searches.
        query: What was searched for; None where nothing was.
        passages: What the search brought and the system took, in the retriever's order.
    """

    generation: str = ""
    query: str | None = None
    passages: list[JudgedPassage] = []


class Cost(BaseModel):
    """What a question cost.

    Attributes:
        lm_calls: LM calls made. One that DSPy's cache answers counts; a transport's own retries do not.
        prompt_tokens: As the LM reports them; a cached call reports none.
        completion_tokens: Likewise.
        unmetered_calls: Calls, once all are over, that told no tokens: DSPy's cache answered them, they failed, or
            their endpoint does not count both.
        retrievals: Searches whose passages were used.
        discarded_retrievals: Others, which ran beside a self-knowledge judge that said know, or that a limit ended.
        seconds: Wall-clock.
    """

    lm_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    unmetered_calls: int = 0
    retrievals: int = 0
    discarded_retrievals: int = 0
    seconds: float = 0.0


def _is_none(value: object) -> bool:
    return value is None


class Node(BaseModel):
    """One question of the tree.

    Attributes:
        question: With "#1" references filled in.
        depth: 0 for the question that was asked.
        route: The way on which the node ended.
        answer: "unknown" where it has none.
        reason: Why it ended so, for a person.
        know: What the self-knowledge judge said; None where it was not asked.
        passages: What was at hand to answer from, in the order of retrieval. RA-ISF reads the relevant ones among
            them; a system that drops passages on its way lists those that it kept.
        steps: What a system that works in steps did, in order.
        sub_questions: In the order of the decomposition.
        waits_for: The numbers, from 1, of the earlier sub-questions beside it whose answers it names.
        evidence: The sentence that the answer was read from.
        found_afterwards: Whether that sentence was looked up by the answer, because the reader quoted none.
        cited: Where the passage that holds it is found: its citation, title or id.
        grounded: Whether the answer's words stand in a passage that was read; None where none was, or for yes and no.
        readable: False where the LM's answer could not be read; it is "unknown" then, for want of any.
        likelihood: How likely the LM found its own answer (`raisf.lm.likelihood`), where it was asked for that.
        sufficient: Whether the relevant passages suffice, where a judge was asked.
        from_passage: The number, from 1, of the passage that was answered from, where each was read alone.
        computed_confidence: Of the question asked, where the program works it out itself (`raisf.programs.confidence`).
        seconds: Wall-clock, waiting included.
    """

    question: str
    depth: int = 0
    route: Route = "budget"
    answer: str = UNKNOWN
    reason: str = UNFINISHED
    know: Judgement | None = None
    passages: list[JudgedPassage] = []
    steps: list[Step] = []
    sub_questions: list["Node"] = []
    waits_for: list[int] = []
    evidence: str | None = None
    found_afterwards: bool = False
    cited: str | None = None
    grounded: bool | None = None
    readable: bool = True
    likelihood: float | None = Field(default=None, exclude_if=_is_none)
    sufficient: Judgement | None = Field(default=None, exclude_if=_is_none)
    from_passage: int | None = Field(default=None, exclude_if=_is_none)
    computed_confidence: float | None = Field(default=None, exclude_if=_is_none)
    seconds: float = 0.0

    @property
    def finished(self) -> bool:
        """Whether the node has ended."""
        return self.reason != UNFINISHED

    def end(self, route: Route, reason: str, answer: str = UNKNOWN) -> "Node":
        """Close the node and return it."""
        self.route, self.answer, self.reason = route, answer, reason  # the reason last: it says that the node is closed
        return self

    def unread(self, route: Route, reason: str) -> "Node":
        """Close the node without an answer, because the LM's could not be read."""
        self.readable = False
        return self.end(route, reason)

    def conclude(self, route: Route, reason: str, answer: object) -> "Node":
        """Close the node with what the LM gave for an answer, which may say that there is none."""
        answer = clean(answer)
        if is_unknown(answer):
            return self.end(route, f"{reason}, but the LM found no answer")
        return self.end(route, reason, answer)

    @property
    def confidence(self) -> float | None:
        """How sure the answer is, by the judges unless the program says otherwise: `raisf.evaluation.confidence`."""
        return confidence(self)

    def walk(self) -> Iterator["Node"]:
        """This node and all below it, a parent before its children."""
        yield self
        for node in self.sub_questions:
            yield from node.walk()


class Trace(BaseModel):
    """A question's whole tree and its cost.

    Attributes:
        system: The program's name, such as "ra-isf".
        root: The question that was asked.
        cost: For the whole tree.
        read: How many LM outputs could be read, judgements and answers together.
        unreadable: How many could not.
        failed: How many calls failed at the endpoint while others were answered; the program went on as after an
            unreadable output.
    """

    system: str
    root: Node = Field(repr=False)  # printed with its prediction, or shown to an agent, the tree would fill pages
    cost: Cost
    read: int = 0
    failed: int = 0
    unreadable: int = 0


def fold_duplicates(root: Node) -> Node:
    """The tree with each repeated piece of work shown once.

    A node is folded into a "duplicate" only where an earlier one (a parent before its children, in order) has the same
    question, went the same way and found the same answers below. The same question at another depth may end
    otherwise, because max_depth cuts it elsewhere; it then stays as it is. So does all where a duplicate would leave
    out that nobody knows how sure its answer is, and the root seem sure.
    """
    seen: set[tuple] = set()

    def visit(node: Node) -> Node:
        shape = _shape(node)
        if shape in seen:
            told = {"depth": node.depth, "waits_for": node.waits_for, "computed_confidence": node.confidence}
            return Node(question=node.question, **told).end("duplicate", "answered above", node.answer)
        if node.route in ("direct", "passages", "decomposed"):
            seen.add(shape)
        return node.model_copy(update={"sub_questions": [visit(child) for child in node.sub_questions]})

    folded = visit(root)
    return folded if folded.confidence == root.confidence else root


def _shape(node: Node) -> tuple:
    return (normal(node.question), node.route, node.answer, *map(_shape, node.sub_questions))
