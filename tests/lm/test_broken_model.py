"""Folders of weights that are damaged, incomplete or of another kind: nobody gets an answer from random numbers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MambaConfig, MambaForCausalLM

from raisf.lm.connect import connect
from raisf.lm.local import weights
from raisf.lm.local.inference import load_model
from raisf.lm.local.soundness import check_weights, unreadable
from raisf.optimize.adapters import adapter_hash
from raisf.utils.errors import InputError

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(makers: Any, tmp_path: Path) -> Path:
    made: Path = makers.make_llama(tmp_path)
    return made


def configured(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def changed(folder: Path, change: Callable[[dict[str, torch.Tensor], str], Any]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors, next(name for name in tensors if name.endswith("mlp.up_proj.weight")))
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def of_the_bare_model(folder: Path) -> None:
    tensors = {name.removeprefix("model."): tensor for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    configured(folder, num_hidden_layers=1)


def truncated(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])


BREAKS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a layer more": (
        lambda folder: configured(folder, num_hidden_layers=3),
        "lacks 9 of the weights that its architecture has .model.layers.2",
    ),
    "a layer less": (
        lambda folder: configured(folder, num_hidden_layers=1),
        "has weights that its config.json does not tell of .9: model.layers.1",
    ),
    "a layer less than names without a prefix": (
        of_the_bare_model,
        "has weights that its config.json does not tell of .9: (model.)?layers.1",
    ),
    "biases": (
        lambda folder: changed(
            folder, lambda tensors, name: tensors.update({name.replace("weight", "bias"): torch.ones(64)})
        ),
        r"has weights that its config.json does not tell of \(1: model.layers.0.mlp.up_proj.bias\)",
    ),
    "a tensor less": (
        lambda folder: changed(folder, lambda tensors, name: tensors.pop(name)),
        r"lacks 1 of the weights that its architecture has \(model.layers.0.mlp.up_proj.weight",
    ),
    "no head": (
        lambda folder: changed(folder, lambda tensors, name: tensors.pop("lm_head.weight")),
        r"lacks 1 of the weights that its architecture has \(lm_head.weight",
    ),
    "no numbers": (
        lambda folder: changed(folder, lambda tensors, name: tensors[name][3].fill_(float("nan"))),
        "is damaged: its model.layers.0.mlp.up_proj.weight has weights that are no numbers",
    ),
    "another width": (
        lambda folder: changed(folder, lambda tensors, name: tensors.update({name: tensors[name][:-1].clone()})),
        "is damaged|lacks 1 of the weights",
    ),
    "cut": (truncated, "is damaged, or transformers cannot read it .*incomplete"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "is damaged, or transformers cannot"),
    "configuration": (lambda folder: (folder / "config.json").write_text("{"), "JSON"),
    "unknown": (lambda folder: configured(folder, model_type="strange"), "does not recognize this architecture"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_damaged_folder_is_told_with_its_remedy(folder: Path, what: str) -> None:
    damage, message = BREAKS[what]
    damage(folder)
    with pytest.raises(InputError, match=message) as told:
        load_model(folder)
    assert str(folder) in str(told.value) and "copy or download it again" in str(told.value)


def test_weights_of_another_kind_are_no_damage(folder: Path) -> None:
    """Files hold an image encoder, or heads that predict further tokens, which a language model has no use for."""
    more = {"vision.layers.0.mlp.up_proj.weight": torch.ones(2), "mtp.layers.0.self_attn.q_proj.weight": torch.ones(2)}
    changed(folder, lambda tensors, name: tensors.update(more))
    load_model(folder)


def test_weights_whose_sum_half_precision_cannot_hold_are_no_damage(tmp_path: Path) -> None:
    model: Any = torch.nn.Linear(300, 300, dtype=torch.float16)
    torch.nn.init.ones_(model.weight)
    model.config, model.base_model_prefix = None, "model"
    check_weights(model, {"missing_keys": [], "mismatched_keys": [], "unexpected_keys": []}, tmp_path)


def test_an_error_without_words_is_told_by_its_kind_and_one_in_two_lines_by_both(tmp_path: Path) -> None:
    assert "cannot read it (KeyError)" in str(unreadable(tmp_path, KeyError()))
    told = unreadable(tmp_path, ValueError("Cannot load:\n  layer 3\nmore"), ", or give another")
    assert "cannot read it (Cannot load: layer 3): copy or download it again, or give another" in str(told)


def test_an_architecture_that_cannot_run_here_is_not_called_damaged(folder: Path) -> None:
    """Whoever has a Mamba or a GPT-OSS would download it again and again."""
    MambaForCausalLM(MambaConfig(vocab_size=400, hidden_size=16, num_hidden_layers=1)).save_pretrained(folder)
    with pytest.raises(InputError, match=r"cannot run in this process \(MambaForCausalLM\): take another"):
        load_model(folder)


def test_another_models_tokenizer_is_named_when_it_writes_what_the_model_does_not_know(
    makers: Any, folder: Path, tmp_path: Path
) -> None:
    smaller = makers.make_llama(tmp_path / "smaller", size=270)
    for file in folder.glob("tokenizer*"):
        shutil.copy(file, smaller)
    lm: Any = connect(f"local/{smaller}")
    with pytest.raises(InputError, match=r"tokenizer is another model's: it writes the token \d+ .* 270 tokens: copy"):
        lm.logprob("question: Who founded Velmora?", " relevant")


def test_what_cannot_be_read_is_a_users_mistake_when_it_is_asked(folder: Path) -> None:
    lm = connect(f"local/{folder}")
    (folder / "tokenizer.json").write_text("no tokenizer")
    with dspy.context(lm=lm), pytest.raises(Exception) as raised:
        lm("question: Who?")
    causes = [raised.value]
    while (cause := causes[-1].__cause__) is not None:
        causes.append(cause)  # type: ignore[arg-type]
    assert any(isinstance(one, InputError) for one in causes)


def test_weights_that_change_before_the_first_question_do_not_answer_for_those_that_were_connected(
    folder: Path,
) -> None:
    before: Any = connect(f"local/{folder}")
    changed(folder, lambda tensors, name: tensors.update({name: tensors[name] * 2}))
    with pytest.raises(InputError, match=r"have changed: expected #.* connect to them anew"):
        before.logprob("question: Who?", " Ada")
    assert connect(f"local/{folder}").base_engine.model


def test_another_chat_template_is_another_model_and_what_was_compiled_before_still_opens(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    formerly = weights.weights_hash(folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    first = weights.weights_hash(folder)
    (folder / "chat_template.jinja").write_text("say {{ messages[0].content }}")
    second = weights.weights_hash(folder)
    assert len({formerly, first, second}) == 3 and adapter_hash(folder) == second
    with pytest.raises(InputError, match="have changed"):
        connect(f"local/{folder}#{first}")
    # Versions that passed over the template knew the model by the rest.
    assert weights.same_weights(formerly, folder) and connect(f"local/{folder}#{formerly}").model.endswith(second)


def test_how_long_a_training_took_makes_no_other_model_of_it(folder: Path) -> None:
    bare = weights.weights_hash(folder)
    hashes = set()
    for seconds in (1.5, 2.5):
        (folder / weights.REPORT).write_text(json.dumps({"seconds": seconds}))
        hashes.add(weights.weights_hash(folder))
        counted = weights._hash_of(folder, weights.EVERYTHING)
        assert weights.same_weights(counted, folder)  # as versions before knew it
    assert hashes == {bare}


def test_a_template_that_came_beside_the_tokenizers_own_is_no_former_model(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**settings, "chat_template": "{{ messages[0].content }}"})
    )
    sha = weights.weights_hash(folder)
    assert connect(f"local/{folder}#{sha}")
    (folder / "chat_template.jinja").write_text("say no to {{ messages[0].content }}")
    with pytest.raises(InputError, match="have changed"):
        connect(f"local/{folder}#{sha}")
