"""How RA-ISF's self-knowledge judge judges: by a verdict on the question, as in the paper, or by a draft of the answer.

A draft is the answer from memory itself. So where the judge says know nothing more is asked, and where it says unknown
the draft was an LM call in vain, which the trace counts and DSPy's trace, that optimizers learn from, leaves out.
"""

from functools import partial
from typing import Any, Literal

import dspy

from raisf.evaluation.metrics import exact_match
from raisf.lm.likelihood import ASKED, gives_logprobs, likelihood
from raisf.lm.options import seed_from
from raisf.programs.calls import Run
from raisf.programs.concurrency import Task, gather
from raisf.programs.questions import is_unknown
from raisf.programs.trace import Judgement
from raisf.signatures.judges import AnswerTruth, SelfKnowledge
from raisf.utils.errors import InputError
from raisf.utils.text import clean

Know = Literal["verbal", "confidence", "consistency", "truth"]

# Of the samples of an LM that is set to take the likeliest token; one that samples anyway keeps its own.
TEMPERATURE = 0.7


def knowledge_judge(kind: Know) -> dspy.Predict:
    """The predictor that gives verdicts; the kinds that look at drafts alone leave it unasked."""
    return dspy.Predict(AnswerTruth if kind == "truth" else SelfKnowledge)


def draft_inputs(kind: Know) -> dict[str, Any]:
    """What a direct answer is asked with besides the question, so that a draft made before is taken for it."""
    return {"config": ASKED} if kind == "confidence" else {}


def judge_knowledge(
    run: Run, kind: Know, judge: dspy.Predict, answerer: dspy.Predict, question: str, threshold: float, samples: int
) -> Judgement:
    """Whether the LM knows the answer.

    A draft that says "unknown" has the probability 0, and a draft or verdict that cannot be read is none.

    Args:
        run: Makes the calls.
        kind: "verbal" asks the judge about the question. "confidence" takes the probability of the draft, the product
            of its tokens'. "consistency" takes the share of samples that agree with the draft, itself among them, by
            exact match; those that cannot be read do not count. "truth" asks the judge whether the draft is true.
        judge: Gives verdicts, see `knowledge_judge`.
        answerer: Answers from memory.
        question: The question.
        threshold: The probability from which on it is known.
        samples: How many answers "consistency" compares, the draft among them.

    Raises:
        InputError: "confidence" of an LM that gives no log-probabilities. This ends the question, also where an LM that
            takes the wish leaves it unanswered: what never can be known would else be looked up without a word.

    Source:
        "confidence": Kadavath et al. 2022 (arXiv 2207.05221) compare it; normalised by length, as Malinin and Gales
        2021 do (arXiv 2002.07650), it ranked worse in the closed world and on PopQA. "consistency": Wang et al. 2023
        (arXiv 2203.11171); Manakul et al. 2023 (arXiv 2303.08896). "truth": P(True) of Kadavath et al. 2022, section 3.
    """
    if kind == "verbal":
        return run.judge(judge, threshold, question=question)
    lm: Any = answerer.lm or dspy.settings.lm
    if kind == "confidence" and not gives_logprobs(lm):
        raise _no_logprobs(lm)
    with dspy.context(send_stream=None):  # a draft is nobody's to read yet, and streams carry no log-probabilities
        draft = run.draft(answerer, question=question, **(draft_inputs(kind) or run.confidence.asks(lm)))
        if draft is None:
            return Judgement.unread()
        answer = clean(draft.answer)
        if is_unknown(answer):
            return Judgement(verdict="unknown", probability=0.0)
        if kind == "truth":
            return run.judge(judge, threshold, question=question, answer=answer)
        if kind == "consistency":
            probability = _agreement(run, answerer, lm, question, answer, samples)
        elif (found := likelihood(draft, answer)) is None:
            raise _no_logprobs(lm)
        else:
            probability = found
    return Judgement(verdict="know" if probability >= threshold else "unknown", probability=probability)


def _agreement(run: Run, answerer: dspy.Predict, lm: Any, question: str, draft: str, samples: int) -> float:
    # A model that reasons takes no temperature but its own, at which it samples.
    reasons = "max_completion_tokens" in lm.kwargs
    temperature = lm.kwargs.get("temperature") or (None if reasons else TEMPERATURE)
    drawn = {"temperature": temperature} if temperature else {}
    seeded = "seed" in (getattr(lm, "supported_params", None) or ())
    rollout = lm.kwargs.get("rollout_id")  # who asks for another one wants other samples, too

    def sample(number: int) -> dspy.Prediction | None:
        seed = number if rollout is None else seed_from(f"{rollout}/{number}")
        config = {**drawn, "rollout_id": seed, **({"seed": seed} if seeded else {})}
        return run.draft(answerer, question=question, config=config)

    others = gather([Task(partial(sample, number)) for number in range(1, samples)])
    agree = [exact_match(clean(other.answer), [draft]) for other in others if other is not None]
    return (1 + sum(agree)) / (1 + len(agree))


def _no_logprobs(lm: Any) -> InputError:
    return InputError(
        f"{lm.model} gives no log-probabilities of its answers, which know='confidence' needs: take 'consistency' "
        "(--know consistency), which samples answers, 'truth', or 'verbal'"
    )
