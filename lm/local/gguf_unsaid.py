"""What a GGUF file leaves to llama.cpp to know by a name or a size, and transformers' reader of such files does not."""

import struct
from pathlib import Path
from typing import Any

from raisf.lm.local.gguf_positions import head_has

_PRE, _ADDS = "tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token"
# How Llama 3 and what was made like it split a text. Unless the file says otherwise, the token that begins a text comes
# first; and a word that is a token is that token, whether or not merges lead to it.
_LIKE_LLAMA_3 = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "midm-2.0", "tekken")
# How many layers the Gemmas of 27B have, which alone divide their scores by other than the root of 256.
LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
# As a file writes a key, the kind of its value (8: a text, 4: a number), and the value.
_MARKS = (
    *(_PRE.encode() + struct.pack("<IQ", 8, len(name)) + name.encode() for name in _LIKE_LLAMA_3),
    *(f"{name}.block_count".encode() + struct.pack("<II", 4, layers) for name, layers in LAYERS_OF_27B.items()),
)


def leaves_unsaid(path: Path) -> bool:
    """Whether a file leaves out what llama.cpp knows by itself, and older versions of this package did not."""
    return head_has(path, _MARKS)


def with_scale(settings: dict[str, Any]) -> dict[str, Any]:
    """A model's configuration with what a Gemma of its size divides its scores by."""
    if LAYERS_OF_27B.get(settings["model_type"].removesuffix("_text")) != settings["num_hidden_layers"]:
        return settings
    return {**settings, "query_pre_attn_scalar": settings["hidden_size"] // settings["num_attention_heads"]}


def complete_tokenizer(path: Path, tokenizer: Any) -> None:
    """Lets a tokenizer that was read from a file begin texts and read words as llama.cpp does.

    Args:
        path: The GGUF file; it can be read.
        tokenizer: As transformers has read it.
    """
    from gguf import GGUFReader

    reader = GGUFReader(path)
    split = reader.get_field(_PRE)
    if split is None or split.contents() not in _LIKE_LLAMA_3:
        return
    tokenizer.backend_tokenizer.model.ignore_merges = True
    if reader.get_field(_ADDS) is None and tokenizer.bos_token is not None:
        tokenizer.add_bos_token = True
