"""What the engine computes on a causal Llama: log-probabilities of given continuations, its own, and what trains it.

`raisf.lm.local.seq2seq` has the same names for encoder-decoders.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raisf.lm.local.causal import CausalRows as Rows
from raisf.lm.local.multi_lora import BASE, Loras, Slot
from raisf.lm.local.prefixes import Prefix, joined
from raisf.lm.local.soundness import check_tokenizer, check_weights, unreadable
from raisf.lm.local.token_tree import pack
from raisf.lm.local.tokenization import Text, TokenizedRow
from raisf.lm.local.weights import Precision
from raisf.utils.model_loading import ONE_AT_A_TIME, without_bars

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


__all__ = ["Rows", "completions", "context_of", "end_tokens", "load_model", "read", "score", "tokens_of"]


def context_of(model: Any) -> int:
    """How many tokens a model reads.

    One that turns the positions of long texts otherwise (longrope) reads as many as it turns in one way only: else the
    long texts of a batch would change what is said to the short ones.
    """
    config = model.config.get_text_config()  # a Gemma that sees images tells of its text in a part of its own
    given = getattr(config, "max_position_embeddings", None) or 2**31
    told = getattr(config, "rope_parameters", None) or {}
    turns = [told, *(one for one in told.values() if isinstance(one, dict))]  # or of each kind of layer
    return min(
        [given, *(one["original_max_position_embeddings"] for one in turns if one.get("rope_type") == "longrope")]
    )


def tokens_of(model: Any) -> int:
    """How many tokens a model has weights for."""
    return len(model.get_input_embeddings().weight)


def load_model(folder: Path, precision: Precision | None = None) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase"]:
    """Read weights and tokenizer, onto a CUDA device if there is one.

    Args:
        folder: The model's folder.
        precision: None: float32.

    Raises:
        InputError: They are damaged, incomplete, or of an architecture that transformers or this engine does not know.
    """
    import torch

    with ONE_AT_A_TIME:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with ONE_AT_A_TIME, without_bars():
            kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
            # Torch's own attention cannot cap its scores, as Gemma 2 does.
            attention = "eager" if getattr(config, "attn_logit_softcapping", None) else "sdpa"
            both: Any = kind.from_pretrained(
                folder,
                use_safetensors=True,
                attn_implementation=attention,  # takes the tree-shaped mask of `score`
                dtype=precision or "float32",
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a damaged folder makes transformers raise what it likes
        raise unreadable(folder, error) from error
    model, loaded = both
    check_weights(model, loaded, folder)
    check_tokenizer(tokenizer, model, folder)
    return model.eval().to(device), tokenizer


def end_tokens(model: "PreTrainedModel", text: Text) -> set[int]:
    """The tokens after which the model has nothing more to say.

    The end of its turn is one, which after a conversion from GGUF its chat template alone may tell.
    """
    configured = getattr(model.generation_config, "eos_token_id", None)
    ends = configured if isinstance(configured, list) else [configured]
    return {token for token in [*ends, text.tokenizer.eos_token_id, text.turn_end] if token is not None}


def score(
    model: "PreTrainedModel",
    sequences: list[list[int]],
    starts: list[int],
    slots: Sequence[Slot] | None = None,
    loras: Loras | None = None,
    prefixes: Sequence[Prefix | None] | None = None,
) -> list[float]:
    """The log-probability of the end of each sequence given its beginning, all in one forward pass; see `read`."""
    return read(model, sequences, starts, slots, loras, prefixes)[0]


def read(
    model: "PreTrainedModel",
    sequences: list[list[int]],
    starts: list[int],
    slots: Sequence[Slot] | None = None,
    loras: Loras | None = None,
    prefixes: Sequence[Prefix | None] | None = None,
    layers: Sequence[Sequence[int]] | None = None,
) -> tuple[list[float], list[np.ndarray]]:
    """The log-probabilities of the ends of sequences, and hidden states at their last tokens, in one forward pass.

    Args:
        model: a causal language model with rotary (or other explicit) positions.
        sequences: token ids. Shared beginnings (few-shot examples, the question, the prompt before its labels) are
            computed once.
        starts: index of the first token whose probability counts, at least 1; the sum runs to the sequence's end. The
            sequence's length where nothing is scored of it.
        slots: the adapter that each sequence is scored with, a place of `loras`; None for the base.
        loras: the model's adapters.
        prefixes: what each sequence begins with, before its start, where that was computed before with its adapter.
        layers: of each sequence, the layers whose outputs are wanted, 1 the first; None for none of any.

    Returns:
        The sum of the tokens' log-probabilities (natural logarithm), one a sequence; and the states (layers, width) in
        float32, one a sequence.
    """
    import torch

    if _reads_rows(model):
        return _read_rows(model, sequences, starts, slots, loras, layers)
    heads = prefixes or [None] * len(sequences)
    distinct = list(dict.fromkeys(head for head in heads if head))
    lengths = [len(head.tokens) if head else 0 for head in heads]
    sequences = [sequence[known:] for sequence, known in zip(sequences, lengths, strict=True)]
    starts = [start - known for start, known in zip(starts, lengths, strict=True)]
    own = [distinct.index(head) if head else -1 for head in heads]
    tokens, positions, paths, sees, distances = _laid_out(sequences, slots or [BASE] * len(sequences), distinct, own)
    blend = None
    if loras is not None and slots is not None:
        owners = np.zeros((len(tokens), 2), int)
        for path, slot in zip(paths, slots, strict=True):
            owners[path] = slot
        blend = loras.blend(owners, each="token")
    predictors = [path[start - 1 : -1] for path, start in zip(paths, starts, strict=True)]
    keep, rows = np.unique(np.concatenate(predictors), return_inverse=True)
    wanted = layers or [()] * len(sequences)
    with torch.inference_mode(), blend or nullcontext():
        output: Any = model(
            input_ids=torch.tensor([tokens], device=model.device),
            position_ids=torch.from_numpy(positions)[None].to(model.device),
            attention_mask=_masks(model, sees, distances),
            cache=joined(distinct),
            logits_to_keep=torch.from_numpy(keep).to(model.device),
            use_cache=bool(distinct),
            **({"output_hidden_states": True} if any(wanted) else {}),
        )
        logprobs = output.logits[0].float().log_softmax(-1)
        targets = np.concatenate([np.array(s[start:], int) for s, start in zip(sequences, starts, strict=True)])
        each = logprobs[torch.from_numpy(rows), torch.from_numpy(targets)].cpu().double().numpy()
        lasts = torch.tensor([path[-1] for path in paths], device=model.device)
        read_off = {  # in one piece a layer: each copy from a GPU waits for it
            layer: output.hidden_states[layer][0, lasts].float().cpu().numpy()
            for layer in {layer for own in wanted for layer in own}
        }
    ends = np.cumsum([len(places) for places in predictors])[:-1]
    states = [np.array([read_off[layer][row] for layer in own], np.float32) for row, own in enumerate(wanted)]
    return [float(part.sum()) for part in np.split(each, ends)], states


def _laid_out(
    sequences: list[list[int]], slots: Sequence[Slot], prefixes: Sequence[Prefix], own: Sequence[int]
) -> tuple[list[int], np.ndarray, list[np.ndarray], np.ndarray, np.ndarray]:
    """One row of tokens for several sequences, each behind the prefix that it goes on from: number `own`, -1 for none.

    Returns:
        Tokens, positions and paths as of `pack`, but that positions count the prefix's tokens; and by token and column
        whether it is seen, and how many tokens back it is. The prefixes' columns come first, one behind the other.
    """
    tokens, within, sees, paths = pack(sequences, list(zip(slots, own, strict=True)))
    lengths = [len(prefix.tokens) for prefix in prefixes]
    bounds = np.cumsum([0, *lengths])
    before, offsets = np.zeros((len(tokens), bounds[-1]), bool), np.zeros(len(tokens), int)
    for path, place in zip(paths, own, strict=True):
        if place >= 0:
            before[path, bounds[place] : bounds[place + 1]] = True
            offsets[path] = lengths[place]
    positions = within + offsets
    columns = np.concatenate([*map(np.arange, lengths), positions])
    return tokens, positions, paths, np.concatenate([before, sees], 1), positions[:, None] - columns


def _reads_rows(model: "PreTrainedModel") -> bool:
    """Whether each text needs a row of its own, since a mask does not tell all layers what a token comes after.

    A state (Mamba, linear attention, a short convolution) goes from token to token as they lie; alibi counts columns.
    """
    config: Any = model.config.get_text_config()
    types = set(getattr(config, "layer_types", None) or ())
    stateful = getattr(model, "_is_stateful", False) or not types <= {"full_attention", "sliding_attention"}
    return stateful or bool(getattr(config, "alibi", False))


def _read_rows(
    model: "PreTrainedModel",
    sequences: list[list[int]],
    starts: list[int],
    slots: Sequence[Slot] | None,
    loras: Loras | None,
    layers: Sequence[Sequence[int]] | None,
) -> tuple[list[float], list[np.ndarray]]:
    """See `read`; those of the same length together, so that nothing is filled up."""
    import torch

    sums, states = [0.0] * len(sequences), [np.empty(0, np.float32)] * len(sequences)
    owned, wanted = slots or [BASE] * len(sequences), layers or [()] * len(sequences)
    for length in set(map(len, sequences)):
        own = [place for place, sequence in enumerate(sequences) if len(sequence) == length]
        ids = torch.tensor([sequences[place] for place in own], device=model.device)
        first = min(starts[place] for place in own)
        blend = loras.blend([owned[place] for place in own]) if loras is not None else None
        with torch.inference_mode(), blend or nullcontext():
            output: Any = model(
                input_ids=ids,
                logits_to_keep=torch.arange(first - 1, length, device=model.device),
                use_cache=False,
                **({"output_hidden_states": True} if any(wanted) else {}),
            )
            logprobs = output.logits[:, :-1].float().log_softmax(-1)
            each = logprobs.gather(-1, ids[:, first:, None])[..., 0].cpu().double()
            for row, place in enumerate(own):
                sums[place] = float(each[row, starts[place] - first :].sum())
                read_off = [output.hidden_states[layer][row, -1].float().cpu().numpy() for layer in wanted[place]]
                states[place] = np.array(read_off, np.float32)
    return sums, states


def _masks(model: "PreTrainedModel", sees: np.ndarray, distances: np.ndarray) -> Any:
    """What the model's layers attend to: one mask, or one for each type of layer where some have a sliding window.

    Args:
        model: A causal language model; a mask that is given to it as a whole is taken as it is, also by such layers.
        sees: (T, columns) bool, the token's own past.
        distances: (T, columns) how many tokens back each column is.
    """
    import torch

    def mask(seen: np.ndarray) -> "torch.Tensor":
        whole = torch.zeros(seen.shape, dtype=model.dtype).masked_fill_(~torch.from_numpy(seen), float("-inf"))
        return whole[None, None].to(model.device)

    config: Any = model.config.get_text_config()
    window, types = getattr(config, "sliding_window", None), getattr(config, "layer_types", None)
    if not window or (types and "sliding_attention" not in types):
        return mask(sees)
    near = mask(sees & (distances < window))
    return {"full_attention": mask(sees), "sliding_attention": near} if types else near


def completions(
    model: Any, base: "PreTrainedModel", batch: Sequence[TokenizedRow]
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """The logits at each place of the completions, and what they should be, to learn from.

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
    last = max(1, *(len(row.tokens) - row.start for row in batch))  # a completion may be empty
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
        logits_to_keep=places[-last - 1 :].to(base.device),  # for speed, as in `last_place`
        use_cache=False,
    ).logits[:, :-1]
    return logits, ids[:, -last:], weights
