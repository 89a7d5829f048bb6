"""What the engine computes on an encoder-decoder such as T5: `raisf.lm.local.inference` for that kind of model.

Where that has a sequence of prompt and completion, here the encoder reads the tokens before the start and the decoder
writes those from there on.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from raisf.lm.local.decoding import Draft
from raisf.lm.local.multi_lora import BASE, Blend, Loras, Slot
from raisf.lm.local.tokenization import TokenizedRow

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def score(
    model: "PreTrainedModel",
    sequences: list[list[int]],
    starts: list[int],
    slots: Sequence[Slot] | None = None,
    loras: Loras | None = None,
    prefixes: Sequence[None] | None = None,
) -> list[float]:
    """The log-probability that the decoder writes the end of each sequence where the encoder reads its beginning.

    Args:
        model: An encoder-decoder.
        sequences: Token ids. What several of them let the encoder read is encoded once.
        starts: The first token that the decoder writes, at least 1; the sum runs to the sequence's end.
        slots: The adapter that each sequence is scored with, a place of `loras`; None for the base.
        loras: The model's adapters.
        prefixes: None: an encoder reads a beginning anew with each of its ends.

    Returns:
        The sum of the tokens' log-probabilities (natural logarithm), one a sequence.
    """
    import torch

    slots = slots or [BASE] * len(sequences)
    read: dict[tuple[Slot, tuple[int, ...]], int] = {}
    rows = [
        read.setdefault((slot, tuple(sequence[:start])), len(read))
        for slot, sequence, start in zip(slots, sequences, starts, strict=True)
    ]
    encoding = loras.blend([slot for slot, _ in read]) if loras else None
    decoding = loras.blend(slots) if loras else None
    with torch.inference_mode():
        states, mask = _encode(model, [tokens for _, tokens in read], encoding)
        targets, written = _padded([s[start:] for s, start in zip(sequences, starts, strict=True)], model.device)
        with decoding or nullcontext():
            logits = model(
                encoder_outputs=(states[rows],),
                attention_mask=mask[rows],
                decoder_input_ids=_shifted(targets, model),
                use_cache=False,
            ).logits
        each = logits.float().log_softmax(-1).gather(-1, targets[..., None])[..., 0]
        return (each.double() * written).sum(-1).tolist()


class Rows:
    """See `raisf.lm.local.decoding.Rows`: prompts that are encoded, and what the decoder has written so far.

    Args:
        model: An encoder-decoder.
        loras: Its adapters; None where no draft names one.
        tails: None: an encoder reads each prompt anew.
    """

    def __init__(self, model: "PreTrainedModel", loras: Loras | None = None, tails: None = None):
        self._model, self._loras = model, loras
        self._slots: list[Slot] = []
        self._blend: Blend | None = None

    joins = False  # all rows begin to write in the same column

    def join(self, drafts: Sequence[Draft]) -> "torch.Tensor":
        """See `raisf.lm.local.decoding.Rows`."""
        import torch
        from transformers import DynamicCache, EncoderDecoderCache

        self._slots = [draft.lora for draft in drafts]
        self._blend = self._loras.blend(self._slots) if self._loras else None
        with torch.inference_mode():
            self._states, self._mask = _encode(self._model, [draft.prompt for draft in drafts], self._blend)
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        return self.step([_first(self._model)] * len(drafts))

    def step(self, picked: list[int]) -> "torch.Tensor":
        """See `raisf.lm.local.decoding.Rows`."""
        import torch

        with torch.inference_mode(), self._blend or nullcontext():
            return self._model(
                encoder_outputs=(self._states,),
                attention_mask=self._mask,
                decoder_input_ids=torch.tensor(picked, device=self._model.device)[:, None],
                cache=self._cache,
                use_cache=True,
            ).logits[:, -1]

    def part(self, row: int, draft: Draft) -> None:
        """See `raisf.lm.local.decoding.Rows`; there is nothing to be kept."""

    def keep(self, rows: list[int]) -> None:
        """See `raisf.lm.local.decoding.Rows`."""
        import torch

        self._cache.batch_select_indices(torch.tensor(rows, dtype=torch.long, device=self._model.device))
        self._states, self._mask = self._states[rows], self._mask[rows]
        self._slots = [self._slots[row] for row in rows]
        self._blend = self._loras.blend(self._slots) if self._loras else None


def completions(
    model: Any, base: "PreTrainedModel", batch: Sequence[TokenizedRow]
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """The logits at each place that the decoder writes, to learn from; see `inference.completions`."""
    import torch

    read, mask = _padded([row.tokens[: row.start] for row in batch], base.device)
    targets, written = _padded([row.tokens[row.start :] for row in batch], base.device)
    logits = model(
        input_ids=read, attention_mask=mask, decoder_input_ids=_shifted(targets, base), use_cache=False
    ).logits
    weights = torch.tensor([[row.weight] for row in batch], device=base.device)
    return logits, targets, written * weights


def _encode(model: Any, prompts: Sequence[Sequence[int]], blend: Blend | None) -> "tuple[torch.Tensor, torch.Tensor]":
    """The encoder's states (rows, width, dim), and which of them are there (rows, width)."""
    ids, mask = _padded(prompts, model.device)
    with blend or nullcontext():
        return model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state, mask


def _padded(rows: Sequence[Sequence[int]], device: "torch.device") -> "tuple[torch.Tensor, torch.Tensor]":
    """The rows as a matrix, filled up on the right, and which places are theirs, 0 or 1."""
    import torch

    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
    lengths = torch.tensor([[len(row)] for row in rows])
    return ids.to(device), (torch.arange(ids.shape[1]) < lengths).long().to(device)


def _shifted(targets: "torch.Tensor", model: "PreTrainedModel") -> "torch.Tensor":
    """What the decoder has before it when it writes each target."""
    return targets.roll(1, -1).index_fill(-1, targets.new_zeros(1), _first(model))


def _first(model: "PreTrainedModel") -> int:
    """The token that stands before all that the decoder writes."""
    configs = (model.config, model.generation_config)
    given = [getattr(config, name, None) for name in ("decoder_start_token_id", "pad_token_id") for config in configs]
    return next((token for token in given if token is not None), 0)
