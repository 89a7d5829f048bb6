"""Self-RAG: retrieve only on demand, answer from each passage, and let the critique choose."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

import dspy

from raisf.lm.likelihood import ASKED, gives_logprobs, written
from raisf.lm.local.model import LocalLM
from raisf.lm.local.reflection import RELEVANCE, RETRIEVAL, SUPPORT, USEFULNESS, Reflection, plain, reflect, reflects
from raisf.programs.calls import Run
from raisf.programs.citations import cite
from raisf.programs.concurrency import Task, gather
from raisf.programs.program import Program
from raisf.programs.questions import is_unknown
from raisf.programs.steps import reader, search
from raisf.programs.trace import JudgedPassage, Judgement, Node, Step
from raisf.retrieval.passage import Retriever
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.critique import RetrievalNeed, Support, Usefulness
from raisf.signatures.judges import PassageRelevance
from raisf.utils.checks import check, check_count, is_number
from raisf.utils.text import clean, counted
from raisf.utils.usage import count_tokens

# What each label of a critique is worth, as in the paper.
_SUPPORT = {"fully": 1.0, "partially": 0.5, "none": 0.0}
_USEFULNESS = {"1": -1.0, "2": -0.5, "3": 0.0, "4": 0.5, "5": 1.0}
_TOKENS = dict(zip(SUPPORT, _SUPPORT.values(), strict=True)) | dict(zip(USEFULNESS, _USEFULNESS.values(), strict=True))

# What the checkpoints were trained on (their model card).
_PROMPT = "### Instruction:\n{question}\n\n### Response:\n"
_PARAGRAPH = "[Retrieval]<paragraph>{title}\n{text}</paragraph>"


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An answer from one passage."""

    answer: str
    evidence: str
    score: float
    shown: str


class SelfRAG(Program):
    """Decides whether to retrieve; then answers from each passage alone and takes the answer of the best score.

    The score is exp(mean log-probability of the answer) + relevance + support + usefulness, each weighted. The critique
    counts with its labels' probabilities where the LM gives them, else with the label alone, and with nothing where it
    cannot be read; the first term is 1 where the LM gives no log-probabilities. An unreadable decision retrieves.

    The paper's own checkpoints (selfrag/...) in the process critique with their reflection tokens, whose probabilities
    count: retrieval and relevance before anything else is written, support and usefulness where they are written first,
    else with nothing. Their prompt is the one that they were trained on, so demonstrations do nothing for them. Any
    other LM is prompted for each judgement.

    Args:
        retriever: Called as `retriever(question, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages retrieved, each with an answer of its own.
        threshold: It retrieves above this probability of "yes"; where the LM gives none, at "yes".
        relevance_weight: Of the passage's relevance in the score.
        support_weight: Of the answer's support by the passage.
        usefulness_weight: Of the answer's usefulness.
        evidence: False answers at once, as the paper's; True quotes the sentence that holds the answer first.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Asai et al. 2024, arXiv 2310.11511, section 3.3, with its threshold of 0.2 and its weights of 1, 1 and 0.5.
    """

    system = "self-rag"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        threshold: float = 0.2,
        relevance_weight: float = 1.0,
        support_weight: float = 1.0,
        usefulness_weight: float = 0.5,
        evidence: bool = True,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check("threshold", threshold, is_number(threshold) and 0 <= threshold < 1, "a probability, from 0 to below 1")
        weights = {"relevance": relevance_weight, "support": support_weight, "usefulness": usefulness_weight}
        for name, weight in weights.items():
            check(f"{name}_weight", weight, is_number(weight), "a number")
        self.k = k
        self.threshold = threshold
        self.relevance_weight = relevance_weight
        self.support_weight = support_weight
        self.usefulness_weight = usefulness_weight
        self.need = dspy.Predict(RetrievalNeed)
        self.answer_directly = dspy.Predict(DirectAnswer)
        self.evidence = evidence
        self.answer_from = reader(evidence)
        self.relevant = dspy.Predict(PassageRelevance)
        self.support = dspy.Predict(Support)
        self.useful = dspy.Predict(Usefulness)

    def _answer(self, run: Run, question: str) -> Node:
        lm: Any = self.answer_from.lm or dspy.settings.lm
        with run.node(question) as node:
            if reflects(lm):
                self._reflect(run, node, lm)
            else:
                self._ask(run, node)
        return node

    def _ask(self, run: Run, node: Node) -> None:
        """Each judgement and each answer is asked for."""
        if not self._needs(run, node):
            run.settle(node, "direct", "from memory", self.answer_directly)
            return
        node.passages = search(run, node.question, self.k).passages
        _choose(node, gather([Task(partial(self._candidate, run, node.question, p)) for p in node.passages]))

    def _reflect(self, run: Run, node: Node, lm: LocalLM) -> None:
        """The LM writes judgements and answers in one, in its reflection tokens."""
        prompt = _PROMPT.format(question=plain(node.question))
        (first,) = _write(run, lm, [prompt], limit=1)
        if not self._decided(node, first.probabilities[RETRIEVAL[0]]):
            (said,) = _write(run, lm, [prompt + RETRIEVAL[1]])
            if said.finished:
                node.conclude("direct", "from memory", said.text)
            else:
                node.unread("direct", "from memory, but the LM's answer was cut off")
            return
        node.passages = search(run, node.question, self.k).passages
        paragraphs = [_PARAGRAPH.format(title=plain(p.title), text=plain(p.text)) for p in node.passages]
        written = _write(run, lm, [prompt + paragraph for paragraph in paragraphs])
        _choose(node, [self._read(said, p) for said, p in zip(written, node.passages, strict=True)])

    def _needs(self, run: Run, node: Node) -> bool:
        prediction = run.ask(self.need, question=node.question)
        told = bool(prediction and prediction.get("probabilities"))
        return self._decided(node, _probabilities(self.need, prediction).get("yes", 1.0), told)

    def _decided(self, node: Node, probability: float, told: bool = True) -> bool:
        """Whether it looks something up; the record says how probable that is where the LM told it."""
        needs = probability > self.threshold
        sure = f", p={probability:.2f}" if told else ""
        node.steps.append(Step(generation=f"Look something up? {'yes' if needs else 'no'}{sure}"))
        return needs

    def _read(self, said: Reflection, passage: JudgedPassage) -> _Candidate | None:
        """What a checkpoint with reflection tokens made of a passage."""
        relevance = said.probabilities[RELEVANCE[0]]
        verdict = "relevant" if relevance >= said.probabilities[RELEVANCE[1]] else "irrelevant"
        passage.judgement = Judgement(verdict=verdict, probability=relevance)
        answer = clean(said.text)
        if is_unknown(answer) or not said.finished:
            return None
        support, useful = (
            sum(_TOKENS[token] * said.probabilities.get(token, 0.0) for token in group)
            for group in (SUPPORT, USEFULNESS)
        )
        return self._scored(answer, "", _fluency(said.logprobs), relevance, support, useful)

    def _candidate(self, run: Run, question: str, passage: JudgedPassage) -> _Candidate | None:
        """The answer from one passage with its score; None where there is none."""
        text = passage.prompt_text
        passage.judgement = run.judge(self.relevant, question=question, passage=text)
        asked = {"config": ASKED} if gives_logprobs(self.answer_from.lm or dspy.settings.lm) else {}
        prediction = run.ask(self.answer_from, question=question, passages=[text], **asked)
        answer = clean(prediction.answer) if prediction else ""
        if prediction is None or is_unknown(answer):
            return None
        support = run.ask(self.support, question=question, passage=text, answer=answer)
        useful = run.ask(self.useful, question=question, answer=answer)
        relevance = passage.judgement.probability
        return self._scored(
            answer,
            clean(prediction.get("evidence")),
            _fluency(written(prediction, prediction.answer)),
            float(passage.relevant) if relevance is None else relevance,
            _worth(_probabilities(self.support, support), _SUPPORT),
            _worth(_probabilities(self.useful, useful), _USEFULNESS),
        )

    def _scored(
        self, answer: str, evidence: str, fluency: float, relevance: float, support: float, usefulness: float
    ) -> _Candidate:
        terms = {
            "fluency": fluency,
            "relevance": self.relevance_weight * relevance,
            "support": self.support_weight * support,
            "usefulness": self.usefulness_weight * usefulness,
        }
        score = sum(terms.values())
        shown = " + ".join(f"{name} {value:.2f}" for name, value in terms.items())
        return _Candidate(answer, evidence, score, f"{answer}: {score:.2f} = {shown}")


def _choose(node: Node, tries: Sequence[_Candidate | None]) -> None:
    """Ends the node with the best candidate."""
    found = [(number, candidate) for number, candidate in enumerate(tries, 1) if candidate]
    node.steps += [Step(generation=candidate.shown) for _, candidate in found]
    if not found:
        node.end("passages", f"from {counted(len(node.passages), 'passage')}, but none gave an answer")
        return
    number, candidate = max(found, key=lambda pair: pair[1].score)  # the retriever's order breaks ties
    reason = f"from passage {number} of {len(node.passages)}, score {candidate.score:.2f}"
    node.end("passages", reason, candidate.answer)
    node.from_passage = number
    passage = node.passages[number - 1]
    cite(node, candidate.evidence, [passage.prompt_text])
    if passage.judgement and node.grounded is not False:
        node.computed_confidence = passage.judgement.probability  # of this passage, not of the most relevant one


def _write(run: Run, lm: LocalLM, prompts: Sequence[str], limit: int | None = None) -> list[Reflection]:
    """What an LM with reflection tokens writes after each prompt, which is a call of the budget.

    Raises:
        BudgetSpent: There are not as many calls left, or no time.
    """
    if not prompts:
        return []
    found = run.in_time(lambda: reflect(lm, prompts, limit), len(prompts))
    completion_tokens = sum(len(one.logprobs) for one in found)
    count_tokens(lm, sum(one.prompt_tokens for one in found), completion_tokens, len(prompts))
    for one in found:
        # One that was to write a single token has said what it was asked.
        run.count_read(one.finished or limit == 1)
    return found


def _probabilities(predictor: dspy.Predict, prediction: dspy.Prediction | None) -> dict[str, float]:
    """Each label's probability; 1 for the verdict where the LM gives none; nothing where it could not be read."""
    if prediction is None:
        return {}
    name, field = [*cast(Any, predictor.signature).output_fields.items()][-1]
    return prediction.get("probabilities") or {
        label: float(label == prediction[name]) for label in get_args(field.annotation)
    }


def _worth(probabilities: dict[str, float], values: dict[str, float]) -> float:
    return sum(values[label] * probability for label, probability in probabilities.items())


def _fluency(logprobs: Sequence[float]) -> float:
    """exp(mean log-probability) of the tokens written; 1 where nobody tells."""
    return math.exp(sum(logprobs) / len(logprobs)) if logprobs else 1.0
