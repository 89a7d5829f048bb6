"""If these failed, a model out of a GGUF file would read every long text, or every text, a little wrong in silence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma3TextConfig, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from raisf.lm.local import gguf
from raisf.lm.local.gguf_positions import with_positions
from raisf.lm.local.inference import load_model
from raisf.lm.local.weights import weights_hash
from raisf.utils.errors import InputError

LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
THETA, LLAMA_THETA = 10_000.0, 500_000.0


@pytest.fixture
def write(makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "cache"))
    return lambda *args, **kwargs: makers.write_gguf(tmp_path / "tiny.gguf", *args, **kwargs)


def frequencies(folder: Path) -> torch.Tensor:
    """By which the positions of a loaded model turn."""
    return load_model(folder)[0].model.rotary_emb.inv_freq


def llama_3() -> torch.Tensor:
    """The frequencies of a head of eight numbers: one is stretched by the factor, one by a part of it, two are not."""
    rope = {**LLAMA_3, "rope_theta": LLAMA_THETA}
    config = LlamaConfig(hidden_size=16, num_attention_heads=2, max_position_embeddings=131072, rope_parameters=rope)
    return ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))[0]


def of_llama_3(writer: Any) -> None:
    plain = LLAMA_THETA ** -(torch.arange(0, 8, 2) / 8)
    writer.add_float32("llama.rope.freq_base", LLAMA_THETA)
    writer.add_tensor("rope_freqs.weight", (plain / llama_3()).numpy().astype(np.float32))


def test_the_frequencies_of_a_llama_3_are_those_that_it_was_trained_with(write: Callable[..., Path]) -> None:
    assert frequencies(gguf.converted(write(more=of_llama_3))).tolist() == pytest.approx(llama_3().tolist(), rel=1e-4)


def test_what_an_older_version_converted_without_them_is_converted_again(write: Callable[..., Path]) -> None:
    folder = gguf.converted(write(more=of_llama_3))
    before = weights_hash(folder)
    kept = json.loads((folder / gguf.SOURCE).read_text())
    (folder / gguf.SOURCE).write_text(json.dumps({**kept, "format": 1}))
    assert weights_hash(folder) != before  # as answers of other models are told apart
    assert gguf.converted(folder.parents[2] / "tiny.gguf") == folder
    assert weights_hash(folder) == before


def test_a_file_without_any_is_the_model_it_was(write: Callable[..., Path]) -> None:
    assert json.loads((gguf.converted(write()) / gguf.SOURCE).read_text())["format"] == 1


@pytest.mark.parametrize(("kind", "original"), [("linear", None), ("yarn", 32)])
def test_positions_are_scaled_as_the_file_says(write: Callable[..., Path], kind: str, original: int | None) -> None:
    def more(writer: Any) -> None:
        writer.add_string("llama.rope.scaling.type", kind)
        writer.add_float32("llama.rope.scaling.factor", 4.0)
        if original:
            writer.add_uint32("llama.rope.scaling.original_context_length", original)

    rope = {"rope_type": kind, "factor": 4.0, "rope_theta": THETA, "original_max_position_embeddings": original}
    config = LlamaConfig(hidden_size=16, num_attention_heads=2, max_position_embeddings=128, rope_parameters=rope)
    expected = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))[0]
    assert frequencies(gguf.converted(write(more=more))).tolist() == pytest.approx(expected.tolist())


def test_of_a_gemma_only_layers_that_see_everything_are_scaled(write: Callable[..., Path]) -> None:
    def more(writer: Any) -> None:
        writer.add_string("gemma3.rope.scaling.type", "linear")
        writer.add_float32("gemma3.rope.scaling.factor", 8.0)

    read = Gemma3TextConfig().to_dict()
    config = Gemma3TextConfig(**with_positions(write(architecture="gemma3", more=more), read))
    rope: Any = config.rope_parameters
    assert rope["full_attention"] == {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0}
    assert rope["sliding_attention"] == {"rope_type": "default", "rope_theta": 10_000.0}
    assert config.sliding_window == read["sliding_window"]


@pytest.mark.parametrize(("told", "window"), [(20, 20), (262_144, None)])  # beyond the context it forgets nothing
def test_a_phi_turns_a_part_of_each_head_and_looks_as_far_back_as_its_file_says(
    write: Callable[..., Path], told: int, window: int | None
) -> None:
    def more(writer: Any) -> None:
        writer.add_uint32("phi3.attention.sliding_window", told)
        writer.add_uint32("phi3.rope.scaling.original_context_length", 64)
        writer.add_tensor("rope_factors_long.weight", np.array([2.0, 3.0], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array([1.0, 1.5], np.float32))

    model = load_model(gguf.converted(write(architecture="phi3", rotary=4, more=more)))[0]
    assert model.config.sliding_window == window
    expected = [1.0, THETA**-0.5 / 1.5]
    assert model.model.rotary_emb.inv_freq.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    "more",
    [
        lambda writer: writer.add_string("llama.rope.scaling.type", "longrope"),
        lambda writer: writer.add_tensor("rope_freqs.weight", np.array([1, 2, 3, 4], np.float32)),
    ],
)
def test_a_scaling_that_is_not_known_is_refused(write: Callable[..., Path], more: Callable[[Any], None]) -> None:
    with pytest.raises(InputError, match=r"tiny\.gguf scales positions in a way .* \(.+\): give the model as a folder"):
        gguf.converted(write(more=more))
