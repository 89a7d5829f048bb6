"""One question asked: what came of it, what it cost, and the record that is kept of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.utils.callback import BaseCallback

from raisf.evaluation.examples import GOLD, gold_answers, gold_field, gold_passages, is_gap, question_id
from raisf.evaluation.metrics import accuracy, exact_match, precision_at_k, recall_at_k, token_f1
from raisf.retrieval.passage import called_by
from raisf.utils.text import answer_text, composed
from raisf.utils.usage import Calls, heard_by, metered_calls, shared_usage, telling, tokens_of

# Of a trace's cost, and of a trace: what DSPy does not see.
_SEARCHES, _READ = ("retrievals", "discarded_retrievals"), ("read", "unreadable")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question asked: its prediction or its error, the seconds it took, and what it asked of LMs.

    `cost` names LM calls and tokens as `raisf.programs.trace.Cost` does, of a module of anyone's; of one that hands on
    one of several traces, searches and what could be read too, over all of these.
    """

    example: dspy.Example
    prediction: dspy.Prediction | None
    error: Exception | None
    seconds: float
    cost: dict[str, int] = field(default_factory=dict)


class _Traces(BaseCallback):
    """Keeps the traces of the programs of ours that run, whoever asks them and however often they are handed on."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """A module ends."""
        if (trace := _trace_of(outputs)) is not None:
            self.found[id(trace)] = trace

    def together(self) -> dict[str, int]:
        """What all of them searched for, and could read of what LMs gave."""
        traces = list(self.found.values())
        searched = {name: sum(getattr(one.cost, name) for one in traces) for name in _SEARCHES}
        return searched | {name: sum(getattr(one, name) for one in traces) for name in _READ}


def ask_one(program: Callable[..., dspy.Prediction], example: dspy.Example) -> Outcome:
    """Asks a program the question of an example; its error is part of the outcome.

    A program that goes on without a call that failed gives an answer that the same LM may not give again: that call's
    error is the outcome's.
    """
    prediction, error, calls, traces = None, None, Calls(), _Traces()
    start = time.perf_counter()
    # A trace list of its own: the workers' calls would pile up in the caller's.
    with shared_usage() as usage, dspy.context(trace=[]), heard_by(calls, traces):
        try:
            prediction = program(question=example.question)
        except Exception as raised:
            error = raised
    seconds = time.perf_counter() - start
    if error is None and calls.failure is not None:
        prediction, error = None, calls.failure
    if dspy.settings.track_usage and isinstance(prediction, dspy.Prediction):
        prediction.set_lm_usage(usage.get_total_tokens())  # which DSPy does where nobody else counts
    metered = metered_calls(usage)
    made = max(calls.lm_calls, len(metered))
    cost = {"lm_calls": made, "unmetered_calls": made - telling(metered), **tokens_of(metered)}
    if _trace_of(prediction) is not None and len(traces.found) > 1:
        cost |= traces.together()
    return Outcome(example, prediction, error, seconds, cost)


def record_of(outcome: Outcome) -> dict[str, Any]:
    """What is kept of a question that was asked, as `docs/formats.md` describes it."""
    example, prediction, error = outcome.example, outcome.prediction, outcome.error
    answers = gold_answers(example)
    answer = answer_text(prediction.get("answer"), answers) if prediction is not None else None
    scoring = example.get("scoring")
    trace = _trace_of(prediction)
    root = trace.root if trace is not None else None
    cost = trace.cost.model_dump() if trace is not None else {}
    asked = dict(outcome.cost)
    read = {name: asked.pop(name, getattr(trace, name, 0)) for name in _READ}
    # A module of anyone's may hand on the trace of ours and ask besides. What a failed question cost is in no mean.
    if error is None and asked.get("lm_calls", 0) > cost.get("lm_calls", -1):
        cost |= asked
    return {
        "id": question_id(example),
        "question": example.question,
        "answers": answers,
        "kind": None if is_gap(example.get("kind")) else str(example.kind),
        "hops": gold_field(example, "hops"),
        "gold": {
            name: value for name in (*GOLD, "sub_titles", "scoring") if (value := gold_field(example, name)) is not None
        },
        "prediction": answer,
        "em": 0.0 if answer is None else exact_match(answer, answers, scoring),
        "f1": 0.0 if answer is None else token_f1(answer, answers, scoring),
        "accuracy": 0.0 if answer is None else accuracy(answer, answers, scoring),
        "route": root.route if root is not None else None,
        **_retrieval(example, trace),
        "cost": {**cost, "seconds": round(outcome.seconds, 4)},
        "readable": root.readable if root is not None else None,
        **read,
        "error": f"{type(error).__name__}: {error}" if error is not None else None,
        "trace": _without_texts(trace.model_dump(mode="json")) if trace is not None else None,
    }


def _trace_of(prediction: Any) -> Any:
    """How a program of ours came to its answer; a field of that name in others' predictions may be anything."""
    trace = getattr(prediction, "trace", None)
    return trace if hasattr(trace, "root") and hasattr(trace, "cost") else None


def _retrieval(example: dspy.Example, trace: Any) -> dict[str, Any]:
    """Recall and precision of the root's passages, by ids where gold has them, else by titles."""
    gold, by_id = gold_passages(example)
    if trace is None or not gold:
        return {"k": trace and (len(trace.root.passages) or None), "recall": None, "precision": None}
    root = trace.root
    passages = root.passages
    if not passages:  # nothing was found, or nothing kept; what is broken down may leave searching to its parts
        in_vain = 0.0 if trace.cost.retrievals and not root.sub_questions else None
        return {"k": None, "recall": in_vain, "precision": in_vain}
    ranked = [called_by(gold, p.pid) if by_id else composed(p.title) for p in passages]
    k = len(passages)
    return {"k": k, "recall": recall_at_k(ranked, gold, k), "precision": precision_at_k(ranked, gold, k)}


def _without_texts(value: Any) -> Any:
    """A dumped trace with its passages' texts emptied: the index holds them, and they are nine tenths of its size."""
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    if isinstance(value, dict):
        return {key: "" if key == "text" else _without_texts(item) for key, item in value.items()}
    return value
