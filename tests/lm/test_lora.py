"""If these failed, a judge would be trained on other text than it meets, or answer with another judge's weights."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest
import torch
from dspy.lm15 import Request

from raisf.lm.connect import connect
from raisf.lm.finetune import loop
from raisf.lm.finetune.lora import TrainingRow, tokenized, train
from raisf.lm.finetune.trainable import trainable
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.clients import EngineClient
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import CONFIG, TRAINING, WEIGHTS, Blend, lora_hash
from raisf.signatures.judges import SelfKnowledge
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from tests.lm.conftest import answered_alone_as_together, ask, generated, probabilities, scored

NAMES = ("Velmora", "Kastrel", "Tisdel", "Belrin", "Oran", "Sirfer", "Nedes", "Kobel")
QUICK = Training(epochs=3, batch_size=4, rank=4, learning_rate=2e-2)


def rows(lm: LocalLM, verdict: str = "", names: tuple[str, ...] = NAMES) -> list[TrainingRow]:
    """Whoever founded something is known and whoever sold it is not, unless one verdict is given for all."""
    made = []
    for name in names:
        for deed, right in (("founded", "know"), ("sold", "unknown")):
            question, said = {"question": f"Who {deed} {name}?"}, {"verdict": verdict or right}
            made.append(TrainingRow(lm.adapter.format_finetune_data(SelfKnowledge, [], question, said)["messages"]))
    return made


@pytest.fixture(scope="module")
def lm(llama: Path) -> LocalLM:
    return LocalLM(f"local/{llama}", cache=False, max_tokens=8)


@pytest.fixture(scope="module")
def knows(lm: LocalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    return train(lm, rows(lm), rows(lm, names=("Ulm",)), work, QUICK, name="knows", progress=False)


@pytest.fixture(scope="module")
def denies(lm: LocalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    learnt = rows(lm, "unknown")
    return train(lm, learnt, learnt, tmp_path_factory.mktemp("work"), QUICK, name="denies", progress=False)


def test_a_judge_learns_what_its_rows_say(lm: LocalLM, knows: Path, denies: Path) -> None:
    report = read_json(knows / TRAINING)
    assert [point["epoch"] for point in report["curve"]] == [0, 1, 2, 3]
    assert report["curve"][report["best_epoch"]]["loss"] < report["curve"][0]["loss"]
    assert report["base"] == lm.base and report["rows"] == {"train": 16, "validation": 2}
    assert report["tokens_per_second"] > 0
    trained = lm.with_weights(knows)
    sold, founded = (ask(trained, f"Who {deed} Kastrel?").probabilities["unknown"] for deed in ("sold", "founded"))
    assert sold > founded
    assert ask(lm.with_weights(denies)).verdict == "unknown"


def test_a_base_in_bfloat16_is_learnt_on_as_one_in_float32(
    llama: Path, lm: LocalLM, knows: Path, tmp_path: Path
) -> None:
    half = LocalLM(f"local/{llama}", cache=False, max_tokens=8, dtype="bfloat16")
    curve = read_json(train(half, rows(half), rows(half, names=("Ulm",)), tmp_path, QUICK, progress=False) / TRAINING)
    losses = [[point["loss"] for point in found["curve"]] for found in (read_json(knows / TRAINING), curve)]
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    run = FinetuneRun(half, half_rows := tokenized(half.base_engine.text, rows(half), True, 256, "knows"), [], QUICK)
    run._losses(run.model, half_rows[:4])[0].sum().backward()
    # What is learnt is kept in float32: a small step would be lost in bfloat16.
    assert {p.dtype for p in run.weights.values()} == {p.grad.dtype for p in run.weights.values()} == {torch.float32}


def test_the_base_stays_the_same_to_the_last_bit(llama: Path, knows: Path) -> None:
    untouched, engine = InferenceEngine(llama), connect(f"local/{llama}").base_engine
    EngineClient(engine, (knows, lora_hash(knows))).complete(scored("Who founded Ulm?"))
    ids = torch.tensor([[1, 5, 9, 20, 33]])
    with torch.inference_mode():
        assert torch.equal(untouched.model(ids).logits, engine.model(ids).logits)
    question = scored("Who founded Oran?")
    assert probabilities(engine.complete(question)) == probabilities(untouched.complete(question))


def test_adapters_mixed_in_a_batch_give_what_each_gives_alone(lm: LocalLM, knows: Path, denies: Path) -> None:
    base = lm.base_engine
    engines = [base, *(EngineClient(base, (folder, lora_hash(folder))) for folder in (knows, denies))]
    asked = [
        (engine, make(f"Who founded {name}?")) for name in NAMES for engine in engines for make in (scored, generated)
    ]
    alone = answered_alone_as_together(asked)
    verdicts = [probabilities(response)["know"] for response in alone[:6:2]]
    assert len({round(verdict, 4) for verdict in verdicts}) == 3


@pytest.mark.parametrize("rslora", [False, True])
def test_an_adapter_gives_what_peft_gives_with_it(lm: LocalLM, knows: Path, tmp_path: Path, rslora: bool) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    knows = shutil.copytree(knows, tmp_path / "knows")
    (knows / CONFIG).write_text(json.dumps(read_json(knows / CONFIG) | {"use_rslora": rslora}))
    model = AutoModelForCausalLM.from_pretrained(lm.base_engine.folder, dtype=torch.float32)
    theirs = PeftModel.from_pretrained(model, str(knows)).eval()
    text = lm.base_engine.text
    prompt = "question: Who founded Ulm?\nverdict:"
    start, logprobs = len(text.encode(prompt, True)), []
    for label in ("know", "unknown"):
        tokens = text.encode(f"{prompt} {label}", True)
        with torch.inference_mode():
            each = theirs(torch.tensor([tokens])).logits[0].log_softmax(-1)
        logprobs.append(sum(float(each[i - 1, tokens[i]]) for i in range(start, len(tokens))))
    ours = EngineClient(lm.base_engine, (knows, lora_hash(knows))).complete(scored("Who founded Ulm?"))
    assert probabilities(ours)["know"] == pytest.approx(float(torch.tensor(logprobs).softmax(0)[0]), abs=1e-5)


def test_equal_seeds_give_equal_weights_and_others_others(lm: LocalLM, knows: Path, tmp_path: Path) -> None:
    def made(training: Training, place: str) -> bytes:
        learnt = (rows(lm), rows(lm, names=("Ulm",)))
        return (train(lm, *learnt, tmp_path / place, training, progress=False) / WEIGHTS).read_bytes()

    assert made(QUICK, "a") == (knows / WEIGHTS).read_bytes()
    assert made(replace(QUICK, seed=1), "b") != made(QUICK, "c")


@pytest.mark.parametrize("steps", [0, 2, 4])
def test_a_killed_training_goes_on_to_the_very_same_weights(
    lm: LocalLM, knows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    save = FinetuneRun.save

    def killed(self: FinetuneRun, path: Path, identity: str) -> None:
        save(self, path, identity)
        if self.steps == steps:
            raise KeyboardInterrupt

    learnt = (rows(lm), rows(lm, names=("Ulm",)))
    with monkeypatch.context() as patched:
        patched.setattr(FinetuneRun, "save", killed)
        patched.setattr(loop, "SAVE_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            train(lm, *learnt, tmp_path, QUICK, name="knows", progress=False)
    taken, step = [], FinetuneRun._step
    monkeypatch.setattr(FinetuneRun, "_step", lambda self, batch: (taken.append(self.steps), step(self, batch))[1])
    folder = train(lm, *learnt, tmp_path, QUICK, name="knows", progress=False)
    assert taken == list(range(steps, taken[-1] + 1))
    assert (folder / WEIGHTS).read_bytes() == (knows / WEIGHTS).read_bytes() and len(list(tmp_path.iterdir())) == 1


def test_a_torn_checkpoint_only_costs_time(lm: LocalLM, knows: Path, tmp_path: Path) -> None:
    (tmp_path / f".{knows.name}.safetensors").write_bytes(b"torn")
    folder = train(lm, rows(lm), rows(lm, names=("Ulm",)), tmp_path, QUICK, name="knows", progress=False)
    assert lora_hash(folder) == lora_hash(knows)


def test_what_is_finished_is_not_trained_again(lm: LocalLM, knows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FinetuneRun, "epoch", lambda *_: pytest.fail("trained again"))
    learnt = (rows(lm), rows(lm, names=("Ulm",)))
    assert train(lm, *learnt, knows.parent, QUICK, name="knows", progress=False) == knows


@pytest.mark.parametrize("gone", [WEIGHTS, CONFIG, TRAINING])
@pytest.mark.parametrize("torn", [False, True])
def test_what_was_finished_and_has_been_damaged_is_made_again(
    lm: LocalLM, knows: Path, tmp_path: Path, gone: str, torn: bool
) -> None:
    """The same command failed until the folder was deleted by hand."""
    whole = lora_hash(knows)
    folder = shutil.copytree(knows, tmp_path / knows.name)
    (folder / gone).write_bytes(b"{") if torn and gone != CONFIG else (folder / gone).unlink()
    for other in {CONFIG, TRAINING} - {gone} if torn and gone != WEIGHTS else ():  # so that the weights are left alone
        (folder / other).unlink()
    learnt = (rows(lm), rows(lm, names=("Ulm",)))
    assert train(lm, *learnt, tmp_path, QUICK, name="knows", progress=False) == folder
    assert lora_hash(folder) == whole and read_json(folder / TRAINING)["identity"]


def test_training_stops_when_it_no_longer_helps_and_keeps_the_best_weights(
    lm: LocalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    seen: list[dict[str, torch.Tensor]] = []
    epoch = FinetuneRun.epoch

    def watched(self: FinetuneRun, *told: Any) -> None:
        epoch(self, *told)
        seen.append({name: weights.detach().clone() for name, weights in self.weights.items()})

    monkeypatch.setattr(FinetuneRun, "epoch", watched)
    training = Training(epochs=9, patience=2, batch_size=4, rank=4, learning_rate=2e-2)
    folder = train(lm, rows(lm, "unknown"), rows(lm, "know"), tmp_path, training, progress=False)
    report = read_json(folder / TRAINING)
    losses, best = [point["loss"] for point in report["curve"]], report["best_epoch"]
    assert report["stopped_early"] and losses[best] == min(losses) and len(losses) == best + 3
    kept = load_file(folder / WEIGHTS)
    for name, weights in seen[best].items():
        assert torch.equal(kept[name.replace(".default", "")], weights)
    assert any(not torch.equal(seen[best][name], weights) for name, weights in seen[-1].items())


@pytest.mark.parametrize("adapter", ["compact", "pocket", "chat"])
def test_a_row_is_the_text_that_the_model_meets_when_asked(
    llama: Path, adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = LocalLM(f"local/{llama}", adapter=adapter, cache=False)
    demos = [{"question": "Who sold Oran?", "verdict": "know"}]
    form: Any = lm.adapter
    inputs = {"question": "Who founded Ulm?"}
    row = form.format_finetune_data(signature=SelfKnowledge, demos=demos, inputs=inputs, outputs={"verdict": "unknown"})
    row_of = lm.base_engine.text.training_row(row["messages"], completion=adapter != "chat")
    tokens, start = row_of.tokens, row_of.start
    met: list[list[int]] = []
    text = lm.base_engine.text

    def submit(request: Request, *_: Any) -> Any:
        met.append(text.encode(*text.of(request)))
        raise RuntimeError("enough")

    monkeypatch.setattr(lm.base_engine, "submit", submit)
    predictor = dspy.Predict(SelfKnowledge)
    predictor.demos = demos
    with dspy.context(lm=lm, adapter=form), pytest.raises(Exception, match="enough"):
        predictor(**inputs)
    assert tokens[:start] == met[0][:start] and start >= len(met[0]) - 1
    if adapter != "chat":  # as its label is scored
        label = text.encode(text.decode(met[0][1:], False) + " unknown", True)
        assert tokens[: len(label)] == label
    assert "unknown" in lm.base_engine.text.decode(tokens[start:], True)
    assert "Ulm" not in lm.base_engine.text.decode(tokens[start:], True)


def test_nothing_is_learnt_beyond_the_end_of_a_text(lm: LocalLM) -> None:
    messages = [{"role": "user", "content": "a:"}, {"role": "assistant", "content": " b<|end|>\n"}]
    row_of = lm.base_engine.text.training_row(messages, True)
    tokens, start = row_of.tokens, row_of.start
    assert tokens[-1] == lm.base_engine.text.tokenizer.eos_token_id
    assert lm.base_engine.text.decode(tokens[start:-1], False) == " b"


def test_an_end_is_learnt_where_no_chat_template_writes_one(lm: LocalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    text = lm.base_engine.text
    monkeypatch.setattr(text.tokenizer, "chat_template", None)
    row = text.training_row([{"role": "user", "content": "a:"}, {"role": "assistant", "content": " b"}], False)
    assert text.decode(row.tokens[row.start :], False) == " b<|end|>"


def test_rows_longer_than_the_context_are_left_out_and_counted(lm: LocalLM, tmp_path: Path) -> None:
    long = TrainingRow([{"role": "user", "content": "x" * 600}, {"role": "assistant", "content": " y"}])
    learnt = [*rows(lm), long]
    once = Training(epochs=1, rank=2)
    report = read_json(train(lm, learnt, rows(lm), tmp_path, once, progress=False) / TRAINING)
    assert (report["rows"]["train"], report["too_long"]) == (16, 1)
    with pytest.raises(InputError, match="none of 1 rows fits into the base's context of 512"):
        train(lm, [long], rows(lm), tmp_path, once, progress=False)


def test_all_weights_can_be_trained_on_the_same_interface(lm: LocalLM, tmp_path: Path) -> None:
    training = Training(method="full", epochs=2, learning_rate=1e-3)
    folder = train(lm, rows(lm, "unknown"), rows(lm, "unknown"), tmp_path, training, progress=False)
    trained = lm.with_weights(folder)
    assert trained.lora is None and trained.base_engine is not lm.base_engine
    assert ask(trained).probabilities["unknown"] > ask(lm).probabilities["unknown"]


def test_an_adapter_is_opened_by_its_spec_wherever_it_lies(
    llama: Path, lm: LocalLM, knows: Path, denies: Path, tmp_path: Path
) -> None:
    odd = shutil.copytree(knows, tmp_path / "me@home" / "a#1")
    trained = connect(f"local/{llama}@{odd}", max_tokens=8)
    assert trained.model.startswith(f"local/{llama}@{odd}#")
    assert connect(trained.model).lora == odd
    assert ask(trained).probabilities == ask(connect(f"local/{llama}@{knows}")).probabilities
    assert trained.base == connect(f"local/{llama}").model
    assert trained.weights == connect(f"local/{llama}@{knows}").weights != lm.with_weights(denies).weights
    with pytest.raises(InputError, match=r"no LoRA adapter at .*nowhere"):
        connect(f"local/{llama}@{tmp_path}/nowhere")


def test_what_was_set_of_an_lm_is_set_of_it_with_weights(llama: Path, knows: Path) -> None:
    lm = LocalLM(f"local/{llama}", adapter="pocket", temperature=0.7, top_p=0.4, seed=3, max_tokens=8, cache=False)
    lm.callbacks = [object()]
    trained = lm.with_weights(knows)
    assert trained.kwargs == lm.kwargs and trained.callbacks == lm.callbacks and not trained.cache
    assert (trained.adapter_name, trained.precision) == (lm.adapter_name, lm.precision)


def test_two_adapters_never_share_a_cached_answer(lm: LocalLM, knows: Path, denies: Path) -> None:
    cached = [LocalLM(lm.with_weights(folder).model, cache=True) for folder in (knows, denies)]
    first, second = (ask(one, "Who founded Kobel?").probabilities["know"] for one in cached)
    assert first != pytest.approx(second, abs=1e-3)


def under_way(lm: LocalLM, adapter: Path) -> Blend:
    """A batch with an adapter, as the engine's thread computes it."""
    ask(lm.with_weights(adapter))
    loras = lm.base_engine.loras
    blend = loras.blend([*loras._slots.values()])
    assert blend is not None
    return blend


@pytest.mark.parametrize("method", ["lora", "full"])
def test_what_is_trained_is_the_base_without_what_others_ask_of_it(lm: LocalLM, denies: Path, method: Any) -> None:
    """The engine's thread hangs the adapters of a batch into the very modules that are copied."""
    with under_way(lm, denies):
        made = trainable(lm, method, 4)
    assert not [module for module in made.modules() if module._forward_hooks]


def test_likelihoods_are_the_bases_whatever_is_asked_of_it_meanwhile(lm: LocalLM, denies: Path) -> None:
    """LSR weighs passages by them; beside a judge's adapter in another thread they were the adapter's."""
    prompt, answer = "question: Who founded Ulm?\nverdict:", " unknown"
    alone = lm.logprob(prompt, answer)
    with under_way(lm, denies):
        assert lm.logprob(prompt, answer) == pytest.approx(alone)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "qlora"}, "choose lora, full"),
        ({"epochs": 0}, "epochs is 0: give a whole number, 1 or more"),
        ({"epochs": True}, "epochs is True: give a whole number"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"learning_rate": None}, "rate is None: give a number above 0"),
        ({"learning_rate": 5.0}, "below 1"),
    ],
)
def test_settings_that_cannot_work_are_told(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Training(**options)
