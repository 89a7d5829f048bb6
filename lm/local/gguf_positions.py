"""What a GGUF file says of positions, and transformers' reader of such files passes over."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from raisf.utils.errors import InputError

FREQUENCIES, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
_MARKS = (FREQUENCIES.encode(), LONG.encode(), b".rope.scaling.", b"phi3.rope.")
_HEAD_BYTES = 2**25  # the names of a quarter of a million tokens take less
# What `rope_freqs` is made from, in every Llama from 3.1 on; the file holds its factor alone.
_LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
_YARN = ("type", "factor", "original_context_length", "finetuned")


def says_more(path: Path) -> bool:
    """Whether a file says something of positions that transformers' reader passes over."""
    head = head_of(path)
    return any(mark in head for mark in _MARKS)


def head_of(path: Path) -> bytes:
    """What a GGUF file says before its weights, to be looked through in a tenth of a second."""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def with_positions(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """A model's configuration with what its file says of positions.

    Args:
        path: The GGUF file; it can be read.
        settings: As transformers has read them.

    Raises:
        InputError: Its positions are scaled in a way that is not known here.
    """
    from gguf import GGUFReader

    reader: Any = GGUFReader(path)
    fields = {name.partition(".")[2]: field for name, field in reader.fields.items()}
    tensors = {tensor.name: tensor.data for tensor in reader.tensors}

    def told(key: str) -> Any:
        return fields[key].contents() if key in fields else None

    whole = dict(settings)
    rope = {name: dict(part) if isinstance(part, dict) else part for name, part in whole["rope_parameters"].items()}
    whole["rope_parameters"] = rope
    # Layers with a sliding window see too little to need scaling.
    turned = rope.get("full_attention", rope)
    kind, factor = told("rope.scaling.type"), told("rope.scaling.factor")
    scalings = [name for name in fields if name.startswith("rope.scaling.")]
    if FREQUENCIES in tensors:
        dim = whole.get("head_dim") or whole["hidden_size"] // whole["num_attention_heads"]
        turned |= _llama_3(path, tensors[FREQUENCIES], turned["rope_theta"], dim)
    elif LONG in tensors:
        turned |= {
            "rope_type": "longrope",
            "long_factor": tensors[LONG].tolist(),
            "short_factor": tensors[SHORT].tolist(),
            "original_max_position_embeddings": told("rope.scaling.original_context_length"),
        }
    elif kind == "linear" and factor:
        turned |= {"rope_type": kind, "factor": factor}
    elif kind == "yarn" and all(name.removeprefix("rope.scaling.") in _YARN for name in scalings):
        original = told("rope.scaling.original_context_length")
        turned |= {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original}
    elif kind not in (None, "none"):
        raise _unknown(path, f"rope.scaling.type is {kind}")
    if whole["model_type"] == "phi3":
        head = whole["hidden_size"] // whole["num_attention_heads"]
        turned["partial_rotary_factor"] = (told("rope.dimension_count") or head) / head
        window = told("attention.sliding_window")
        whole["sliding_window"] = window if window and window < whole["max_position_embeddings"] else None
    return whole


def _llama_3(path: Path, found: np.ndarray, theta: float, dim: int) -> dict[str, Any]:
    """The scaling that these divisors of frequencies (dim / 2,) come from."""
    scaling = {"rope_type": "llama3", "factor": round(float(found.max()), 3), **_LLAMA_3}
    waves = 2 * math.pi * theta ** (np.arange(0, dim, 2) / dim)
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    # From 0, where all of a wave is stretched, to 1, where nothing is.
    share = np.clip((scaling["original_max_position_embeddings"] / waves - low) / (high - low), 0, 1)
    if found.shape != waves.shape or not np.allclose(found, 1 / (share + (1 - share) / factor), rtol=1e-3):
        raise _unknown(path, f"{FREQUENCIES} is not that of a Llama 3")
    return scaling


def _unknown(path: Path, why: str) -> InputError:
    return InputError(
        f"{path.name} scales positions in a way that is not read from GGUF ({why}): give the model as a folder of "
        "safetensors"
    )
