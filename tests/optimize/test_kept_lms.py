"""If these failed, a program that was saved would be asked, once loaded, in another way than it was compiled with."""

import logging
import shutil
from pathlib import Path
from typing import Any

import dspy
import pytest
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM

import raisf
from raisf.experiments.opening import open_program
from raisf.lm.chat import ChatAdapter
from raisf.lm.connect import connect
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import TRAINING
from raisf.optimize.optimizers.kinds_of_know import turn
from raisf.programs.baselines.direct import Direct
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json
from tests.lm.test_probes import made


def kept(lm: Any, folder: Path) -> Any:
    """The LM that a program is asked with after it was saved and loaded."""
    program = Direct()
    program.set_lm(lm)
    raisf.save(program, folder)
    loaded: Any = raisf.load(folder)
    return loaded.answer_directly.lm


def told(lm: Any) -> dict[str, Any]:
    return {"cache": lm.cache, **{name: value for name, value in lm.kwargs.items() if value is not None}}


SAMPLED: dict[str, Any] = {"temperature": 0.7, "top_p": 0.5, "seed": 3, "stop": ["x"]}
LMS = {
    "as the provider does": lambda: dspy.LM("openai/gpt-4o-mini"),
    "without a cache": lambda: dspy.LM("openai/gpt-4o-mini", temperature=0.5, cache=False),
    "sampled": lambda: dspy.LM("openai/gpt-4o-mini", max_tokens=9, **SAMPLED),
    "that reasons": lambda: dspy.LM("openai/gpt-5-mini", reasoning_effort="high"),
    "of connect": lambda: connect("openai/gpt-4o-mini").copy(**SAMPLED),
    "in the process": lambda: LocalLM("local/pocket-tiny", cache=False, **SAMPLED),
}


@pytest.mark.parametrize("make", LMS.values(), ids=LMS.keys())
def test_an_lm_is_told_after_loading_what_it_was_told_before(make: Any, tmp_path: Path) -> None:
    assert told(kept(make(), tmp_path / "a")) == told(make())


def test_an_lm_of_connect_is_written_as_it_always_was(tmp_path: Path) -> None:
    kept(connect("openai/gpt-4o-mini"), tmp_path / "a")
    (entry,) = read_json(tmp_path / "a" / "manifest.json")["lms"]
    assert entry == {
        "connect": {"spec": "openai/gpt-4o-mini", "temperature": 0.0, "max_tokens": 1024},
        "predictors": ["answer_directly"],
    }


class Engine:
    """A client of a user's own."""

    def complete(self, request: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    "options",
    [{"model_type": "responses"}, {"model_type": "text"}, {"use_developer_role": True}, {"engine": Engine()}],
    ids=["responses", "text", "developer", "engine"],
)
def test_an_lm_that_is_asked_in_another_way_is_told_and_not_kept(
    options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert kept(dspy.LM("openai/gpt-4o-mini", **options), tmp_path / "a") is None
    assert "does not keep the LM openai/gpt-4o-mini of answer_directly" in caplog.text


def test_a_predictor_s_own_settings_of_a_call_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    program = Direct()
    settings: dict[str, Any] = {"temperature": 0.9, "max_tokens": 7}
    program.answer_directly = dspy.Predict(program.answer_directly.signature, **settings, extra_body={"a": 1})
    with caplog.at_level(logging.WARNING):
        raisf.save(program, tmp_path / "a")
    assert "does not keep answer_directly.extra_body, which" in caplog.text
    loaded: Any = raisf.load(tmp_path / "a")
    assert loaded.answer_directly.config == settings


@pytest.fixture
def adapted(llama: Path, tmp_path: Path) -> LocalLM:
    """A model in the process with weights of its own."""
    model = LlamaForCausalLM.from_pretrained(llama)
    get_peft_model(model, LoraConfig(r=4, target_modules="all-linear")).save_pretrained(str(tmp_path / "lora"))
    return LocalLM(f"local/{llama}").with_weights(tmp_path / "lora")


def test_weights_of_dspy_s_own_lm_are_kept(adapted: LocalLM, tmp_path: Path) -> None:
    """The base answered in their place."""
    with dspy.context(lm=adapted):
        raisf.save(Direct(), tmp_path / "a")
    loaded: Any = raisf.load(tmp_path / "a")
    assert loaded.answer_directly.lm.lora == tmp_path / "a" / "adapters" / "answer_directly"


def test_an_lm_that_weights_leave_nothing_to_is_told_so(
    adapted: LocalLM, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another LM than the weights' base was given in Python, asked nothing, and nobody was told."""
    program = Direct()
    program.set_lm(adapted)
    raisf.save(program, tmp_path / "a")
    raisf.load(tmp_path / "a")
    raisf.load(tmp_path / "a", lm=adapted.base)
    assert not caplog.records
    raisf.load(tmp_path / "a", lm="openai/gpt-4o-mini")
    assert "a answers with weights of its own: openai/gpt-4o-mini is not their base and is never asked" in caplog.text


def test_an_address_beside_an_lm_that_has_its_own_is_refused(tmp_path: Path) -> None:
    """The questions went where the LM asks, to the provider, and not to the address that was given."""
    program = Direct()
    program.set_lm(connect("openai/x", api_base="http://127.0.0.1:9/v1"))
    raisf.save(program, tmp_path / "a")
    with pytest.raises(InputError, match="leave out api_base, or give it to"):
        raisf.load(tmp_path / "a", lm=connect("openai/x"), api_base="http://127.0.0.1:9/v1")


def test_an_lm_for_a_module_without_predictors_is_not_said_to_be_another_base(tmp_path: Path, caplog: Any) -> None:
    class Asking(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            return dspy.Prediction(answer=dspy.settings.lm(question)[0])

    raisf.save(Asking(), tmp_path / "a")
    raisf.load(tmp_path / "a", program=Asking, lm="openai/gpt-4o-mini")
    assert "a has no predictor that asks openai/gpt-4o-mini" in caplog.text and "weights" not in caplog.text


def test_an_artifact_is_not_replaced_by_what_was_trained_on_a_model_in_it(
    adapted: LocalLM, llama: Path, tmp_path: Path
) -> None:
    """The new one stood in the place of its own base, and could never be loaded."""
    program, folder = Direct(), tmp_path / "artifact"
    program.set_lm(adapted)
    raisf.save(program, folder)
    within = folder / "adapters" / "answer_directly"
    shutil.rmtree(within)
    shutil.copytree(llama, within)  # a model of which all weights were trained
    program.set_lm(LocalLM(f"local/{within}").with_weights(tmp_path / "lora"))
    with pytest.raises(InputError, match=r"artifact holds the model that 'answer_directly' was trained on.*another"):
        raisf.save(program, folder)
    assert (within / "config.json").is_file()
    raisf.save(program, tmp_path / "another")
    loaded: Any = raisf.load(tmp_path / "another")
    assert loaded.answer_directly.lm.lora == tmp_path / "another" / "adapters" / "answer_directly"


class MyChat(ChatAdapter):
    """An adapter of a user's own."""


def test_weights_whose_lm_cannot_be_kept_are_told_and_asked_for(
    adapted: LocalLM, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They came back without an LM, in silence: DSPy's own answered."""
    adapted.adapter = MyChat()
    program = Direct()
    program.set_lm(adapted)
    with caplog.at_level(logging.WARNING):
        raisf.save(program, tmp_path / "a")
    assert "does not keep the LM" in caplog.text
    with pytest.raises(InputError, match="has weights of 'answer_directly', and could not keep the LM"):
        raisf.load(tmp_path / "a")
    base = LocalLM(adapted.base)
    base.adapter = MyChat()
    loaded: Any = raisf.load(tmp_path / "a", lm=base)
    assert loaded.answer_directly.lm.lora is not None and loaded.answer_directly.lm.adapter is base.adapter


@pytest.mark.parametrize("kind", ["probe", "whole"])
def test_a_judge_that_is_new_is_asked_of_the_base_whatever_kind_of_weights_the_others_have(
    kind: str, llama: Path, tmp_path: Path
) -> None:
    """The probe of what is known was asked whether passages suffice, and a model trained to judge, about drafts."""
    base = LocalLM(f"local/{llama}")
    if kind == "probe":
        trained = base.with_weights(made(tmp_path / "probe", base))
    else:
        whole = shutil.copytree(llama, tmp_path / "whole")
        write_json(whole / TRAINING, {"base": base.base, "identity": "x"})
        trained = LocalLM(f"local/{whole}")
    program: Any = raisf.RAISF()
    program.set_lm(base)
    program.know.lm = program.answer_directly.lm = trained
    raisf.save(program, tmp_path / "a")
    opened = open_program(str(tmp_path / "a"), sufficiency=True)
    assert opened.sufficient.lm.model == base.model != opened.know.lm.model
    turn(opened, "truth")
    assert opened.know.lm.model == base.model
