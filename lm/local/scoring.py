"""What the engine makes of a batch that is read once: the probabilities of labels, or hidden states."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dspy.lm15 import DataPart

from raisf.lm.local import inference
from raisf.lm.local.jobs import Job
from raisf.lm.local.multi_lora import Loras
from raisf.lm.verdicts import verdict_part

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def answers(
    batch: Sequence[Job], model: "PreTrainedModel", loras: Loras, compute: Any
) -> Iterator[tuple[Job, DataPart | np.ndarray, int]]:
    """What each job asked for, all in one forward pass.

    Args:
        batch: Of jobs that are `scored`, with adapters, probes and neither in any mix.
        model: The base.
        loras: Its adapters.
        compute: See `raisf.lm.local.engine.InferenceEngine.compute`.

    Yields:
        A job, the probabilities of its labels or the states (layers, width), and how many tokens were written.
    """
    # A label is read behind its prompt; for a hidden state the prompt alone is.
    rows = [(job, tokens) for job in batch for tokens in _sequences(job)]
    sequences, starts = [tokens for _, tokens in rows], [job.start for job, _ in rows]
    slots, prefixes = [job.lora for job, _ in rows], [job.prefix for job, _ in rows]
    given: list[Any] = [model, sequences, starts, slots, loras, prefixes]
    logprobs: list[float]
    states: list[Any] = []
    if any(job.layers for job in batch):
        logprobs, states[:] = inference.read(*given, layers=[job.layers for job, _ in rows])
    else:
        logprobs = compute.score(*given)
    row = 0
    for job in batch:
        if job.probe is not None:
            yield job, verdict_part(job.name, job.probe.probabilities(states[row][0]), "provider_classification"), 0
        elif job.layers:
            yield job, states[row], 0
        else:
            found = normalise(dict(zip(job.labels, logprobs[row:], strict=False)))
            written = len(job.labels[max(found, key=found.__getitem__)]) - job.start
            yield job, verdict_part(job.name, found, "candidate_sequence_likelihood"), written
        row += len(_sequences(job))


def _sequences(job: Job) -> list[list[int]]:
    return list(job.labels.values()) or [job.prompt]


def normalise(logprobs: dict[str, float]) -> dict[str, float]:
    """Probabilities that add up to 1, from log-probabilities (natural logarithm) that need not."""
    highest = max(logprobs.values())
    weights = {label: math.exp(logprob - highest) for label, logprob in logprobs.items()}
    return {label: weight / sum(weights.values()) for label, weight in weights.items()}
