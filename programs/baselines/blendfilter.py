"""BlendFilter: three queries for one question, the passages of each filtered by the LM, one answer from their union."""

from collections.abc import Callable
from functools import partial
from typing import Any

import dspy

from raisf.programs.calls import Run
from raisf.programs.concurrency import Task, gather
from raisf.programs.program import Program
from raisf.programs.questions import is_yes_no
from raisf.programs.steps import generated, judge_listwise, reads_instructions, search, texts, union
from raisf.programs.trace import JudgedPassage, Judgement, Node, Step
from raisf.retrieval.passage import Retriever
from raisf.signatures.reasoning import (
    GroundedReasoning,
    HelpfulPassages,
    PassageReview,
    Reasoning,
    ReviewedPassages,
    Topic,
    WrittenPassage,
)
from raisf.utils.checks import check, check_count, check_switches
from raisf.utils.text import clean

_TOPIC = "Name to yourself the topic of the question, and set aside what you know about it. "
_ASIDE = "Set aside what you know yourself about the topic, and use the passages alone."
_FILTER = (
    "Check each passage step by step. "
    "Then list only the numbers, counted from 1, of the passages that help to answer the question; "
    "give an empty list if there is none."
)
_YES_OR_NO = "The answer is yes or no only."


class BlendFilter(Program):
    """Searches with the question, with a reasoning before it, and with a passage from memory before it; then filters.

    The reasoning (external augmentation) is over the top k of the plain question; the passage (internal augmentation)
    the LM writes from memory. Each query's top k are filtered on their own, and the answer is reasoned over the union
    of what is left. The filter names the question's topic, reviews the passages one by one with its own knowledge of
    the topic set aside, and then gives the numbers of the helpful ones: three calls. A yes/no question takes two,
    without a word of the topic, and is answered with yes or no. A filter that cannot be read keeps nothing; where
    nothing is left at all the answer is reasoned from memory.

    Args:
        retriever: Called as `retriever(query, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages a query.
        use_question: False leaves out the plain question's passages (the paper's "w/o q").
        use_external: False leaves out the external augmentation ("w/o q_ex").
        use_internal: False leaves out the internal augmentation ("w/o q_in").
        yes_no: Whether the form for yes/no questions is taken, as the paper does for StrategyQA alone; None goes by
            each question's own words.
        filter_steps: True filters in the paper's calls; False in one call, which gives the numbers at once; None takes
            one call for the pocket models, which do not follow instructions, and the paper's for all others.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Wang et al. 2024, arXiv 2402.11129, section 3; its options leave out q, q_ex or q_in, as its ablations do.
    """

    system = "blendfilter"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        use_question: bool = True,
        use_external: bool = True,
        use_internal: bool = True,
        yes_no: bool | None = None,
        filter_steps: bool | None = None,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check_switches(use_question=use_question, use_external=use_external, use_internal=use_internal)
        check_switches(yes_no=yes_no is not None and yes_no, filter_steps=filter_steps is not None and filter_steps)
        check("use_internal", use_internal, use_question or use_external or use_internal, "at least one query")
        self.k = k
        self.use_question = use_question
        self.use_external = use_external
        self.use_internal = use_internal
        self.yes_no = yes_no
        self.filter_steps = filter_steps
        self.write = dspy.Predict(WrittenPassage)
        self.topic = dspy.Predict(Topic)
        self.review = dspy.Predict(PassageReview)
        self.choose = dspy.Predict(ReviewedPassages)
        self.filter = dspy.Predict(HelpfulPassages.with_instructions(_TOPIC + _FILTER))
        self.reason_from = dspy.Predict(GroundedReasoning)
        self.reason = dspy.Predict(Reasoning)

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
                reason = "from memory, the filter kept no passage"
                return run.settle(node, "direct", reason, self.reason, **self._form(question, self.reason))
            found = len(union(*(step.passages for step in node.steps)))
            reason = f"from {len(node.passages)} of {found} passages"
            form = self._form(question, self.reason_from)
            run.settle(node, "passages", reason, self.reason_from, passages=texts(node.passages), **form)
        return node

    def _closed(self, question: str) -> bool:
        return is_yes_no(question) if self.yes_no is None else self.yes_no

    def _form(self, question: str, predictor: dspy.Predict) -> dict[str, Any]:
        """What a predictor that answers is told besides its inputs."""
        signature: Any = predictor.signature
        if not self._closed(question):
            return {}
        return {"signature": signature.with_instructions(f"{signature.instructions} {_YES_OR_NO}")}

    def _filtered(self, run: Run, question: str, augment: Callable[[Run, str], str]) -> Step:
        """The search with one query, its passages judged."""
        generation = augment(run, question)
        step = search(run, clean(f"{generation} {question}"), self.k, generation)
        self._filter(run, question, step.passages)
        return step

    def _filter(self, run: Run, question: str, passages: list[JudgedPassage]) -> None:
        steps = reads_instructions(self.filter.lm) if self.filter_steps is None else self.filter_steps
        if steps and passages:
            self._filter_in_steps(run, question, passages)
            return
        form = {"signature": _without(self.filter, _TOPIC)} if self._closed(question) else {}
        judge_listwise(run, self.filter, question, passages, **form)

    def _filter_in_steps(self, run: Run, question: str, passages: list[JudgedPassage]) -> None:
        topic = None if self._closed(question) else run.ask(self.topic, question=question)
        told = {"topic": clean(topic.topic)} if topic else {"signature": _without(self.review, _ASIDE).delete("topic")}
        reviewed = run.ask(self.review, question=question, passages=texts(passages), **told)
        if reviewed:
            judge_listwise(run, self.choose, question, passages, review=clean(reviewed.review))
            return
        for passage in passages:
            passage.judgement = Judgement.unread()

    def _plain(self, run: Run, question: str) -> str:
        return ""

    def _external(self, run: Run, question: str) -> str:
        found = search(run, question, self.k)
        form = self._form(question, self.reason_from)
        return generated(run.ask(self.reason_from, question=question, passages=texts(found.passages), **form))

    def _internal(self, run: Run, question: str) -> str:
        prediction = run.ask(self.write, question=question)
        return clean(prediction.background) if prediction else ""


def _without(predictor: dspy.Predict, sentence: str) -> Any:
    """A predictor's signature whose instructions leave out a sentence."""
    signature: Any = predictor.signature
    return signature.with_instructions(signature.instructions.replace(sentence, "").strip())
