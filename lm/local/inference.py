"""What the engine computes on a causal Llama: log-probabilities of given continuations, its own, and what trains it.

`raisf.lm.local.seq2seq` has the same functions for encoder-decoders.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raisf.lm.local.decoding import decode
from raisf.lm.local.multi_lora import Blend, Loras, Slot
from raisf.utils.model_loading import ONE_AT_A_TIME

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from raisf.lm.finetune.training import Lesson
    from raisf.lm.local.prefixes import Prefix


def load_model(folder: Path) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """Read weights and tokenizer: on a CUDA device, if there is one, in their own precision, else in float32."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.utils import logging

    device = "cuda" if torch.cuda.is_available() else "cpu"
    bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with ONE_AT_A_TIME:
            kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            model = kind.from_pretrained(
                folder,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                attn_implementation="sdpa",  # takes the tree-shaped mask of `score`
                dtype="auto" if device == "cuda" else torch.float32,
            )
    finally:
        if bar:
            logging.enable_progress_bar()
    return model.eval().to(device), tokenizer  # type: ignore[arg-type]


def end_tokens(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> set[int]:
    """The tokens after which the model has nothing more to say."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ends = configured if isinstance(configured, list) else [configured]
    return {token for token in [*ends, tokenizer.eos_token_id] if token is not None}


def pack(
    sequences: list[list[int]], groups: Sequence[Any] | None = None
) -> tuple[list[int], list[int], np.ndarray, list[np.ndarray]]:
    """Lay token sequences out as one tree, so that a beginning shared by several of them is there once.

    Args:
        sequences: token ids, at least one a sequence.
        groups: one sortable value a sequence; only sequences of one group share beginnings. None: all do.

    Returns:
        tokens: (T,) the tree's tokens.
        positions: (T,) how many tokens of its sequence come before each.
        sees: (T, T) bool, whether the row's token attends to the column's: to itself and to what comes before it.
        paths: for each sequence, the places of its tokens in the tree.
    """
    tokens: list[int] = []
    positions: list[int] = []
    paths: list[np.ndarray] = [np.empty(0, int)] * len(sequences)
    branches = []
    previous, path, last = np.empty(0, int), np.empty(0, int), None
    group = groups or [0] * len(sequences)
    # In lexicographic order each sequence shares with its predecessor all that it shares with any before it.
    for index in sorted(range(len(sequences)), key=lambda index: (group[index], sequences[index])):
        sequence = np.array(sequences[index])
        shared = common_length(previous, sequence) if group[index] == last else 0
        new = np.arange(len(tokens), len(tokens) + len(sequence) - shared)
        branches.append((path[:shared], new))
        path = paths[index] = np.concatenate([path[:shared], new])
        tokens += sequence[shared:].tolist()
        positions += range(shared, len(sequence))
        previous, last = sequence, group[index]
    sees = np.zeros((len(tokens), len(tokens)), bool)
    for before, new in branches:
        if len(new):
            sees[new[0] : new[-1] + 1, before] = True
            sees[new[0] : new[-1] + 1, new] = np.tri(len(new), dtype=bool)
    return tokens, positions, sees, paths


def common_length(one: Sequence[int] | np.ndarray, other: Sequence[int] | np.ndarray) -> int:
    """How many tokens two sequences begin with alike."""
    length = min(len(one), len(other))
    different = np.flatnonzero(np.asarray(one[:length]) != np.asarray(other[:length]))
    return int(different[0]) if len(different) else length


def score(
    model: "PreTrainedModel",
    sequences: list[list[int]],
    starts: list[int],
    slots: Sequence[Slot] | None = None,
    loras: Loras | None = None,
    prefix: "Prefix | None" = None,
) -> list[float]:
    """The log-probability of the end of each sequence given its beginning, all in one forward pass.

    Args:
        model: a causal language model with rotary (or other explicit) positions.
        sequences: token ids. Shared beginnings (few-shot examples, the question, the prompt before its labels) are
            computed once.
        starts: index of the first token whose probability counts, at least 1; the sum runs to the sequence's end.
        slots: the adapter that each sequence is scored with, a place of `loras`; None for the base.
        loras: the model's adapters.
        prefix: what all sequences begin with, before their starts, where that was computed before.

    Returns:
        The sum of the tokens' log-probabilities (natural logarithm), one a sequence.
    """
    import torch

    known = len(prefix.tokens) if prefix else 0
    sequences, starts = [sequence[known:] for sequence in sequences], [start - known for start in starts]
    tokens, positions, sees, paths = pack(sequences, slots)
    blend = None
    if loras is not None and slots is not None:
        owners = np.zeros((len(tokens), 2), int)
        for path, slot in zip(paths, slots, strict=True):
            owners[path] = slot
        blend = loras.blend(owners, each="token")
    predictors = [path[start - 1 : -1] for path, start in zip(paths, starts, strict=True)]
    keep, rows = np.unique(np.concatenate(predictors), return_inverse=True)
    with torch.inference_mode(), blend or nullcontext():
        sees = np.pad(sees, ((0, 0), (known, 0)), constant_values=True)
        mask = torch.zeros(sees.shape, dtype=model.dtype).masked_fill_(~torch.from_numpy(sees), float("-inf"))
        logits = model(
            input_ids=torch.tensor([tokens], device=model.device),
            position_ids=torch.tensor([positions], device=model.device) + known,
            attention_mask=mask[None, None].to(model.device),
            past_key_values=prefix.continued() if prefix else None,
            logits_to_keep=torch.from_numpy(keep).to(model.device),
            use_cache=prefix is not None,
        ).logits[0]
        logprobs = logits.float().log_softmax(-1)
        targets = np.concatenate([np.array(s[start:]) for s, start in zip(sequences, starts, strict=True)])
        each = logprobs[torch.from_numpy(rows), torch.from_numpy(targets)].cpu().double().numpy()
    ends = np.cumsum([len(places) for places in predictors])[:-1]
    return [float(part.sum()) for part in np.split(each, ends)]


def generate(
    model: "PreTrainedModel",
    prompts: list[list[int]],
    limits: list[int],
    choose: Callable[[int, "torch.Tensor"], int] | None,
    ended: Callable[[int, list[int]], bool],
    blend: Blend | None = None,
    prefix: "Prefix | None" = None,
) -> Iterator[tuple[int, list[int]]]:
    """Continue the prompts together; see `raisf.lm.local.decoding.decode`.

    Args:
        model: a causal language model.
        prompts: token ids, at least one a prompt.
        limits: see `decode`.
        choose: see `decode`.
        ended: see `decode`.
        blend: the adapters that the rows are continued with; None for the base.
        prefix: what all prompts begin with, where that was computed before.
    """
    return decode(_Causal(model, prompts, blend, prefix), limits, choose, ended)


class _Causal:
    """Prompts before a causal model, padded on the left; the padding is after a prefix that they share."""

    def __init__(
        self, model: "PreTrainedModel", prompts: list[list[int]], blend: Blend | None, prefix: "Prefix | None"
    ):
        import torch

        self._model, self._blend = model, blend
        known = len(prefix.tokens) if prefix else 0
        prompts = [prompt[known:] for prompt in prompts]
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        width = int(lengths.max())
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
        padding = (width - lengths)[:, None]
        mask = torch.nn.functional.pad((torch.arange(width) >= padding).long(), (known, 0), value=1)
        positions = (torch.arange(width) - padding).clamp(min=0) + known
        self._ids, self._mask, self._positions = (part.to(model.device) for part in (ids, mask, positions))
        self._cache, self._padded = prefix.continued(len(prompts)) if prefix else None, bool(padding.any())

    def step(self, picked: list[int] | None) -> "torch.Tensor":
        import torch

        if picked is not None:
            self._ids = torch.tensor(picked, device=self._model.device)[:, None]
            self._positions = self._positions[:, -1:] + 1
            self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], 1)
        with torch.inference_mode(), self._blend or nullcontext():
            step = self._model(
                input_ids=self._ids,
                position_ids=self._positions,
                attention_mask=self._mask if self._padded else None,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
        self._cache = step.past_key_values
        return step.logits[:, -1]

    def keep(self, rows: list[int]) -> None:
        import torch

        assert self._cache is not None
        self._cache.batch_select_indices(torch.tensor(rows, dtype=torch.long, device=self._model.device))
        self._mask, self._positions = self._mask[rows], self._positions[rows]
        if self._blend is not None:
            self._blend.keep(rows)


def completions(
    model: Any, base: "PreTrainedModel", batch: "Sequence[Lesson]"
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """What the model says at each place of the completions, to learn from.

    Rows are padded on the left: all completions end in the same place, and the vocabulary's matrix, the largest of a
    Llama, is multiplied for the places of completions alone.

    Args:
        model: A causal language model in training, maybe wrapped.
        base: What it grew from; it has the same device.
        batch: The rows.

    Returns:
        Logits (rows, last places, V), the right tokens and their weights (0 outside completions), (rows, last places).
    """
    import torch

    width = max(len(row.tokens) for row in batch)
    last = max(len(row.tokens) - row.start for row in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    pads, weights = torch.zeros(len(batch), 1, dtype=torch.long), torch.zeros(len(batch), last)
    for place, row in enumerate(batch):
        pads[place] = width - len(row.tokens)
        ids[place, width - len(row.tokens) :] = torch.tensor(row.tokens)
        weights[place, last - (len(row.tokens) - row.start) :] = row.weight
    places = torch.arange(width)
    ids, weights = ids.to(base.device), weights.to(base.device)
    logits = model(
        input_ids=ids,
        attention_mask=(places >= pads).long().to(base.device) if pads.any() else None,
        position_ids=(places - pads).clamp(min=0).to(base.device),
        logits_to_keep=last + 1,
        use_cache=False,
    ).logits[:, :-1]
    return logits, ids[:, -last:], weights
