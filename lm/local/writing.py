"""What a request lets a model write: sampled or likeliest tokens, up to a stop, heard while it grows."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dspy.lm15 import TokenLogprob

from raisf.lm.local.decoding import Draft
from raisf.lm.local.jobs import Job
from raisf.lm.local.tokenization import Text

if TYPE_CHECKING:
    import torch


# Where logits are divided by less, they leave what float32 holds; the likeliest is all that is left long before.
COLDEST = 1e-6


class Answer(Draft):
    """The draft of a request's answer.

    Args:
        job: The request.
        text: How the model writes tokens.
        ends: The tokens after which it has nothing more to say.
    """

    def __init__(self, job: Job, text: Text, ends: set[int]):
        super().__init__(job.prompt, job.limit, job.lora, job.prefix)
        self.job, self._text, self._ends = job, text, ends
        self._config = job.request.config
        self.finished = False  # by the model or a stop, and not by the limit
        self.likeliest = not self._config.temperature
        self.scored = self._config.logprobs is not None
        self._generator = None if self.likeliest else _generator(self._config.seed, job.prompt)

    def pick(self, logits: "torch.Tensor") -> int:
        """See `Draft`."""
        import torch
        from transformers import TopPLogitsWarper

        scores = logits.float() / max(self._config.temperature or 1.0, COLDEST)
        if (top_p := self._config.top_p) is not None and top_p < 1:
            scores = TopPLogitsWarper(top_p)(torch.empty(0, dtype=torch.long), scores[None])[0]  # pyright: ignore[reportArgumentType]
        weights = scores.softmax(-1).cpu()
        return int(torch.multinomial(weights, 1, generator=self._generator))

    def ended(self) -> bool:
        """See `Draft`; also where nobody waits for it any more."""
        if self.job.over:
            return True
        if self.job.listen is not None:
            self.job.listen(self.written)
        self.finished = self.tokens[-1] in self._ends or any(
            # A token is at least one byte, so a stop lies in as many tokens; a tokenizer may drop the space before all.
            stop in self._text.decode(self.tokens[-len(stop.encode()) - 1 :], False)
            for stop in self._config.stop
        )
        return self.finished

    def fail(self, error: Exception) -> None:
        """See `Draft`."""
        self.job.fail(error)

    @property
    def written(self) -> str:
        """Its text, up to the stop."""
        written = self._text.decode([token for token in self.tokens if token not in self._ends], True)
        for stop in self._config.stop:
            written = written.split(stop)[0]
        return written

    @property
    def told(self) -> tuple[TokenLogprob, ...] | None:
        """Its tokens with their log-probabilities, the end mark's among them; None where nobody asked."""
        if not self.scored:
            return None
        pieces = self._text.pieces(self.tokens)
        return tuple(
            TokenLogprob(piece, min(0.0, logprob)) for piece, logprob in zip(pieces, self.logprobs, strict=False)
        )


def _generator(seed: int | None, prompt: list[int]) -> "torch.Generator":
    """What draws an answer's tokens: with a seed, by it and the prompt.

    By the seed alone, all questions of a set would be answered by the same draws: a set's answers to yes or no would be
    one throw of a coin, and no interval over them true.
    """
    import torch

    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(int.from_bytes(hashlib.sha256(f"{seed} {prompt}".encode()).digest()[:8]))


def fail(drafts: Iterable[Answer], error: BaseException) -> None:
    """Tell the callers of some texts what went wrong."""
    for draft in drafts:
        draft.job.fail(error)
