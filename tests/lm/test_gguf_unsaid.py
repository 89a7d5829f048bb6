"""If these failed, a Llama 3 or a Gemma out of a GGUF file would be another in silence than what llama.cpp runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raisf.lm.local import gguf, gguf_unsaid
from raisf.lm.local.inference import load_model
from raisf.lm.local.model import LocalLM
from raisf.lm.local.weights import weights_hash
from raisf.utils.errors import InputError

WORDS = ["Ġ", "o", "f", "Ġo", "Ġof", "<|begin_of_text|>", "ĠĠ"]  # to "Ġof" no merges lead
BEGIN, WHOLE, TWO_SPACES = 5, 4, 6


@pytest.fixture
def write(makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "cache"))
    return lambda *args, **kwargs: makers.write_gguf(tmp_path / "tiny.gguf", *args, **kwargs)


def byte_level(split: str, **flags: bool) -> Callable[[Any], None]:
    def more(writer: Any) -> None:
        [told] = writer.kv_data
        for name in [name for name in told if name.startswith("tokenizer.")]:
            del told[name]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(split)
        writer.add_token_list([*WORDS, *map(str, range(64 - len(WORDS)))])
        writer.add_token_types([1] * BEGIN + [3] + [1] * (63 - BEGIN))
        writer.add_token_merges(["Ġ o", "Ġ Ġ"])
        writer.add_bos_token_id(BEGIN)
        for flag in flags.values():
            writer.add_add_bos_token(flag)

    return more


def read(file: Path, text: str = " of") -> list[int]:
    return LocalLM(f"local/{file}").base_engine.text.encode(text, True)


@pytest.mark.parametrize("split", ["llama-bpe", "tekken"])
def test_a_text_begins_as_the_model_has_learnt_it_and_words_are_its_tokens(
    write: Callable[..., Path], split: str
) -> None:
    assert read(write(more=byte_level(split))) == [BEGIN, WHOLE]


def test_a_file_that_says_how_texts_begin_is_believed(write: Callable[..., Path]) -> None:
    assert read(write(more=byte_level("llama-bpe", adds=False))) == [WHOLE]


def test_other_files_are_read_as_they_were(write: Callable[..., Path]) -> None:
    file = write(more=byte_level("smollm"))
    assert read(file) == [3, 2]
    assert json.loads((gguf.converted(file) / gguf.SOURCE).read_text())["format"] == 1


@pytest.mark.parametrize(("split", "begins"), [("refact", [TWO_SPACES]), ("smollm", [0, 0]), ("gpt-2", [0, 0])])
def test_digits_are_split_off_where_the_model_has_learnt_so(
    write: Callable[..., Path], split: str, begins: list[int]
) -> None:
    one = len(WORDS) + 1
    assert read(write(more=byte_level(split)), "  1") == [*begins, one]


def test_a_rule_of_splitting_that_is_not_known_is_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(InputError, match=r"tiny\.gguf splits texts by a rule .*pre is deepseek-llm\): give the model"):
        gguf.converted(write(more=byte_level("deepseek-llm")))


@pytest.mark.parametrize("architecture", ["llama", "phi3"])
@pytest.mark.parametrize("space", [True, False, None])
def test_a_text_begins_with_a_space_unless_the_file_says_otherwise(
    write: Callable[..., Path], architecture: str, space: bool | None
) -> None:
    def more(writer: Any) -> None:
        [told] = writer.kv_data
        told["tokenizer.ggml.tokens"].value[-2:] = ["▁", "o"]
        if space is not None:
            writer.add_add_space_prefix(space)

    file = write(architecture=architecture, more=more)
    text = LocalLM(f"local/{file}").base_engine.text
    tokens = text.encode("o o", False)
    assert tokens == ([63, 62, 63] if space is False else [62, 63, 62, 63])
    assert text.decode(tokens, False) == "o o"
    assert gguf_unsaid.leaves_unsaid(file) == (space is False)


def test_what_an_older_version_converted_is_converted_again(write: Callable[..., Path]) -> None:
    folder = gguf.converted(file := write(more=byte_level("llama-bpe")))
    before = weights_hash(folder)
    kept = json.loads((folder / gguf.SOURCE).read_text())
    (folder / gguf.SOURCE).write_text(json.dumps({**kept, "format": 2}))
    assert weights_hash(folder) != before  # as answers of other models are told apart
    assert gguf.converted(file) == folder and weights_hash(folder) == before


@pytest.mark.parametrize("layers", [2, 3])
def test_a_gemma_of_27b_divides_its_scores_by_its_own_number(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    def more(writer: Any) -> None:
        writer.add_key_length(8)
        for place in range(2):
            for name in ("post_attention_norm", "post_ffw_norm"):
                writer.add_tensor(f"blk.{place}.{name}.weight", np.ones(16, np.float32))

    monkeypatch.setitem(gguf_unsaid.LAYERS_OF_27B, "gemma2", layers)
    model = load_model(gguf.converted(write(architecture="gemma2", drop=("output.",), more=more)))[0]
    assert model.config.query_pre_attn_scalar == (16 // 2 if layers == 2 else 256)


@pytest.mark.parametrize(("kind", "layers"), [("gemma2", 46), ("gemma3", 62)])
def test_a_gemma_of_27b_is_told_by_its_layers(write: Callable[..., Path], kind: str, layers: int) -> None:
    assert gguf_unsaid.leaves_unsaid(write(architecture=kind, layers=layers))
    assert not gguf_unsaid.leaves_unsaid(write(architecture=kind, layers=layers - 1))
    settings = {"model_type": kind, "num_hidden_layers": layers, "hidden_size": 5376, "num_attention_heads": 32}
    assert gguf_unsaid.with_scale(settings)["query_pre_attn_scalar"] == 168
