"""REPLUG: one prompt a passage, and the answer that the weighted mean of their token probabilities gives."""

import math
from collections.abc import Sequence
from typing import Any, cast

import dspy
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.connect import adapter_for
from raisf.lm.local.ensemble import answer_together
from raisf.programs.calls import Run
from raisf.programs.citations import cite
from raisf.programs.concurrency import extend_trace
from raisf.programs.program import Program
from raisf.programs.steps import reader, search, texts
from raisf.programs.trace import JudgedPassage, Node
from raisf.retrieval.passage import Retriever
from raisf.utils.checks import check, check_count, is_number
from raisf.utils.text import counted
from raisf.utils.usage import count_tokens


class REPLUG(Program):
    """Reads each of the top k passages in a prompt of its own and mixes the probabilities of every next token.

    A passage counts by the softmax of the retrieval scores, which the paper takes from cosines: scores of another kind
    (BM25's, ColBERT's) are divided by the largest, so that no retriever's scale alone gives one passage all the weight.
    It needs an LM in the process: an endpoint does not give the probabilities. Each passage's prompt counts as a call.

    Args:
        retriever: Called as `retriever(question, k)`; shared by its copies, but for predictors in it. May be set later.
        k: Passages retrieved, each with its prompt.
        temperature: Of the softmax over the scores; the paper's is 1, a lower one trusts the ranking more.
        evidence: False answers at once, as the paper's; True quotes the sentence that holds the answer first.
        max_calls: LM calls a question may make; None for no limit.
        max_seconds: Seconds that a question waits for calls and searches; None for no limit.

    Source:
        Shi et al. 2023, arXiv 2301.12652, section 3: the ensemble. `raisf dense tune` is its LSR, section 4.
    """

    system = "replug"

    def __init__(
        self,
        retriever: Retriever | None = None,
        k: int = 5,
        temperature: float = 1.0,
        evidence: bool = True,
        max_calls: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        super().__init__(retriever, max_calls, max_seconds)
        check_count("k", k)
        check("temperature", temperature, is_number(temperature) and temperature > 0, "a number, more than 0")
        self.k = k
        self.temperature = temperature
        self.evidence = evidence
        self.answer_from = reader(evidence)

    def _answer(self, run: Run, question: str) -> Node:
        with run.node(question) as node:
            node.passages = search(run, question, self.k).passages
            read = [[passage.prompt_text] for passage in node.passages] or [[]]
            prompts = [{"question": question, "passages": passages} for passages in read]
            weights = shares(node.passages, self.temperature) or [1.0]
            prediction = ask_together(run, self.answer_from, prompts, weights)
            reason = f"from {counted(len(node.passages), 'passage')}, mixed token by token"
            if prediction is None:
                return node.unread("passages", f"{reason}, but the LM's answer could not be read")
            node.conclude("passages", reason, prediction.answer)
            cite(node, prediction.get("evidence"), texts(node.passages))
        return node


def ask_together(
    run: Run, predictor: dspy.Predict, prompts: Sequence[dict[str, Any]], weights: Sequence[float]
) -> dspy.Prediction | None:
    """One answer from several prompts, whose token probabilities are mixed. Each prompt is a call of the budget.

    Args:
        run: The question's.
        predictor: Whose LM, signature and demonstrations they share.
        prompts: The inputs of each; the first stands for all in DSPy's trace.
        weights: How much each counts.

    Returns:
        The predictor's outputs, or None where the LM's output could not be read.

    Raises:
        BudgetSpent: There are not as many calls left, or no time.
        InputError: The LM gives no token probabilities.
    """
    lm, signature = predictor.lm or dspy.settings.lm, cast(type[dspy.Signature], predictor.signature)
    mixed = run.in_time(lambda: answer_together(lm, signature, predictor.demos, prompts, weights), len(prompts))
    count_tokens(lm, mixed.prompt_tokens, mixed.completion_tokens, len(prompts))
    try:
        prediction = dspy.Prediction(**adapter_for(lm).parse(signature, mixed.text)) if mixed.finished else None
    except AdapterParseError:
        prediction = None
    run.count_read(prediction is not None)
    if prediction is None:
        return None
    extend_trace([(predictor, prompts[0], prediction)])
    return prediction


def shares(passages: Sequence[JudgedPassage], temperature: float = 1.0) -> list[float]:
    """How much each passage counts; all the same where the retriever gives no scores.

    Args:
        passages: With their scores. Cosines stand as they are; larger numbers are scaled into [-1, 1] first.
        temperature: Of the softmax.

    Source:
        Shi et al. 2023, section 3.2, over the cosines of their equation 1.
    """
    scores = [passage.score or 0.0 for passage in passages]
    scale = max([1.0, *map(abs, scores)]) * temperature
    weights = [math.exp((score - max(scores)) / scale) for score in scores]
    return [weight / sum(weights) for weight in weights]
