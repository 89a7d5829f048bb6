"""RA-ISF: retrieval-augmented iterative self-feedback (Liu et al. 2024, arXiv 2403.06840)."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import dspy

from raisf.programs.calls import Run
from raisf.programs.concurrency import Task, gather
from raisf.programs.confidence import Confidence, Source
from raisf.programs.program import Program
from raisf.programs.questions import MAX_SUB_QUESTIONS, UNKNOWN, is_unknown, listed, normal, references
from raisf.programs.self_knowledge import Know, draft_inputs, judge_knowledge, knowledge_judge
from raisf.programs.steps import as_facts, facts_of, fill_in, judge_by_score, judge_listwise, next_question, reader
from raisf.programs.trace import JudgedPassage, Judgement, Node
from raisf.retrieval.passage import Passage, Retriever
from raisf.signatures.answers import ComposedAnswer, DirectAnswer
from raisf.signatures.judges import Decomposition, ListwiseRelevance, PassageRelevance, PassagesSufficiency
from raisf.signatures.reasoning import FollowUp
from raisf.utils.checks import check, check_choice, check_count, check_share, check_switches, is_number
from raisf.utils.text import clean

Relevance = Literal["pointwise", "listwise", "score"]
Order = Literal["at_once", "stepwise", "chains"]

# Each is a call; the share hardly gets finer than its own noise beyond.
MAX_SAMPLES = 50


class RAISF(Program):
    """Answers what it knows, reads what is relevant, and breaks down what is left, again and again.

    What runs beside what, what a node may end as, and what it costs is in its trace (`raisf.programs.trace`). A
    question is broken down into at most 10 sub-questions; what an LM lists beyond that is left out.

    Args:
        retriever: Called as `retriever(question, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages retrieved for a question.
        max_depth: The paper's D_th. The question asked is depth 0; a sub-question deeper than this is "unknown".
        relevance: "pointwise" asks of each passage whether it alone is relevant and sufficient, all at the same time
            (Algorithm 1 asks whether it is relevant); "listwise" asks in one call which passages suffice as a set (the
            paper's appendix); "score" asks nobody: the retriever's score s counts as the probability s / (1 + s), so
            fit relevance_threshold.
        use_know: False never asks the self-knowledge judge (the paper's "No SKM").
        use_relevance: False goes from unknown straight to decomposition and retrieves nothing ("No PRM").
        use_decomposition: False answers "unknown" where no passage is relevant ("No QDM").
        evidence: False answers at once, as the paper does; True quotes the sentence that holds the answer first.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.
        know_threshold: The probability in [0, 1] from which on a question counts as known, where the LM gives
            probabilities; `raisf.optimize.optimizers.calibrate` fits it.
        relevance_threshold: The same for a passage to count as relevant. A listwise judge gives no probabilities.
        sufficiency: True asks of the relevant passages whether together they suffice. Where they do not, the question
            is broken down, and the composer is given them beside the sub-answers, as further facts.
        sufficiency_threshold: The probability from which on they suffice.
        insist: True takes it that the relevant passages do not suffice where the reader says "unknown", or what cannot
            be read, and breaks the question down there, where the paper ends.
        decomposition: "at_once" lists all sub-questions in one call (Algorithm 1). "stepwise" asks for the next one in
            view of the answers so far, as Self-Ask does, until it says that they suffice. "chains" lists them before
            any other judge is asked, and answers them first where each names an earlier one ("#1"): what the second
            asks about is not named in the question, so no search for that finds it. All else goes Algorithm 1's way.
        know: How the self-knowledge judge judges. "verbal" asks whether the LM knows the answer, as the paper does. The
            others begin with a draft of the direct answer, which is the answer where it counts as known:
            "confidence" takes the LM's own probability of the draft, "consistency" the share of several samples that
            agree with it, "truth" asks whether the draft is true. Each has probabilities of its own scale: fit
            know_threshold anew. `raisf.programs.self_knowledge` says more.
        samples: Answers that "consistency" compares, the draft among them; each is an LM call.
        confidence: "judges": an answer is as sure as the weakest judgement on its way. "path": as the product of the
            judgements and of the LM's own probability of each answer, where it gives log-probabilities.
        confidence_slope: Of the scaling that makes the confidence a share of right answers, in log-odds;
            `raisf.optimize.confidence` fits it.
        confidence_offset: Likewise.
        min_confidence: An answer with less confidence is kept back: "unknown", with a reason that tells it. One whose
            confidence nobody knows, since the LM gives no probabilities, is given.

    Source:
        Liu et al. 2024, arXiv 2403.06840, section 3, Algorithm 1, Table 2 and Appendix A. The algorithm's line 14
        reads all passages, Eq. 3 only the relevant ones: so does this.
    """

    system = "ra-isf"
    stored: ClassVar = {"know": "self_knowledge"}
    later = frozenset({
        "know", "samples", "confidence", "confidence_slope", "confidence_offset", "min_confidence",
        "sufficiency", "sufficiency_threshold", "decomposition", "insist",
    })  # fmt: skip

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        max_depth: int = 3,
        relevance: Relevance = "pointwise",
        use_know: bool = True,
        use_relevance: bool = True,
        use_decomposition: bool = True,
        evidence: bool = True,
        max_calls: int | None = None,
        max_seconds: float | None = None,
        know_threshold: float = 0.5,
        relevance_threshold: float = 0.5,
        sufficiency: bool = False,
        sufficiency_threshold: float = 0.5,
        decomposition: Order = "at_once",
        know: Know = "verbal",
        samples: int = 5,
        confidence: Source = "judges",
        confidence_slope: float = 1.0,
        confidence_offset: float = 0.0,
        min_confidence: float = 0.0,
        insist: bool = False,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check_count("max_depth", max_depth, 0)
        check_choice("relevance", relevance, Relevance)
        check_share("know_threshold", know_threshold)
        check_share("relevance_threshold", relevance_threshold)
        check_share("sufficiency_threshold", sufficiency_threshold)
        check_choice("decomposition", decomposition, Order)
        check_choice("know", know, Know)
        check_count("samples", samples, 2, MAX_SAMPLES)
        check_choice("confidence", confidence, Source)
        check("confidence_slope", confidence_slope, is_number(confidence_slope) and confidence_slope > 0, "more than 0")
        check("confidence_offset", confidence_offset, is_number(confidence_offset), "a number")
        check_share("min_confidence", min_confidence)
        check_switches(use_know=use_know, use_relevance=use_relevance, use_decomposition=use_decomposition)
        check_switches(sufficiency=sufficiency, insist=insist)
        self.k = k
        self.max_depth = max_depth
        self.relevance = relevance
        self.use_know = use_know
        self.use_relevance = use_relevance
        self.use_decomposition = use_decomposition
        self.evidence = evidence
        self.know_threshold = know_threshold
        self.relevance_threshold = relevance_threshold
        self.sufficiency = sufficiency
        self.sufficiency_threshold = sufficiency_threshold
        self.decomposition: Order = decomposition
        self.self_knowledge: Know = know
        self.samples = samples
        self.confidence: Source = confidence
        self.confidence_slope = confidence_slope
        self.confidence_offset = confidence_offset
        self.min_confidence = min_confidence
        self.insist = insist
        self.know = knowledge_judge(know)
        self.relevant = dspy.Predict(ListwiseRelevance if relevance == "listwise" else PassageRelevance)
        if sufficiency:  # a predictor more would make another program of each that does without
            self.sufficient = dspy.Predict(PassagesSufficiency)
        self.decompose = dspy.Predict(FollowUp if decomposition == "stepwise" else Decomposition)
        self.answer_directly = dspy.Predict(DirectAnswer)
        self.answer_from = reader(evidence)
        self.compose = dspy.Predict(ComposedAnswer)

    def _confidence(self) -> Confidence:
        return Confidence(self.confidence, self.confidence_slope, self.confidence_offset, self.min_confidence)

    def _answer(self, run: Run, question: str) -> Node:
        return self._solve(run, Node(question=question), above=frozenset())

    def _solve(self, run: Run, node: Node, above: frozenset[str]) -> Node:
        """Algorithm 1. `above` holds the questions on the way down from the root: none of them is asked again."""
        question = node.question
        with run.work(node):
            if node.depth > self.max_depth:
                return node.end("depth", f"deeper than max_depth={self.max_depth}")
            if normal(question) in above:
                return node.end("cycle", "the same question stands above it")
            below = above | {normal(question)}
            chains = self.decomposition == "chains" and self.use_decomposition and node.depth < self.max_depth
            if chains and self._along_chain(run, node, below):
                return self._compose(run, node)
            search = run.search(question, self.k) if self.use_relevance else None  # while the next judge thinks
            if self.use_know and self._knows(run, node):
                if search:
                    search.drop()
                return run.settle(
                    node, "direct", "from memory", self.answer_directly, **draft_inputs(self.self_knowledge)
                )
            relevant: list[str] = []
            if search:
                relevant = self._relevant(run, node, run.found(search))
                if relevant and self._suffice(run, node, relevant):
                    reason = f"from {len(relevant)} of {len(node.passages)} passages"
                    return run.settle(node, "passages", reason, self.answer_from, passages=relevant)
            if not self.use_decomposition:
                missing = "the relevant passages do not suffice" if relevant else "no relevant passage"
                return node.end("no_passages", f"{missing}, and decomposition is off")
            if not node.sub_questions:  # else a chain's parts, which gave no answer
                break_down = self._step_by_step if self.decomposition == "stepwise" else self._all_at_once
                if not break_down(run, node, below):
                    return node.unread("no_sub_questions", "the decomposition could not be read")
                if not node.sub_questions:
                    return node.end("no_sub_questions", "the decomposition gave no sub-question")
            # Also when every sub-answer is unknown, as in Algorithm 1: the LM has the last word.
            return self._compose(run, node, relevant)
        return node  # the budget was spent inside the block

    def _compose(self, run: Run, node: Node, relevant: Sequence[str] = ()) -> Node:
        found = sum(sub.answer != UNKNOWN for sub in node.sub_questions)
        reason = f"from {found} of {len(node.sub_questions)} sub-answers"
        if not found and self.use_relevance:  # was nothing relevant, or nothing found in what was?
            reason += f" and {len(relevant)} of {len(node.passages)} passages"
        return run.settle(node, "decomposed", reason, self.compose, facts=[*relevant, *as_facts(node.sub_questions)])

    def _knows(self, run: Run, node: Node) -> bool:
        node.know = self.judge_knowledge(run, node.question)
        return node.know.verdict == "know"

    def judge_knowledge(self, run: Run, question: str) -> Judgement:
        """What the self-knowledge judge says of a question; see `raisf.programs.self_knowledge`."""
        predictors, limits = (self.know, self.answer_directly), (self.know_threshold, self.samples)
        return judge_knowledge(run, self.self_knowledge, *predictors, question, *limits)

    def _relevant(self, run: Run, node: Node, passages: list[Passage]) -> list[str]:
        """The prompt texts of the relevant passages; every judgement goes into the node's record."""
        node.passages = [JudgedPassage.of(passage) for passage in passages]
        if self.relevance == "pointwise":
            self._judge_each(run, node)
        elif self.relevance == "score":
            judge_by_score(node.passages, self.relevance_threshold)
        else:
            judge_listwise(run, self.relevant, node.question, node.passages)
        return [passage.prompt_text for passage in node.passages if passage.relevant]

    def _judge_each(self, run: Run, node: Node) -> None:
        def judge(passage: JudgedPassage) -> None:
            threshold = self.relevance_threshold
            text = passage.prompt_text
            passage.judgement = run.judge(self.relevant, threshold, question=node.question, passage=text)

        gather([Task(partial(judge, passage)) for passage in node.passages])

    def _suffice(self, run: Run, node: Node, relevant: list[str]) -> bool:
        if self.sufficiency:
            threshold = self.sufficiency_threshold
            node.sufficient = run.judge(self.sufficient, threshold, question=node.question, passages=relevant)
            if node.sufficient.verdict != "sufficient":
                return False
        if not (self.insist and self.use_decomposition) or node.depth == self.max_depth:
            return True  # at the lowest depth there is nothing below to ask
        return _finds(run, node, self.answer_from, passages=relevant)

    def _step_by_step(self, run: Run, node: Node, above: frozenset[str]) -> bool:
        """One sub-question after the other; false where the first could not be read. None is asked twice."""
        subs = node.sub_questions
        while len(subs) < MAX_SUB_QUESTIONS:
            prediction = run.ask(self.decompose, question=node.question, facts=facts_of(self.decompose, node))
            if prediction is None:
                return bool(subs)
            if not (text := next_question(prediction.follow_up, subs)):
                return True
            subs.append(Node(question=text, depth=node.depth + 1))
            self._solve(run, subs[-1], above)
        return True

    def _all_at_once(self, run: Run, node: Node, above: frozenset[str]) -> bool:
        """All sub-questions side by side; one that names earlier ones ("#1") waits for those, and for no others.

        False where the LM's list could not be read.
        """
        prediction = run.ask(self.decompose, question=node.question)
        if prediction is None:
            return False
        texts = listed(prediction.sub_questions or [])
        subs = node.sub_questions = [Node(question=text, depth=node.depth + 1) for text in texts]
        tasks: list[Task[Node]] = []
        for number, sub in enumerate(subs, 1):
            named = {earlier: tasks[earlier - 1] for earlier in references(sub.question, before=number)}
            sub.waits_for = list(named)
            tasks.append(Task(partial(self._solve_sub, run, sub, named, above)))
        gather(tasks)
        return True

    def _along_chain(self, run: Run, node: Node, above: frozenset[str]) -> bool:
        """Whether the question is a chain of parts, each of which names an earlier one, and their answers give its."""
        draft = run.draft(self.decompose, question=node.question)
        texts = [] if draft is None else listed(draft.sub_questions or [])
        later = [references(text, before=number) for number, text in enumerate(texts, 1)][1:]
        if not later or not all(later):
            return False
        self._all_at_once(run, node, above)
        found = any(sub.answer != UNKNOWN for sub in node.sub_questions)
        return found and _finds(run, node, self.compose, facts=as_facts(node.sub_questions))

    def _solve_sub(self, run: Run, sub: Node, named: dict[int, Task[Node]], above: frozenset[str]) -> Node:
        known = fill_in(sub, {number: task.get().answer for number, task in named.items()})
        return self._solve(run, sub, above) if known else sub


def _finds(run: Run, node: Node, predictor: dspy.Predict, **inputs: Any) -> bool:
    """Whether the LM finds an answer. It is a draft; where it is the answer, the node takes it up."""
    with dspy.context(send_stream=None):
        asks = run.confidence.asks(predictor.lm or dspy.settings.lm)
        draft = run.draft(predictor, question=node.question, **asks, **inputs)
    return draft is not None and not is_unknown(clean(draft.answer))
