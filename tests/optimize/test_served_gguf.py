"""What an artifact on a GGUF file says of how it is served: the file itself would be refused with LoRA modules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from raisf.lm.connect import connect
from raisf.lm.local.model import LocalLM
from raisf.optimize.artifact import save
from raisf.programs.ra_isf import RAISF

WIDTH, INNER, VOCABULARY = 16, 32, 64


def write_gguf(path: Path) -> None:
    """A Llama of one layer with random weights, whose tokens are bytes."""
    writer = pytest.importorskip("gguf").GGUFWriter(str(path), "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // 2)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{one:02X}>" for one in range(VOCABULARY - 3))])
    writer.add_token_scores([0.0] * VOCABULARY)
    writer.add_token_types([2, 3, 3] + [6] * (VOCABULARY - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (VOCABULARY, WIDTH),
        "output_norm": (WIDTH,),
        "output": (VOCABULARY, WIDTH),
        **{f"blk.0.{name}": (WIDTH,) for name in ("attn_norm", "ffn_norm")},
        **{f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}": (INNER, WIDTH) for name in ("gate", "up")},
        "blk.0.ffn_down": (WIDTH, INNER),
    }
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype(np.float32) * 0.1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_the_readme_of_an_artifact_on_a_gguf_file_names_the_converted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "cache"))
    write_gguf(tmp_path / "Small.gguf")
    base: Any = connect(f"local/{tmp_path / 'Small.gguf'}", adapter="compact")
    assert isinstance(base, LocalLM)
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_pretrained(base.base_engine.folder, dtype="float32")
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(model, config).save_pretrained(str(tmp_path / "know"))
    program: Any = RAISF(None)
    program.set_lm(base)
    program.know.lm = base.with_weights(tmp_path / "know")

    save(program, tmp_path / "a")
    assert (base.base_engine.folder / "config.json").is_file()
    converted = f"BASE is {base.base_engine.folder}, into which raisf has converted {tmp_path / 'Small.gguf'} (LoRA"
    assert converted in (tmp_path / "a" / "README.md").read_text()
    (tmp_path / "Small.gguf").unlink()  # what was made of it stays
    save(program, tmp_path / "b")
    assert "BASE is the folder in models/ of raisf's cache into which" in (tmp_path / "b" / "README.md").read_text()
