"""The requests of an engine on their way: what each asks of a model, and how they are put together into batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dspy.lm15 import (
    ContextLengthError,
    DataPart,
    Message,
    Request,
    Response,
    TokenLogprob,
    UnsupportedFeatureError,
    Usage,
)

from raisf.lm.local.decoding import MAX_ROWS, Draft
from raisf.lm.local.multi_lora import BASE, Slot
from raisf.lm.local.prefixes import Prefix
from raisf.lm.local.probes import Probe, check_labels
from raisf.lm.local.token_tree import common_length
from raisf.lm.local.tokenization import Text
from raisf.lm.verdicts import asked_labels
from raisf.utils.errors import chain_of
from raisf.utils.gpu import gpu_trouble

# Tokens that a batch may add to its first prompt: (scoring, reading what is continued). The mask of a scoring pass
# grows with the square of its tokens; on the CPU passes of some 400 tokens were the fastest, for prompts of 80 to 300.
MAX_TOKENS = {"cpu": (320, 4096), "cuda": (4096, 32768)}
# What a token of a cached prefix takes of a batch, beside one that is computed.
KEPT_TOKEN = 0.25
DEFAULT_MAX_TOKENS = 256

D = TypeVar("D", bound=Draft)
J = TypeVar("J")


@dataclass
class Job:
    """A request on its way: what to compute, and where the answer goes."""

    request: Request
    prompt: list[int]
    lora: Slot = BASE
    prefix: Prefix | None = None  # what it begins with, where that is kept
    listen: Callable[[str], None] | None = None  # is told what was written so far, in the worker's thread
    future: Future[Any] = field(default_factory=Future)
    name: str = ""
    labels: dict[str, list[int]] = field(default_factory=dict)  # prompt and label together
    probe: Probe | None = None  # gives the labels' probabilities instead of the label tokens
    layers: tuple[int, ...] = ()  # whose states at the prompt's last token are read
    start: int = 0  # the first token that is not the same for prompt and labels
    limit: int = 0  # tokens to generate at most

    @property
    def scored(self) -> bool:
        """Whether one forward pass answers it, and nothing is written."""
        return bool(self.labels or self.layers)

    @property
    def over(self) -> bool:
        """Whether its caller has been told, or waits no more: whoever cancels the future has left."""
        return self.future.done()

    def answer(self, response: Any) -> None:
        """Tell the caller the answer, if he still waits."""
        if not self.over and self.future.set_running_or_notify_cancel():
            self.future.set_result(response)

    def respond(
        self,
        content: str | DataPart,
        tokens: int,
        finished: bool = True,
        logprobs: tuple[TokenLogprob, ...] | None = None,
    ) -> None:
        """Tell the caller what was written, or judged.

        Args:
            content: That.
            tokens: How many were written.
            finished: Whether the text ended by itself.
            logprobs: The tokens' log-probabilities, where they were asked for.
        """
        self.answer(
            Response(
                id=None,
                model=self.request.model,
                message=Message.assistant(content),
                finish_reason="stop" if finished else "length",
                usage=Usage(input_tokens=len(self.prompt), output_tokens=tokens),
                logprobs=logprobs,
            )
        )

    def fail(self, error: BaseException) -> None:
        """Tell the caller what went wrong, if he still waits.

        He may keep it for long: what it had no memory for is held by its frames, and these are let go.
        """
        if gpu_trouble(error):
            for one in chain_of(error):
                one.with_traceback(None)
        if not self.over and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


def job_of(
    request: Request,
    text: Text,
    context: int,
    lora: Slot = BASE,
    probe: Probe | None = None,
    layers: tuple[int, ...] = (),
) -> Job:
    """What a request asks of a model.

    Args:
        request: Asks for a text, or for the probabilities of labels.
        text: How the model writes tokens.
        context: How many of them it reads.
        lora: The adapter that answers.
        probe: What reads the labels' probabilities off a hidden state, where the request asks for such.
        layers: Where the states of layers at the prompt's last token are the answer: which.

    Raises:
        InputError: The probe does not know the labels.
        ContextLengthError: The prompt is longer than the context.
        UnsupportedFeatureError: It asks for what a local LM does not do.
    """
    config = request.config
    for name in ("top_k", "frequency_penalty", "presence_penalty"):
        if getattr(config, name) is not None:
            raise UnsupportedFeatureError(f"a local LM does not know the option {name}", feature=f"config.{name}")
    if config.logprobs:
        raise UnsupportedFeatureError(
            "a local LM gives the log-probabilities of the tokens it writes, and lists no others: ask for logprobs "
            "without top_logprobs",
            feature="config.logprobs",
        )
    if request.tools:
        raise UnsupportedFeatureError("a local LM calls no tools", feature="tools")
    prompt, special = text.of(request)
    job = Job(request, text.encode(prompt, special), lora)
    longest = len(job.prompt)
    if layers:
        job.layers, job.start = layers, len(job.prompt)
    elif config.response_format is not None:
        job.name, labels = asked_labels(request)
        if not labels:
            raise UnsupportedFeatureError(
                "a local LM fills no JSON schema; it scores one choice of labels (probabilities='required')",
                feature="config.response_format",
            )
        if probe is not None:
            check_labels(probe, labels)
            job.probe, job.layers, job.start = probe, (probe.layer,), len(job.prompt)
        else:
            longest = _score_labels(job, text, prompt, labels, special)
    else:
        job.limit = min(config.max_tokens or DEFAULT_MAX_TOKENS, context - len(job.prompt))
        longest = len(job.prompt) + 1
    if longest > context:
        raise ContextLengthError(f"the prompt is {longest:,} tokens long and the model reads {context:,} at most")
    return job


def _score_labels(job: Job, text: Text, prompt: str, labels: Sequence[str], special: bool) -> int:
    """Lets a job score labels after its prompt; gives the tokens of the longest of both together."""

    def ended(end: object) -> dict[str, tuple[list[int], int]]:
        return {label: text.completed(prompt, f" {label}{end}", special, job.prompt) for label in labels}

    read = ended("")
    if _begin_alike([tokens for tokens, _ in read.values()]):  # else the shorter would always be as likely
        read = ended((*job.request.config.stop, text.tokenizer.eos_token or "\n")[0])
    job.labels = {label: tokens for label, (tokens, _) in read.items()}
    job.start = min(start for _, start in read.values())
    return max(len(tokens) for tokens in job.labels.values())


def _begin_alike(read: Sequence[list[int]]) -> bool:
    """Whether one label goes on where another ends."""
    return any(one is not other and other[: len(one)] == one for one in read for other in read)


def scorings(jobs: Iterable[Job], device: str) -> Iterator[list[Job]]:
    """Cut jobs that ask for the probabilities of labels into batches.

    Adapters and cached prefixes mix within a batch: a prefix saves what it holds and never costs a batch of its own.
    """
    # Shared beginnings together; what different adapters make of the same beginning cannot be shared.
    return _cut(sorted(jobs, key=lambda job: (job.lora, job.prompt)), _unshared, MAX_TOKENS[device][0])


def batches(lengths: Sequence[int], device: str) -> Iterator[list[int]]:
    """Cut texts of so many tokens, which share nothing, into batches to be scored together; each is its place."""
    return _cut(list(range(len(lengths))), lambda _, place: lengths[place], MAX_TOKENS[device][0])


def readings(drafts: Iterable[D], device: str) -> Iterator[list[D]]:
    """Cut drafts into batches whose prompts are read together; as for `scorings`."""
    return _cut(sorted(drafts, key=_left), lambda _, draft: _cost(draft), MAX_TOKENS[device][1])


def _cut(jobs: list[J], cost: Callable[[J, J], float], limit: int) -> Iterator[list[J]]:
    """Batches whose costs, each job's beside the one before it, stay within the limit."""
    batch: list[J] = []
    spent = 0.0
    for job in jobs:
        spent += cost(batch[-1], job) if batch else 0
        if batch and (len(batch) == MAX_ROWS or spent > limit):
            yield batch
            batch, spent = [], 0
        batch.append(job)
    if batch:
        yield batch


def _unshared(previous: Job, job: Job) -> float:
    whole = _cost(job)
    if previous.lora != job.lora or previous.prefix is not job.prefix:
        return whole
    return min(whole, len(job.prompt) - common_length(previous.prompt, job.prompt))


def _cost(job: Job | Draft) -> float:
    """The tokens that a job adds to a batch; those of a cached prefix are attended to and kept, but not computed."""
    return _left(job) + KEPT_TOKEN * (len(job.prompt) - _left(job))


def _left(job: Job | Draft) -> int:
    return len(job.prompt) - (len(job.prefix.tokens) if job.prefix else 0)
