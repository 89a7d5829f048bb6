"""If these failed, a judge with a probe would say other things in a batch than alone, or read another base's states."""

import json
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np
import pytest
import torch
from dspy.lm15 import ContextLengthError
from safetensors.numpy import load_file, save_file

from raisf.lm.connect import connect
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import Training
from raisf.lm.local.model import LocalLM
from raisf.lm.local.probes import PROBE, STATES, Probe, read_probe
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import PassageRelevance, SelfKnowledge
from raisf.utils.errors import InputError

WIDTH, LAYERS = 32, 2  # of the small Llama
QUESTIONS = [f"Who founded Velmora {number}?" for number in range(12)]


class Rising(dspy.Signature):
    """Say whether the number is larger than the one before."""

    number: int = dspy.InputField()
    rising: bool = dspy.OutputField()


class Colour(dspy.Signature):
    """Name the colour of the thing."""

    thing: str = dspy.InputField()
    colour: Literal["red", "green", "blue"] = dspy.OutputField()


def made(
    folder: Path, lm: LocalLM, labels: Any = ("know", "unknown"), layer: int = 1, seed: int = 0, first: float = 0.0
) -> Path:
    """A probe with random weights: its verdicts differ from prompt to prompt; `first` is added to the first label's."""
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(len(labels), WIDTH)), rng.normal(size=len(labels))
    bias[0] += first
    folder.mkdir(parents=True)
    Probe(labels, layer, weight, bias, rng.normal(size=WIDTH) / 10, np.full(WIDTH, 2.0)).write(
        folder, {"base": lm.base}
    )
    return folder


@pytest.fixture
def base(llama: Path) -> LocalLM:
    return LocalLM(f"local/{llama}", max_tokens=8, cache=False)


@pytest.fixture
def probe(base: LocalLM, tmp_path: Path) -> Path:
    return made(tmp_path / "probe", base)


def ask(lm: Any, signature: Any = SelfKnowledge, **inputs: Any) -> Any:
    with dspy.context(lm=lm, adapter=lm.adapter):
        return dspy.Predict(signature)(**(inputs or {"question": QUESTIONS[0]}))


def test_the_states_are_those_that_transformers_gives_whatever_shares_the_batch(base: LocalLM) -> None:
    texts = [f"question: {question}\nverdict:" for question in QUESTIONS] + ["one", "two words of another length"]
    found = base.hidden(texts)
    for text, states in zip(texts, found, strict=True):
        ids = torch.tensor([base.base_engine.text.encode(text, True)])
        with torch.inference_mode():
            hidden: Any = base.base_engine.model(ids, output_hidden_states=True).hidden_states
        expected = np.stack([layer[0, -1].numpy() for layer in hidden[1:]])
        assert states is not None and states.dtype == np.float32
        assert states == pytest.approx(expected, abs=1e-5)
    (last,) = base.hidden(texts[:1], layers=[LAYERS])
    assert last is not None and found[0] is not None and last[0] == pytest.approx(found[0][-1], abs=1e-5)


def test_a_verdict_is_the_regression_on_the_state_before_the_label(base: LocalLM, probe: Path) -> None:
    lm, read = base.with_weights(probe), read_probe(probe)
    for question in QUESTIONS:
        (states,) = base.hidden([lm.adapter.prompt(SelfKnowledge, {"question": question})], [read.layer])
        assert states is not None
        said = ask(lm, question=question)
        assert said.probabilities == pytest.approx(read.probabilities(states[0]), abs=1e-5)
        assert said.verdict == max(said.probabilities, key=said.probabilities.__getitem__)
    assert ask(lm).probabilities != pytest.approx(ask(base).probabilities, abs=1e-3)


def test_probes_adapters_and_the_base_share_batches_and_say_what_each_says_alone(
    base: LocalLM, probe: Path, tmp_path: Path
) -> None:
    row = base.adapter.format_finetune_data(DirectAnswer, [], {"question": "Who founded Ulm?"}, {"answer": "Oran"})
    rows = [TrainingRow(row["messages"])]
    training = Training(epochs=3, batch_size=1, rank=4, learning_rate=1e-2)
    adapter = train(base, rows, rows, tmp_path / "work", training, progress=False)
    other = made(tmp_path / "other", base, layer=2, seed=1)
    lms = [base, base.with_weights(probe), base.with_weights(other), base.with_weights(adapter)]
    assert len({id(lm.base_engine) for lm in lms}) == 1  # one base in memory
    shared = "few-shot " * 20  # long enough for its keys and values to be kept after some batches
    calls = [(lm, f"{shared if place % 2 else ''}{q}") for place, q in enumerate(QUESTIONS) for lm in lms]

    def probabilities(call: Any) -> dict[str, float]:
        return ask(call[0], question=call[1]).probabilities

    alone = [probabilities(call) for call in calls]
    for _ in range(3):
        with ThreadPoolExecutor(16) as pool:
            together = list(pool.map(probabilities, calls))
        for one, several in zip(alone, together, strict=True):
            assert several == pytest.approx(one, abs=1e-5)
    assert len({round(one["know"], 4) for one in alone[:4]}) == 4  # each has its own read-out


def test_what_is_written_is_the_bases(base: LocalLM, probe: Path) -> None:
    lm = base.with_weights(probe)
    assert lm("question: Who founded Velmora?\nanswer:") == base("question: Who founded Velmora?\nanswer:")
    assert lm.logprob("a", " b") == base.logprob("a", " b")


def test_log_probabilities_of_several_are_those_of_each(base: LocalLM) -> None:
    """Of different lengths, in more than one batch, in the order that they were asked in."""
    texts = [(f"question: Who founded {'Velmora ' * (n % 7 * 12 + 1)}?\nanswer:", f" Name{n}") for n in range(40)]
    alone = [base.logprob(*text) for text in texts]
    together = base.logprobs(texts)
    assert [tokens for _, tokens in together] == [tokens for _, tokens in alone]
    assert [total for total, _ in together] == pytest.approx([total for total, _ in alone], abs=1e-3)
    assert base.logprobs([]) == []


def test_a_call_for_other_labels_is_refused(base: LocalLM, probe: Path) -> None:
    with pytest.raises(Exception, match="the probe knows the labels know, unknown, and is asked for relevant"):
        ask(base.with_weights(probe), PassageRelevance, question="Who?", passage="Ulm")


@pytest.mark.parametrize("adapter", [None, dspy.ChatAdapter(), dspy.JSONAdapter()])
def test_a_bool_and_three_labels_are_read_off_too(base: LocalLM, tmp_path: Path, adapter: Any) -> None:
    colour = base.with_weights(made(tmp_path / "colour", base, ("red", "green", "blue")))
    with dspy.context(adapter=adapter or base.adapter):
        for says, first in ((True, 99), (False, -99)):
            predictor = dspy.Predict(Rising)
            predictor.lm = base.with_weights(made(tmp_path / str(says), base, ("true", "false"), first=first))
            assert predictor(number=3).rising is says
        predictor = dspy.Predict(Colour)
        predictor.lm = colour
        answer = predictor(thing="grass")
    assert answer.colour in ("red", "green", "blue")
    if adapter is None:
        assert sum(answer.probabilities.values()) == pytest.approx(1) and len(answer.probabilities) == 3


def test_in_the_chat_format_a_verdict_is_read_off_as_well(llama: Path, tmp_path: Path) -> None:
    base = LocalLM(f"local/{llama}", adapter="chat", cache=False)
    lm = base.with_weights(made(tmp_path / "probe", base))
    assert ask(lm).probabilities.keys() == {"know", "unknown"}


def test_an_lm_with_a_probe_survives_pickling_saving_and_its_own_name(base: LocalLM, probe: Path) -> None:
    lm = base.with_weights(probe)
    said = ask(lm).probabilities
    again = [LocalLM(lm.model), pickle.loads(pickle.dumps(lm)), LocalLM.load_state(lm.dump_state()), lm.copy()]
    again.append(connect(f"local/{base.base_engine.folder}@{probe}"))  # type: ignore[arg-type]
    for one in again:
        assert ask(one).probabilities == pytest.approx(said, abs=1e-6) and one.model == lm.model and one.probe == probe
    told = read_probe(probe)
    weights = load_file(probe / STATES)
    assert told.layer == 1 and np.array_equal(told.weight, weights["weight"])


def edit(folder: Path, **changes: Any) -> None:
    told = json.loads((folder / PROBE).read_text())
    (folder / PROBE).write_text(json.dumps({**told, **changes}))


def tensors(folder: Path, **changes: Any) -> None:
    save_file({**load_file(folder / STATES), **changes}, folder / STATES)


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "cut off": (lambda p: (p / STATES).write_bytes((p / STATES).read_bytes()[:100]), "is damaged"),
    "another shape": (lambda p: tensors(p, weight=np.zeros((3, WIDTH), np.float32)), "weight is float32"),
    "another precision": (lambda p: tensors(p, bias=np.zeros(2)), "bias is float64"),
    "not a number": (lambda p: tensors(p, bias=np.array([np.nan, 0], np.float32)), "bias holds what is no number"),
    "no spread": (lambda p: tensors(p, scale=np.zeros(WIDTH, np.float32)), "no spread"),
    "more": (lambda p: tensors(p, more=np.zeros(1, np.float32)), "holds bias, mean, more"),
    "no JSON": (lambda p: (p / PROBE).write_text("{"), "is not JSON"),
    "one label": (lambda p: edit(p, labels=["know"]), "labels in probe.json"),
    "no layer": (lambda p: edit(p, layer="1"), "layer in probe.json is '1'"),
    "no base": (lambda p: edit(p, base=None), "names no base"),
    "another format": (lambda p: edit(p, format=99), "has format 99, this version reads 1"),
    "gone": (lambda p: (p / STATES).unlink(), "no probe at"),
    "too deep": (lambda p: edit(p, layer=3), "of another base: it reads layer 3"),
    "another width": (
        lambda p: tensors(
            p, weight=np.zeros((2, 8), np.float32), mean=np.zeros(8, np.float32), scale=np.ones(8, np.float32)
        ),
        "of another base: it reads layer 1 of width 8",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_probe_is_told(base: LocalLM, probe: Path, damage: str) -> None:
    spoil, message = DAMAGE[damage]
    spoil(probe)
    with pytest.raises(Exception, match=message) as caught:
        ask(base.with_weights(probe))
    assert isinstance(caught.value, InputError) or isinstance(caught.value.__cause__, InputError)


def test_a_probe_of_another_base_is_refused(base: LocalLM, probe: Path, other_llama: Path) -> None:
    with pytest.raises(InputError, match=r"the probe .* was fitted on .* with the weights #.*: give the base"):
        LocalLM(f"local/{other_llama}").with_weights(probe)
    before = base.with_weights(probe).model
    edit(probe, layer=2)
    with pytest.raises(InputError, match="have changed"):
        LocalLM(before)


def test_an_encoder_decoder_has_no_place_to_read(t5: Path, tmp_path: Path) -> None:
    lm = LocalLM(f"local/{t5}", cache=False)
    with pytest.raises(InputError, match="is an encoder-decoder"):
        lm.hidden(["a"])
    probe = made(tmp_path / "probe", lm)
    with pytest.raises(Exception, match="is an encoder-decoder"):
        ask(lm.with_weights(probe))


def test_what_is_longer_than_the_context_has_no_state(base: LocalLM, probe: Path) -> None:
    long = "word " * 600
    short, none = base.hidden(["short", long])
    assert short is not None and none is None
    with pytest.raises(Exception) as caught:
        ask(base.with_weights(probe), question=long)
    assert "the model reads 512 at most" in str(caught.value) or isinstance(caught.value, ContextLengthError)


def test_recording_asks_nothing_and_reads_every_format(base: LocalLM) -> None:
    def calls(lm: LocalLM) -> None:
        with dspy.context(lm=lm, adapter=dspy.ChatAdapter()):
            dspy.Predict(Rising)(number=3)
        ask(lm)

    first, second = base.recorded(calls)
    assert "number: 3\nrising:" in (first.messages[0].text or "")
    assert second.config.response_format is not None and base.history == []
