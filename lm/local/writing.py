"""What a request lets a model write: sampled or likeliest tokens, up to a stop, heard while it grows."""

from typing import TYPE_CHECKING

from raisf.lm.local.decoding import Draft
from raisf.lm.local.jobs import Job
from raisf.lm.local.tokenization import Text

if TYPE_CHECKING:
    import torch


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
        self._generator = None if self.likeliest else _generator(self._config.seed)

    def pick(self, logits: "torch.Tensor") -> int:
        """See `Draft`."""
        import torch
        from transformers import TopPLogitsWarper

        scores = logits.float() / (self._config.temperature or 1.0)
        if (top_p := self._config.top_p) is not None and top_p < 1:
            scores = TopPLogitsWarper(top_p)(torch.empty(0, dtype=torch.long), scores[None])[0]  # pyright: ignore[reportArgumentType]
        weights = scores.softmax(-1).cpu()
        return int(torch.multinomial(weights, 1, generator=self._generator))

    def ended(self) -> bool:
        """See `Draft`."""
        if self.job.listen is not None:
            self.job.listen(self.written)
        self.finished = self.tokens[-1] in self._ends or any(
            # A token is at least one byte, so a stop's last bytes lie in as many tokens.
            stop in self._text.decode(self.tokens[-len(stop.encode()) :], False)
            for stop in self._config.stop
        )
        return self.finished

    @property
    def written(self) -> str:
        """Its text, up to the stop."""
        written = self._text.decode([token for token in self.tokens if token not in self._ends], True)
        for stop in self._config.stop:
            written = written.split(stop)[0]
        return written


def _generator(seed: int | None) -> "torch.Generator":
    import torch

    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(seed)
