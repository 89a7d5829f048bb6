"""The labelled baseline beside the know judge: how likely the LM finds its own closed-book answer, and a threshold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from raisf.evaluation.judges import JudgeReport, auroc_score, best_cut, verdict_scores
from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import adapter_for
from raisf.optimize.judges.judgements import ask_each, asking
from raisf.optimize.judges.labels import Labels, know_examples
from raisf.optimize.judges.predictor_roles import predictor_of
from raisf.programs.questions import is_unknown
from raisf.signatures.answers import DirectAnswer
from raisf.utils.errors import InputError
from raisf.utils.text import clean

KINDS = {"sum": "the sum over the answer's tokens", "mean": "or their mean"}
# For an LM that says "unknown": less than any answer of some hundred tokens has.
NO_ANSWER = -1e6


@dataclass(frozen=True, slots=True)
class Baseline:
    """One threshold on a log-probability (natural logarithm).

    Attributes:
        threshold: From which on a question counts as known; None where there was nothing to fit it on.
        report: AUROC, and with a threshold the verdicts' measures. A log-probability has no ECE.
        fitted_on: How many training questions the threshold was fitted on.
    """

    threshold: float | None
    report: JudgeReport
    fitted_on: int


def baselines(
    program: dspy.Module,
    questions: Sequence[str],
    gold: Sequence[bool],
    trainset: Sequence[dspy.Example] | None = None,
    *,
    labels: Labels = "model",
    threads: int = 8,
    progress: bool = True,
) -> dict[str, Baseline]:
    """Measure the baselines on the questions that the know judge was measured on, as it met them.

    The program's predictor that answers from memory is asked, whose LM must be a local one; `gold` says whether each
    question is known. The thresholds are fitted on other questions, the training set, by balanced accuracy; without
    these there is the AUROC alone.

    Returns:
        By the kind of log-probability: its sum over the answer's tokens, or their mean.

    Raises:
        InputError: The LM gives no log-probabilities, or all training questions are of one class.
        LMError: The LM failed on ten questions in a row.
    """
    answerer = predictor_of(program, DirectAnswer)
    lm: Any = answerer.lm or dspy.settings.lm
    if not hasattr(lm, "logprob") or not isinstance(adapter_for(lm), CompactAdapter):
        raise InputError(f"{lm.model} gives no log-probability of an answer: the baseline is for local LMs")
    if getattr(lm, "lora", None) is not None:  # told before the questions are asked
        raise InputError(f"{lm.model} gives no log-probability of an answer, because of its LoRA adapter")
    found, kept = _logprobs(answerer, lm, questions, threads, progress)
    if not kept:
        raise InputError(f"{lm.model} gave no readable answer to any of {len(questions)} questions: no baseline")
    gold, questions = [gold[place] for place in kept], [questions[place] for place in kept]
    fitted: dict[str, float] = {}
    fitted_on = 0
    if trainset is not None:
        train = know_examples(trainset, answerer=answerer, labels=labels, threads=threads)
        learnt, places = _logprobs(answerer, lm, [row.question for row in train], threads, progress)
        known = [train[place].verdict == "know" for place in places]
        if all(known) or not any(known):
            what = "known" if all(known) else "unknown"
            raise InputError(f"all {len(known)} training questions are {what}: the baseline's threshold needs both")
        fitted, fitted_on = {kind: best_cut(known, values) for kind, values in learnt.items()}, len(known)
    made = {}
    for kind, values in found.items():
        report = JudgeReport({"auroc": auroc_score(gold, values, questions)})
        if kind in fitted:
            said = [value >= fitted[kind] for value in values]
            report = JudgeReport({**verdict_scores(gold, said, questions), **report.scores})
        made[kind] = Baseline(fitted.get(kind), report, fitted_on)
    return made


def _logprobs(
    answerer: Any, lm: Any, questions: Sequence[str], threads: int, progress: bool
) -> tuple[dict[str, list[float]], list[int]]:
    """By kind, log-probabilities of the LM's own answers with the mark that ends them; and the questions' places.

    A question whose answer could not be read, or whose call failed, has none: that says nothing of what the LM knows.
    """
    rows = [dspy.Example(question=question) for question in questions]
    said, _ = ask_each(asking(answerer), rows, threads, progress, "answering")
    adapter: Any = adapter_for(lm)
    answers = {row.question: clean(outputs.answer) for row, outputs in said if outputs is not None}
    sums, means = [], []
    kept = [place for place, question in enumerate(questions) if question in answers]
    for question in (questions[place] for place in kept):
        answer = answers[question]
        total, tokens = NO_ANSWER, 1
        if not is_unknown(answer):
            prompt = adapter.prompt(answerer.signature, {"question": question}, answerer.demos)
            # Without the blank after the end mark, of which the model was not asked.
            total, tokens = lm.logprob(prompt, adapter.completion(answerer.signature, {"answer": answer}).rstrip())
        sums.append(total)
        means.append(total / tokens)
    return {"sum": sums, "mean": means}, kept
