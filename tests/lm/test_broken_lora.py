"""A spoiled adapter must be told, or a judge would answer with noise."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from dspy.lm15 import Config, Message, Request
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from raisf.lm.adapter import COMPLETION
from raisf.lm.connect import connect
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import Training, check_trainable
from raisf.lm.local.clients import EngineClient
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import CONFIG, TRAINING, WEIGHTS, lora_hash
from raisf.signatures.answers import DirectAnswer
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json

NAMES = ("Ulm", "Velmora", "Kastrel", "Tisdel")


@pytest.fixture(scope="module")
def adapter(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(llama, "Oran", tmp_path_factory.mktemp("work"))


def trained(llama: Path, answer: str, work: Path) -> Path:
    """An adapter on a base that has learnt one answer, by heart."""
    lm = LocalLM(f"local/{llama}", cache=False)
    said = lm.adapter.format_finetune_data(DirectAnswer, [], {"question": "Who founded Ulm?"}, {"answer": answer})
    rows, training = [TrainingRow(said["messages"])], Training(epochs=8, batch_size=1, rank=4, learning_rate=2e-2)
    return train(lm, rows, rows, work, training, name="answers", progress=False)


def change(folder: Path, changed: Callable[[str, torch.Tensor], torch.Tensor]) -> None:
    """Write the weights anew, each as it is changed."""
    tensors = {name: changed(name, tensor).contiguous() for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS)


def fill(folder: Path, number: float) -> None:
    change(folder, lambda name, tensor: torch.full_like(tensor, number) if ".lora_A." in name else tensor)


def add_tensor(folder: Path) -> None:
    save_file({**load_file(folder / WEIGHTS), "base_model.model.lm_head.weight": torch.zeros(2)}, folder / WEIGHTS)


def configure(folder: Path, **config: Any) -> None:
    write_json(folder / CONFIG, {**read_json(folder / CONFIG), **config})


BROKEN = {
    "cut off": (lambda a: (a / WEIGHTS).write_bytes((a / WEIGHTS).read_bytes()[:1000]), "is damaged"),
    "of another shape": (lambda a: change(a, lambda _, w: torch.zeros(len(w) + 1, w.shape[1] + 1)), "of another base"),
    "of two ranks": (lambda a: change(a, lambda name, w: w[1:] if ".lora_A." in name else w), "damaged .ranks of its"),
    "not a number": (lambda a: fill(a, float("nan")), "is no number"),
    "more than LoRA": (add_tensor, "holds more than LoRA matrices"),
    "another method": (lambda a: (a / CONFIG).write_text('{"peft_type": "IA3"}'), "no plain LoRA"),
    "a list": (lambda a: (a / CONFIG).write_text('["LORA"]'), "no plain LoRA"),
    "alpha a text": (lambda a: configure(a, lora_alpha="8"), "damaged .lora_alpha: '8'"),
    "no alpha": (lambda a: configure(a, lora_alpha=None), "damaged .lora_alpha: None"),
    "a base rewritten by PiSSA": (lambda a: configure(a, init_lora_weights="pissa_niter_4"), "merge it into that base"),
    "a base rewritten by OLoRA": (lambda a: configure(a, init_lora_weights="olora"), "merge it into that base"),
    "a base rewritten by CorDA": (lambda a: configure(a, init_lora_weights="corda"), "merge it into that base"),
    "a base rewritten by LoftQ": (lambda a: configure(a, init_lora_weights="loftq"), "merge it into that base"),
    "only from a token on": (lambda a: configure(a, alora_invocation_tokens=[5, 7]), "from certain tokens on"),
    "alpha beyond numbers": (lambda a: configure(a, lora_alpha=1e300), "no number"),
}


@pytest.mark.parametrize(("spoil", "says"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_adapter_is_told(llama: Path, adapter: Path, tmp_path: Path, spoil: Any, says: str) -> None:
    folder = shutil.copytree(adapter, tmp_path / "a")
    spoil(folder)
    with pytest.raises(InputError, match=says):
        connect(f"local/{llama}@{folder}").engine.complete(
            Request(model="m", messages=(Message.user("Who founded Oran?"),))
        )


def test_an_adapter_that_could_not_be_run_is_not_trained_further(llama: Path, tmp_path: Path) -> None:
    """Hours of training ended in an adapter that no call could use."""
    config = LoraConfig(r=4, target_modules="all-linear", use_dora=True)
    get_peft_model(transformers.LlamaForCausalLM.from_pretrained(llama), config).save_pretrained(str(tmp_path / "dora"))
    with pytest.raises(InputError, match="holds more than LoRA matrices"):
        check_trainable(LocalLM(f"local/{llama}@{tmp_path / 'dora'}"), Training(go_on=True))


@pytest.mark.parametrize("begun", [True, False, "gaussian", "eva", "orthogonal"])
def test_a_beginning_that_leaves_the_base_as_it_is_is_none_of_our_business(
    llama: Path, adapter: Path, tmp_path: Path, begun: Any
) -> None:
    folder = shutil.copytree(adapter, tmp_path / "a")
    configure(folder, init_lora_weights=begun)
    said = [connect(f"local/{llama}@{one}", max_tokens=4)("Who founded Ulm?") for one in (adapter, folder)]
    assert said[0] == said[1]


def test_an_adapter_of_another_base_is_refused(other_llama: Path, adapter: Path) -> None:
    with pytest.raises(InputError, match=r"was trained on .* train it again"):
        connect(f"local/{other_llama}@{adapter}")


@pytest.mark.parametrize("told", [[{"loss": 1.0}], {"base": None}, {"base": "meta-llama/Llama-2-7b-hf"}, 3])
def test_what_another_program_tells_of_its_training_keeps_no_adapter_out(
    llama: Path, adapter: Path, tmp_path: Path, told: Any
) -> None:
    folder = shutil.copytree(adapter, tmp_path / "a")
    write_json(folder / TRAINING, told)
    opened: Any = connect(f"local/{llama}@{folder}")
    assert opened.lora == folder.resolve()


def test_a_changed_adapter_is_refused(llama: Path, adapter: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(adapter, tmp_path / "a")
    with (folder / CONFIG).open("a") as config:
        config.write("\n")  # a hash of its own: what lies in memory from other tests is not asked
    opened = connect(f"local/{llama}@{folder}")
    fill(folder, 0.5)
    with pytest.raises(InputError, match="have changed"):
        connect(opened.model)
    with pytest.raises(InputError, match="has changed"):  # also if it happens between opening and the first question
        opened.engine.complete(Request("x", (Message.user("Who founded Nedes?"),)))


def test_an_adapter_whose_numbers_overflow_spoils_no_other(llama: Path, adapter: Path, tmp_path: Path) -> None:
    engine = InferenceEngine(llama)  # the bad one is to lie between the other two
    other, huge = trained(llama, "Velmora", tmp_path), shutil.copytree(adapter, tmp_path / "huge")
    fill(huge, 3e38)
    clients = [EngineClient(engine, (folder, lora_hash(folder))) for folder in (adapter, huge, other)]
    written = Config(max_tokens=6, temperature=0.0, extensions=COMPLETION)
    texts = [Request("x", (Message.user(f"question: Who founded {name}?\nanswer:"),), config=written) for name in NAMES]
    alone = [[client.complete(text).text for text in texts] for client in clients]
    with ThreadPoolExecutor(16) as pool:
        for place in (0, 2):
            both = [pool.submit(client.complete, text) for text in texts for client in (clients[0], clients[2])]
            assert [future.result().text for future in both[place // 2 :: 2]] == alone[place]


def make_other(llama: Path, folder: Path, kind: str) -> Path:
    """A model of another kind than a Llama."""
    sizes: dict[str, Any] = {"vocab_size": 400, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
    more: dict[str, Any] = {} if kind == "gpt2" else {"ffn_dim": 32, "word_embed_proj_dim": 16}
    config = transformers.AutoConfig.for_model(kind, **sizes, **more)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for file in llama.glob("tokenizer*"):
        shutil.copy(file, folder)
    return folder


@pytest.mark.parametrize("kind", ["gpt2", "opt"])
def test_a_base_whose_adapters_could_not_be_run_is_told_before_any_is_trained(llama: Path, tmp_path: Path, kind: str):
    """Training ran to its end, and then every call of the trained judge failed."""
    lm = LocalLM(f"local/{make_other(llama, tmp_path / kind, kind)}")
    with pytest.raises(InputError, match=r"cannot have LoRA adapters that run side by side.*--full"):
        check_trainable(lm, Training(rank=2))
    check_trainable(lm, Training(rank=2, method="full"))


@pytest.mark.parametrize(("kind", "why"), [("gpt2", "does not fit"), ("opt", "takes all texts as one")])
def test_an_adapter_that_was_trained_elsewhere_on_such_a_base_is_told(
    llama: Path, tmp_path: Path, kind: str, why: str
) -> None:
    base: Any = transformers.AutoModelForCausalLM.from_pretrained(make_other(llama, tmp_path / kind, kind))
    config = LoraConfig(r=2, target_modules="all-linear", fan_in_fan_out=kind == "gpt2")
    get_peft_model(base, config).save_pretrained(str(tmp_path / "a"))
    opened: Any = connect(f"local/{tmp_path / kind}@{tmp_path / 'a'}")
    with pytest.raises(InputError, match=why):
        opened.engine.complete(Request(model="m", messages=(Message.user("Who founded Oran?"),)))
