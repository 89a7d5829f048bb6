"""Texts that are written token by token, whatever kind of model says what comes next: continuous batching.

The batch grows and shrinks between any two steps: what is asked while others are being written joins them, and what has
come to its end leaves. `transformers` has a continuous batching of its own; it has no adapters that mix within a batch,
and on a CPU it computes one row of all tokens under a mask of all by all.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from raisf.lm.local.multi_lora import BASE, Slot

if TYPE_CHECKING:
    import torch

# Rows of a decoding batch. Beyond some tens the CPU is busy with arithmetic and gains nothing more.
MAX_ROWS = 32
# Rows times columns that a batch may come to: what its keys and values take of memory.
MAX_PLACES = {"cpu": 16384, "cuda": 131072}


class Draft:
    """A text that is being written, from the likeliest tokens; a subclass that wants others overrides `pick`.

    Args:
        prompt: Token ids, at least one.
        limit: The most tokens to add, at least 1.
        lora: The adapter that writes.
        prefix: What the prompt begins with, where that is kept.
    """

    likeliest = True
    scored = False
    """Whether `logprobs` is kept: the log-probability (natural logarithm) of each token that was written."""

    def __init__(self, prompt: list[int], limit: int, lora: Slot = BASE, prefix: Any = None):
        self.prompt, self.limit, self.lora, self.prefix = prompt, limit, lora, prefix
        self.tokens: list[int] = []
        self.logprobs: list[float] = []

    def pick(self, logits: "torch.Tensor") -> int:
        """The next token, from its logits (V,); asked where it is not the likeliest."""
        raise NotImplementedError

    def ended(self) -> bool:
        """Whether the last token was the end."""
        return False

    def fail(self, error: Exception) -> None:
        """Take what `pick` or `ended` raised. If this returns, the draft leaves the batch, and the others go on."""
        raise error


D = TypeVar("D", bound=Draft)


class Rows(Protocol):
    """Prompts that a model continues together, a row each."""

    @property
    def joins(self) -> bool:
        """Whether others may join while there are rows."""
        ...

    def join(self, drafts: Sequence[Draft]) -> "torch.Tensor":
        """Add rows behind the others; the logits (new rows, V) of their first tokens."""
        ...

    def step(self, picked: list[int]) -> "torch.Tensor":
        """The logits (rows, V) of each row's next token, after the tokens picked last."""
        ...

    def part(self, row: int, draft: Draft) -> None:
        """A row is about to leave, with all that was written but the last token."""
        ...

    def keep(self, rows: list[int]) -> None:
        """Go on with these rows alone, in this order; none comes before its own place."""
        ...


class Decoding(Generic[D]):
    """The drafts that are being written.

    `transformers`' own loop costs more than a small model's forward pass; this one does only what is needed here.

    Args:
        rows: Computes.
    """

    def __init__(self, rows: Rows):
        self._rows = rows
        self.drafts: list[D] = []

    @property
    def open(self) -> bool:
        """Whether anybody may join now."""
        return not self.drafts or self._rows.joins

    def admitted(self, waiting: deque[D], device: str, most: int | None = None) -> list[D]:
        """Takes from the queue, in its order, those for whom there is room, in `most` places if given."""
        taken: list[D] = []
        if not self.open:
            return taken
        width = max((_columns(draft) for draft in self.drafts), default=0)
        while waiting and (count := len(self.drafts) + len(taken)) < MAX_ROWS:
            width = max(width, _columns(waiting[0]))
            if count and (count + 1) * width > (most or MAX_PLACES[device]):
                break
            taken.append(waiting.popleft())
        return taken

    def fewer_places(self, drafts: Sequence[D], error: BaseException) -> int | None:
        """In how many places to try again where the device had no memory for some more; None where that is in vain."""
        import torch

        rows, begun = [*self.drafts, *drafts], drafts[0] in self.drafts or drafts[0].tokens
        if begun or len(rows) == 1 or not isinstance(error, torch.OutOfMemoryError):
            return None
        return len(rows) * max(map(_columns, rows)) // 2

    def join(self, drafts: Sequence[D]) -> list[D]:
        """Read some prompts and write their first tokens; gives the drafts that have ended."""
        logits = self._rows.join(drafts)
        self.drafts += drafts
        return self._go_on(len(self.drafts) - len(drafts), logits)

    def step(self) -> list[D]:
        """Write a token of each draft; gives those that have ended."""
        return self._go_on(0, self._rows.step([draft.tokens[-1] for draft in self.drafts]))

    def _go_on(self, first: int, logits: "torch.Tensor") -> list[D]:
        likeliest = logits.argmax(-1).tolist()
        ended = []
        for row in range(len(self.drafts) - 1, first - 1, -1):
            draft = self.drafts[row]
            try:
                draft.tokens.append(likeliest[row - first] if draft.likeliest else draft.pick(logits[row - first]))
                over = draft.ended() or len(draft.tokens) >= draft.limit
            except Exception as error:
                draft.fail(error)
                over = True
            if over:
                ended.append(row)
        self._note(first, logits)
        if not ended:
            return []
        found = [self.drafts[row] for row in ended]
        for row, draft in zip(ended, found, strict=True):
            self._rows.part(row, draft)
        rows = list(range(len(self.drafts)))
        for row in ended:  # from the last on: the last that stays takes its place
            rows[row] = rows[-1]
            rows.pop()
        self.drafts = [self.drafts[row] for row in rows]
        self._rows.keep(rows)
        return found

    def _note(self, first: int, logits: "torch.Tensor") -> None:
        """Keep how likely the model finds what was just written, of the drafts that ask for it; at temperature 1."""
        drafts = [(row - first, draft) for row, draft in enumerate(self.drafts) if row >= first and draft.scored]
        drafts = [(row, draft) for row, draft in drafts if len(draft.logprobs) < len(draft.tokens)]  # `pick` may fail
        if not drafts:
            return
        places = [row for row, _ in drafts]
        each = logits[places].float().log_softmax(-1)
        for place, (_, draft) in enumerate(drafts):
            draft.logprobs.append(float(each[place, draft.tokens[-1]]))


def decode(rows: Rows, drafts: Sequence[D]) -> Iterator[D]:
    """Write drafts to their ends together; gives each as soon as it has ended."""
    decoding: Decoding[D] = Decoding(rows)
    yield from decoding.join(drafts)
    while decoding.drafts:
        yield from decoding.step()


def _columns(draft: Draft) -> int:
    return len(draft.prompt) + draft.limit
