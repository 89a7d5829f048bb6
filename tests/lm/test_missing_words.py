"""If these failed, a model without its tokenizer's words would answer nonsense, and nobody would hear of it."""

import json
import shutil
from pathlib import Path

import pytest

from raisf.lm import pocket
from raisf.lm.connect import connect
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import Training
from raisf.lm.local.inference import load_model
from raisf.lm.local.model import LocalLM
from raisf.lm.replies import _TOO_LONG
from raisf.utils.errors import InputError

ROWS = [
    TrainingRow([{"role": "user", "content": "q: a\nverdict:"}, {"role": "assistant", "content": " know"}])
    for _ in range(8)
]


@pytest.mark.parametrize("kind", ["LlamaTokenizer", "Qwen2Tokenizer", "GPT2Tokenizer"])
def test_a_model_without_its_tokenizers_words_is_refused(kind: str, tmp_path: Path) -> None:
    """transformers makes an empty one of these classes, and each prompt was one token."""
    folder = Path(shutil.copytree(pocket.path("pocket-tiny"), tmp_path / "bare"))
    (folder / "tokenizer.json").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "tokenizer_class": kind}))
    with pytest.raises(InputError, match=r"bare lacks its tokenizer's words \(tokenizer.json"):
        load_model(folder)


def test_a_model_that_was_trained_whole_keeps_a_tokenizer_in_several_files(tmp_path: Path) -> None:
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path / "gpt2"
    torch.manual_seed(0)
    sizes = {"n_positions": 256, "n_embd": 32, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    GPT2LMHeadModel(GPT2Config(vocab_size=300, **sizes)).save_pretrained(folder)
    words = ByteLevelBPETokenizer()
    words.train_from_iterator(["know unknown verdict"] * 9, vocab_size=300, special_tokens=["<|endoftext|>"])
    words.save_model(str(folder))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer", "model_max_length": 256}')
    lm = LocalLM(f"local/{folder}")
    made = train(lm, ROWS, ROWS, tmp_path / "work", Training(method="full", epochs=1), name="know", progress=False)
    assert {"vocab.json", "merges.txt"} <= {file.name for file in made.iterdir()}
    assert connect(f"local/{made}").base_engine.text.tokenizer("know verdict").input_ids == (
        lm.base_engine.text.tokenizer("know verdict").input_ids
    )


def test_an_adapter_whose_layers_a_pattern_names_is_trained_further(tmp_path: Path) -> None:
    """The pattern was written as a list of its letters, which peft refuses."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    def base() -> object:
        return AutoModelForCausalLM.from_pretrained(pocket.path("pocket-tiny"))

    config = LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=r".*\.(q_proj|v_proj)")
    get_peft_model(base(), config).save_pretrained(tmp_path / "ext")
    lm = LocalLM(f"local/pocket-tiny@{tmp_path / 'ext'}")
    made = train(lm, ROWS, ROWS, tmp_path / "work", Training(epochs=1, go_on=True), name="know", progress=False)
    PeftModel.from_pretrained(base(), str(made))


def test_a_seed_may_be_of_any_size(tmp_path: Path) -> None:
    lm = LocalLM("local/pocket-tiny")
    assert train(lm, ROWS, ROWS, tmp_path, Training(epochs=1, seed=10**22), name="know", progress=False).is_dir()


@pytest.mark.parametrize(
    "said",
    [
        "The input (5000 tokens) is longer than the model's context length (2048 tokens).",
        "The decoder prompt (length 5000) is longer than the maximum model length of 2048.",
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 5000",
        "This model's maximum context length is 2048 tokens.",
        "You requested 9 output tokens. However, the model's context length is only 4096 tokens, resulting in",
        "Trying to keep the first 5001 tokens when context the overflows. However, context length of only 4096 tokens",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5001 and 9",
        "rpc error: Prompt is too long (5123 tokens, context size 4096)",
        "Prompt length 5123 is greater than max_seq_len 4096",
        "prompt is too long: 5123 tokens > 4096 maximum",
    ],
)
def test_each_servers_words_for_a_prompt_that_is_too_long_are_known(said: str) -> None:
    """The server was taken to list no probabilities, and never asked for them again."""
    assert _TOO_LONG.search(said)
