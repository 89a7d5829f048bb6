"""The labelled baseline beside the know judge: how likely the LM finds its own closed-book answer, and a threshold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dspy

from raisf.evaluation.judges import JudgeReport, auroc_score, best_cut, verdict_scores
from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import adapter_for
from raisf.optimize.judges.judge_data import Labels, know_examples
from raisf.optimize.judges.judgements import ask_each
from raisf.optimize.judges.predictor_roles import predictor_of
from raisf.programs.calls import Run
from raisf.programs.questions import clean, is_unknown
from raisf.signatures.answers import DirectAnswer
from raisf.utils.errors import InputError

KINDS = {"sum": "the sum over the answer's tokens", "mean": "or their mean"}
# For an LM that says "unknown", or nothing that can be read: less than any answer of some hundred tokens has.
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
    """Measure the baselines on the questions that the know judge was measured on.

    Args:
        program: Its predictor that answers from memory is asked; that one's LM must be a local one.
        questions: As the judge met them.
        gold: Whether each is known.
        trainset: Other questions, to fit the thresholds on, by balanced accuracy; None gives the AUROC alone.
        labels: See `know_examples`.
        threads: Questions asked at a time.
        progress: Show a bar on stderr.

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
    found = _logprobs(answerer, lm, questions, threads, progress)
    fitted: dict[str, float] = {}
    train: list[dspy.Example] = []
    if trainset is not None:
        train = know_examples(trainset, answerer=answerer, labels=labels, threads=threads)
        known = [row.verdict == "know" for row in train]
        if all(known) or not any(known):
            what = "known" if all(known) else "unknown"
            raise InputError(f"all {len(train)} training questions are {what}: the baseline's threshold needs both")
        learnt = _logprobs(answerer, lm, [row.question for row in train], threads, progress)
        fitted = {kind: best_cut(known, values) for kind, values in learnt.items()}
    made = {}
    for kind, values in found.items():
        report = JudgeReport({"auroc": auroc_score(gold, values, questions)})
        if kind in fitted:
            said = [value >= fitted[kind] for value in values]
            report = JudgeReport({**verdict_scores(gold, said, questions), **report.scores})
        made[kind] = Baseline(fitted.get(kind), report, len(train))
    return made


def _logprobs(answerer: Any, lm: Any, questions: Sequence[str], threads: int, progress: bool) -> dict[str, list[float]]:
    """By kind, a log-probability a question: of the LM's own answer, with the mark that ends it."""
    rows = [dspy.Example(question=question) for question in questions]

    def ask(question: str) -> dspy.Prediction:
        outputs = Run(None, None, None).ask(answerer, question=question)
        return dspy.Prediction(said=clean(outputs.answer) if outputs is not None else "")

    said, _ = ask_each(ask, rows, ("question",), threads, progress, "answering")
    adapter: Any = adapter_for(lm)
    answers = {row.question: answer for row, answer in said}
    sums, means = [], []
    for question in questions:
        answer = answers.get(question, "")
        total, tokens = NO_ANSWER, 1
        if not is_unknown(answer):
            prompt = adapter.prompt(answerer.signature, {"question": question}, answerer.demos)
            # Without the blank after the end mark, of which the model was not asked.
            total, tokens = lm.logprob(prompt, adapter.completion(answerer.signature, {"answer": answer}).rstrip())
        sums.append(total)
        means.append(total / tokens)
    return {"sum": sums, "mean": means}
