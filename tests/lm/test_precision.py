"""The precision that a model computes in follows from the machine and the model, and is part of what it is called."""

import json
from pathlib import Path

import dspy
import pytest
import torch

import raisf
from raisf import cli
from raisf.evaluation.identity import describe
from raisf.experiments.opening import LMChoice, open_program
from raisf.lm.connect import connect
from raisf.lm.local import weights
from raisf.lm.local.model import LocalLM
from raisf.lm.local.weights import choose_precision, parameters
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch):
    """A CPU that multiplies bfloat16, without a GPU beside it, and no model too small for it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(weights, "LEAST_PARAMETERS", 1000)


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ({"avx512_bf16": True}, "bfloat16"),
        ({"avx512_bf16": False, "amx_bf16": True}, "bfloat16"),
        ({"avx512_bf16": True, "amx_bf16": True, "cpu_name": "Intel Xeon"}, "bfloat16"),
        ({"avx512_bf16": True, "amx_bf16": False, "cpu_name": "Intel Xeon"}, None),  # there float32 is faster
        ({"avx512_bf16": False}, None),
        ({"architecture": "aarch64"}, None),
    ],
)
def test_bfloat16_is_chosen_where_the_cpu_multiplies_it_fast(llama, fast, monkeypatch, found, chosen):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert choose_precision(llama) == chosen


def test_bfloat16_is_not_chosen_for_tiny_models_t5_and_gpus(llama, t5, fast, monkeypatch):
    assert choose_precision(llama) == "bfloat16"
    assert choose_precision(t5) is None
    monkeypatch.setattr(weights, "LEAST_PARAMETERS", 10**6)
    assert choose_precision(llama) is None
    monkeypatch.setattr(weights, "LEAST_PARAMETERS", 1000)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_precision(llama) is None  # its own


@pytest.mark.parametrize("own", ["float16", "bfloat16"])
def test_what_a_gpu_computes_in_is_part_of_the_name_and_a_cpus_float32_is_none_of_it(
    own: str, makers, fast, monkeypatch, tmp_path: Path
):
    """Their answers went on in one file of records."""
    folder = makers.make_llama(tmp_path)
    write_json(folder / "config.json", read_json(folder / "config.json") | {"dtype": own})
    on_cpu = connect(f"local/{folder}", dtype="float32")
    monkeypatch.setattr(weights, "_has_gpu", lambda: True)
    on_gpu, said = connect(f"local/{folder}"), connect(f"local/{folder}", dtype="float32")
    assert [lm.model for lm in (on_gpu, said)] == [f"{on_cpu.model}-{own}", f"{on_cpu.model}-float32"]
    assert isinstance(on_gpu, LocalLM) and isinstance(said, LocalLM) and isinstance(on_cpu, LocalLM)
    assert on_gpu.base_engine.model.dtype == getattr(torch, own)
    assert connect(on_cpu.model).model == connect(f"local/{folder}", dtype="default").model == on_gpu.model
    assert [LocalLM.load_state(lm.dump_state()).base_engine for lm in (on_gpu, said)] == [
        on_gpu.base_engine,
        said.base_engine,
    ]
    monkeypatch.setattr(weights, "LEAST_PARAMETERS", 10**6)
    assert connect(f"local/{folder}").model == on_cpu.model  # tiny: float32 everywhere
    assert on_cpu.base_engine.model.dtype == torch.float32


def test_the_pocket_models_stay_at_float32(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    for name in ("pocket", "pocket-tiny", "pocket-t5"):
        lm = connect(name)
        assert isinstance(lm, LocalLM) and lm.precision is None
        assert lm.model.partition("#")[2].isalnum()


def test_the_choice_is_part_of_what_the_lm_is_called(llama, fast):
    chosen, said = connect(f"local/{llama}"), connect(f"local/{llama}", dtype="float32")
    assert isinstance(chosen, LocalLM) and isinstance(said, LocalLM)
    assert chosen.model == f"{said.model}-bfloat16"
    assert (chosen.base_engine.model.dtype, said.base_engine.model.dtype) == (torch.bfloat16, torch.float32)
    assert chosen.base_engine is not said.base_engine
    for lm in (chosen, said):
        with dspy.context(lm=lm, adapter=lm.adapter):
            judged = dspy.Predict("question -> verdict: Literal['know', 'unknown']")(question="Who?")
        assert sum(judged.probabilities.values()) == pytest.approx(1)
    # Beside other things, what a saved program says: it is computed as it was, wherever it is loaded.
    for lm in (chosen, said):
        state = json.loads(json.dumps(lm.dump_state()))
        assert LocalLM.load_state(state).base_engine is lm.base_engine
        assert LocalLM(lm.base).base_engine is lm.base_engine


def test_an_adapter_answers_in_the_precision_of_its_base(llama, fast, tmp_path: Path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(llama)
    get_peft_model(model, LoraConfig(r=4, target_modules="all-linear")).save_pretrained(str(tmp_path / "lora"))
    for dtype in ("bfloat16", "float32"):
        base = connect(f"local/{llama}", dtype=dtype)
        assert isinstance(base, LocalLM)
        adapted = base.with_weights(tmp_path / "lora")
        assert adapted.base_engine is base.base_engine
        assert adapted.model.endswith("-bfloat16") == (dtype == "bfloat16")


def test_the_command_lines_choice_reaches_answers_and_artifact(llama, fast, tmp_path: Path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(llama)
    get_peft_model(model, LoraConfig(r=4, target_modules="all-linear")).save_pretrained(str(tmp_path / "lora"))
    described, programs = {}, {}
    for dtype in ("bfloat16", "float32"):
        program = programs[dtype] = open_program("direct", lm=LMChoice(f"local/{llama}", dtype=dtype))
        described[dtype] = describe(program)
        program.answer_directly.lm = program.answer_directly.lm.with_weights(tmp_path / "lora")
        raisf.save(program, tmp_path / dtype)
        kept = read_json(tmp_path / dtype / "manifest.json")["lms"][0]["connect"]["spec"]
        assert kept.endswith("-bfloat16") == (dtype == "bfloat16")
        opened = open_program(str(tmp_path / dtype))
        assert opened.answer_directly.lm.model.endswith("-bfloat16") == (dtype == "bfloat16")
    assert described["bfloat16"] != described["float32"]
    # Its adapters stand on the base that the user gives, in the precision that she gives.
    other = open_program(str(tmp_path / "bfloat16"), lm=LMChoice(f"local/{llama}", dtype="float32"))
    assert other.answer_directly.lm.base_engine is programs["float32"].answer_directly.lm.base_engine
    with pytest.raises(InputError, match="--dtype without --lm"):
        open_program(str(tmp_path / "bfloat16"), lm=LMChoice(dtype="float32"))


def test_a_dtype_that_was_not_given_changes_no_name():
    assert "dtype" not in LMChoice("pocket").options
    assert LMChoice("pocket", dtype="float32").options["dtype"] == "float32"


def test_every_command_that_takes_a_language_model_takes_a_dtype(capsys):
    for command in ("ask", "eval", "compile", "compare"):
        assert cli.main([command, "--help"]) == 0
        assert "--dtype" in capsys.readouterr().out


def test_weights_are_counted_without_reading_them(llama):
    model = connect(f"local/{llama}").base_engine.model  # type: ignore[attr-defined]
    assert parameters(llama) == sum(weights.numel() for weights in model.parameters())


def test_a_precision_that_cannot_be_is_a_users_mistake(llama):
    with pytest.raises(InputError, match="unknown dtype 'int4': choose default, float32, bfloat16"):
        connect(f"local/{llama}", dtype="int4")
    with pytest.raises(InputError, match="computes at its endpoint"):
        connect("openai/tiny", dtype="bfloat16")
