"""The requests of an engine on their way, and how they are put together into batches."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

from dspy.lm15 import Request, Response

from lm.inference import common_length
from lm.multi_lora import BASE, Slot
from lm.prefixes import Prefix

# Rows of a decoding batch. Beyond some tens the CPU is busy with arithmetic and gains nothing more.
MAX_ROWS = 32
# Tokens that a batch may add to its first prompt: (scoring, generation). The mask of a scoring pass grows with the
# square of its tokens; on the CPU passes of some 400 tokens were the fastest, for prompts of 80 to 300 tokens.
MAX_TOKENS = {"cpu": (320, 4096), "cuda": (4096, 32768)}


@dataclass
class Job:
    """A request on its way: what to compute, and where the answer goes."""

    request: Request
    prompt: list[int]
    lora: Slot = BASE
    prefix: Prefix | None = None  # what it begins with, where that is kept
    future: Future[Response] = field(default_factory=Future)
    name: str = ""
    labels: dict[str, list[int]] = field(default_factory=dict)  # prompt and label together
    start: int = 0  # the first token that is not the same for prompt and labels
    limit: int = 0  # tokens to generate at most


def batches(jobs: Iterable[Job], device: str) -> Iterator[list[Job]]:
    """Cut jobs into batches, each of one kind: all scored, or all generated; all after one prefix, or none.

    Adapters mix where there is no prefix.
    """
    jobs = list(jobs)
    branches, padded = MAX_TOKENS[device]
    # Shared beginnings together; what different adapters make of the same beginning cannot be shared.
    scored = sorted((job for job in jobs if job.labels), key=lambda job: (_prefix(job), job.lora, job.prompt))
    generated = sorted((job for job in jobs if not job.labels), key=lambda job: (_prefix(job), len(job.prompt)))
    yield from _cut(scored, _unshared, branches)
    yield from _cut(generated, _width, padded)


def _cut(jobs: list[Job], cost: Callable[[Job, Job], int], limit: int) -> Iterator[list[Job]]:
    """Batches whose costs, each job's beside the one before it, stay within the limit."""
    batch: list[Job] = []
    spent = 0
    for job in jobs:
        spent += cost(batch[-1], job) if batch else 0
        if batch and (len(batch) == MAX_ROWS or spent > limit or batch[-1].prefix is not job.prefix):
            yield batch
            batch, spent = [], 0
        batch.append(job)
    if batch:
        yield batch


def _prefix(job: Job) -> tuple[Slot, list[int]]:
    return (job.prefix.lora, job.prefix.tokens) if job.prefix else (BASE, [])


def _unshared(previous: Job, job: Job) -> int:
    if previous.lora != job.lora:
        return len(job.prompt)
    return len(job.prompt) - common_length(previous.prompt, job.prompt)


def _width(_: Job, job: Job) -> int:
    return len(job.prompt)
