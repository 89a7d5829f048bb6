"""A real Llama and a real T5 with random weights, small enough to be made for a test session, also as a GGUF file."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import numpy as np
import pytest
import torch
from dspy.lm15 import Config, DataPart, Message, Request, Response, choice, judgments
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

from raisf.lm.adapter import COMPLETION
from raisf.lm.local.decoding import Draft, decode
from raisf.lm.local.inference import Rows, load_model
from raisf.lm.local.multi_lora import BASE, Loras, Slot, lora_hash
from raisf.signatures.judges import SelfKnowledge

TEXT = "question: Who founded Velmora?\npassage: Velmora was founded by Kastrel.\nverdict: relevant know unknown"


class Given(Draft):
    """A draft that ends as a test says."""

    def __init__(self, prompt, limit, lora=BASE, prefix=None, end=None):
        super().__init__(prompt, limit, lora, prefix)
        self.end = end

    def ended(self) -> bool:
        return self.tokens[-1] == self.end


def written(model, prompts, limits, end=None, loras=None, slots=None, prefixes=None) -> dict[int, list[int]]:
    """What a model writes to some prompts together, in the order in which they end."""
    owners = zip(prompts, limits, slots or [BASE] * len(prompts), prefixes or [None] * len(prompts), strict=True)
    drafts = [Given(*owner, end) for owner in owners]
    return {drafts.index(draft): draft.tokens for draft in decode(Rows(model, loras), drafts)}


def make_tokenizer(around: str, more: Sequence[str] = (), text: str = TEXT, size: int = 400) -> PreTrainedTokenizerFast:
    """Letters and a text's words; `around` says which special tokens it puts around one, $A; `more` are tokens too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|pad|>", "<|begin|>", "<|end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text] * 3, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=around, special_tokens=[("<|begin|>", 1), ("<|end|>", 2)]
    )
    names = dict(zip(("pad_token", "bos_token", "eos_token"), special, strict=True))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    fast.add_tokens(list(more), special_tokens=True)
    return fast


def make_llama(
    folder: Path,
    seed: int = 0,
    more: Sequence[str] = (),
    louder: float = 1.0,
    text: str = TEXT,
    size: int = 400,
    context: int = 512,
) -> Path:
    """`more` are tokens beside the `size` usual ones of a text, which it writes more often where they are `louder`."""
    fast = make_tokenizer("<|begin|> $A", more, text, size)
    fast.chat_template = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    # Wider than usual: its predictions are far from uniform, but no label is certain.
    config = LlamaConfig(vocab_size=size + len(more), max_position_embeddings=context, initializer_range=0.15, **shape)
    config.pad_token_id, config.bos_token_id, config.eos_token_id = 0, 1, 2
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight[fast.convert_tokens_to_ids(list(more))] *= louder
    model.save_pretrained(folder)
    return folder


def make_t5(folder: Path) -> Path:
    """In the shape of T5 1.1, with the layers of one twentieth."""
    make_tokenizer("$A <|end|>").save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu"}
    config = T5Config(vocab_size=400, decoder_start_token_id=0, pad_token_id=0, eos_token_id=2, **shape)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_t5(tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def other_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in all but its weights."""
    return make_llama(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture(scope="module")
def model(llama: Path) -> Any:
    return load_model(llama)[0]


@pytest.fixture(scope="module")
def loras(model: Any) -> Loras:
    return Loras(model)


@pytest.fixture(scope="module")
def slot(llama: Path, loras: Loras, tmp_path_factory: pytest.TempPathFactory) -> Slot:
    """An adapter with random weights."""
    folder = tmp_path_factory.mktemp("adapter")
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(LlamaForCausalLM.from_pretrained(llama), config).save_pretrained(str(folder))
    return loras.place(folder, lora_hash(folder))


def random_tokens(seed: int, *lengths: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 300, length).tolist() for length in lengths]


def ask(lm: Any, question: str = "Who founded Ulm?") -> dspy.Prediction:
    """What an LM judges in the words of its own adapter."""
    with dspy.context(lm=lm, adapter=lm.adapter):
        return dspy.Predict(SelfKnowledge)(question=question)


def scored(question: str) -> Request:
    """A request for the labels' probabilities."""
    schema = judgments(verdict=choice("", ("know", "unknown")))
    config = Config(response_format=schema, probabilities="required", extensions=COMPLETION)
    return Request(model="m", messages=(Message.user(f"question: {question}\nverdict:"),), config=config)


def generated(question: str) -> Request:
    """A request for a text."""
    config = Config(max_tokens=6, temperature=0.0, extensions=COMPLETION)
    return Request(model="m", messages=(Message.user(f"question: {question}\nanswer:"),), config=config)


def probabilities(response: Any) -> dict[str, float]:
    return response.message.first(DataPart).probabilities["verdict"]


def answered_alone_as_together(asked: Sequence[tuple[Any, Request]]) -> list[Response]:
    """What engines answer to requests one by one, which is what they answer to sixteen threads at once."""
    alone = [engine.complete(request) for engine, request in asked]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda pair: pair[0].complete(pair[1]), asked))
    for one, other in zip(alone, together, strict=True):
        assert one.text == other.text
        if one.text is None:
            assert probabilities(one) == pytest.approx(probabilities(other), abs=1e-5)
    return alone


@pytest.fixture(autouse=True)
def each_its_own_cache(own_cache: None) -> None:
    """No test here meets what another has asked."""


def write_gguf(
    path: Path,
    drop: tuple[str, ...] = (),
    parts: int = 1,
    architecture: str = "llama",
    rotary: int = 8,
    layers: int = 2,
    more: Callable[[Any], Any] = lambda writer: None,
) -> Path:
    """A small Llama as a GGUF, without the tensors whose names begin with one of `drop`; `more` adds to it."""
    writer = pytest.importorskip("gguf", reason="the package gguf is not installed").GGUFWriter(path, architecture)
    width, inner, words = 16, 32, 64
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(rotary)
    writer.add_vocab_size(words)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(words - 3))])
    writer.add_token_scores([0.0] * words)
    writer.add_token_types([2, 3, 3, *[6] * (words - 3)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(0)
    if parts > 1:
        writer.add_uint16("split.count", parts)
    square, wide = (width, width), (inner, width)
    layer = {"attn_norm": (width,), "ffn_norm": (width,), "ffn_gate": wide, "ffn_up": wide, "ffn_down": wide[::-1]}
    layer |= dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), square)
    if architecture == "phi3":  # which multiplies by some of them at once
        layer = {name: shape for name, shape in layer.items() if name[-1] not in "qkv" and name != "ffn_gate"}
        layer |= {"attn_qkv": (3 * width, width), "ffn_up": (2 * inner, width)}
    shapes = {"token_embd": (words, width), "output_norm": (width,), "output": (words, width)}
    shapes |= {f"blk.{place}.{name}": shape for place in range(layers) for name, shape in layer.items()}
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        if not f"{name}.weight".startswith(drop or "-"):
            writer.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype(np.float32))
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
