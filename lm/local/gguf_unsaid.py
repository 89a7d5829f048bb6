"""What a GGUF file says of texts, or leaves to llama.cpp to know by a name, and transformers' reader passes over."""

import struct
from pathlib import Path
from typing import Any

from raisf.lm.local.gguf_positions import head_of
from raisf.utils.errors import InputError

_PRE, _ADDS = "tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token"
_KIND, _SPACE = "tokenizer.ggml.model", "tokenizer.ggml.add_space_prefix"
# How Llama 3 and what was made like it split a text. Unless the file says otherwise, the token that begins a text comes
# first; and a word that is a token is that token, whether or not merges lead to it.
_LIKE_LLAMA_3 = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "midm-2.0", "tekken")
# GPT-2's rule, after each digit has been split off.
_LIKE_STARCODER = ("starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2")
# GPT-2's rule. By its own, SmolLM's is StarCoder's, which differs behind several spaces or lines, as in "a  1"; what is
# shipped for it has learnt with this one.
_LIKE_GPT_2 = (
    *("default", "gpt-2", "phi-2", "smollm", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat"),
    *("a.x-4.0", "mellum", "exaone4", "roberta-bpe", "modern-bert"),
)
# How many layers the Gemmas of 27B have, which alone divide their scores by other than the root of 256.
LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}


def _text(key: str, value: str) -> bytes:
    return key.encode() + struct.pack("<IQ", 8, len(value)) + value.encode()


# As a file writes a key, the kind of its value (8: a text, 4: a number, 7: yes or no), and the value.
_SPLITS = tuple(_text(_PRE, name) for name in (*_LIKE_LLAMA_3, *_LIKE_STARCODER))
_27B = [f"{name}.block_count".encode() + struct.pack("<II", 4, layers) for name, layers in LAYERS_OF_27B.items()]
_PIECES, _NO_SPACE = _text(_KIND, "llama"), _SPACE.encode() + struct.pack("<IB", 7, 0)
_GEMMAS = [_text("general.architecture", name) for name in LAYERS_OF_27B]  # which never put a space before a text


def leaves_unsaid(path: Path) -> bool:
    """Whether a file says or leaves out what llama.cpp minds, and older versions of this package did not."""
    head = head_of(path)
    split = head.find(_PRE.encode())
    return head.startswith(_SPLITS, split) or any(mark in head for mark in _27B) or _begins_bare(head)


def _begins_bare(head: bytes) -> bool:
    """Whether a file says that no space is put before a text, where transformers puts one."""
    return _NO_SPACE in head and _PIECES in head and not any(mark in head for mark in _GEMMAS)


def with_scale(settings: dict[str, Any]) -> dict[str, Any]:
    """A model's configuration with what a Gemma of its size divides its scores by."""
    if LAYERS_OF_27B.get(settings["model_type"].removesuffix("_text")) != settings["num_hidden_layers"]:
        return settings
    return {**settings, "query_pre_attn_scalar": settings["hidden_size"] // settings["num_attention_heads"]}


def complete_tokenizer(path: Path, tokenizer: Any) -> None:
    """Lets a tokenizer that was read from a file begin texts, split them and read words as llama.cpp does.

    Args:
        path: The GGUF file; it can be read.
        tokenizer: As transformers has read it.

    Raises:
        InputError: It splits texts by a rule that is not known here.
    """
    from gguf import GGUFReader
    from tokenizers import decoders, pre_tokenizers

    reader, backend = GGUFReader(path), tokenizer.backend_tokenizer
    named = reader.get_field(_PRE)
    split = named.contents() if named is not None else "default"
    if split in _LIKE_LLAMA_3:
        backend.model.ignore_merges = True
        if reader.get_field(_ADDS) is None and tokenizer.bos_token is not None:
            tokenizer.add_bos_token = True
    elif split not in _LIKE_GPT_2 and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        if split not in _LIKE_STARCODER:
            raise InputError(
                f"{path.name} splits texts by a rule that is not read from GGUF ({_PRE} is {split}): give the model as "
                "a folder of safetensors"
            )
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    if _begins_bare(head_of(path)):  # as transformers' LlamaTokenizer(add_prefix_space=False)
        backend.normalizer = None
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
