"""What an artifact on a GGUF file says of how it is served: the file itself would be refused with LoRA modules."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from raisf.lm.connect import connect
from raisf.lm.local.model import LocalLM
from raisf.optimize.artifact import save
from raisf.programs.ra_isf import RAISF


def test_the_readme_of_an_artifact_on_a_gguf_file_names_the_converted_folder(
    makers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "cache"))
    makers.write_gguf(tmp_path / "Small.gguf")
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
