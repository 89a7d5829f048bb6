"""If these failed, a T5 judge would give other verdicts than the T5 does, or learn another answer than it is asked."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from raisf.lm.adapter import CompactAdapter
from raisf.lm.finetune.lora import TrainingRow, train
from raisf.lm.finetune.training import FinetuneRun, Training
from raisf.lm.local.clients import EngineClient
from raisf.lm.local.engine import InferenceEngine
from raisf.lm.local.ensemble import answer_together
from raisf.lm.local.model import LocalLM
from raisf.lm.local.multi_lora import CONFIG, TRAINING, WEIGHTS, lora_hash
from raisf.lm.local.tokenization import Text
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import SelfKnowledge
from raisf.utils.errors import InputError
from raisf.utils.files import read_json
from tests.lm.conftest import answered_alone_as_together, ask, generated, probabilities, scored

NAMES = ("Velmora", "Kastrel", "Tisdel", "Belrin", "Oran", "Sirfer", "Nedes", "Kobel")
SHORT = Training(epochs=2, batch_size=4, rank=4, learning_rate=1e-2)
LORA = Training(epochs=10, patience=10, batch_size=4, rank=8, learning_rate=1e-2)
FULL = Training(method="full", epochs=8, patience=8, batch_size=4, learning_rate=1e-2)


@pytest.fixture(scope="module")
def lm(t5: Path) -> LocalLM:
    return LocalLM(f"local/{t5}", adapter="pocket", cache=False, max_tokens=6)


def rows(lm: LocalLM, names: tuple[str, ...] = NAMES) -> list[TrainingRow]:
    """Whoever founded something is known, and whoever sold it is not."""
    form: Any = lm.adapter
    made = []
    for name in names:
        for deed, right in (("founded", "know"), ("sold", "unknown")):
            asked, said = {"question": f"Who {deed} {name}?"}, {"verdict": right}
            made.append(TrainingRow(form.format_finetune_data(SelfKnowledge, [], asked, said)["messages"]))
    return made


@pytest.fixture(scope="module")
def trained(lm: LocalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    return train(lm, rows(lm), rows(lm, ("Ulm", "Trebin")), work, LORA, name="know", progress=False)


def verdicts(lm: LocalLM) -> list[str]:
    return [ask(lm, f"Who {deed} {name}?").verdict for name in ("Ulm", "Trebin") for deed in ("founded", "sold")]


def theirs(model: Any, engine: InferenceEngine, question: str) -> dict[str, float]:
    """The labels' probabilities by transformers' own loss, a label a time."""
    text, found = engine.text.tokenizer, []
    read = text(f"question: {question}\nverdict:", return_tensors="pt").input_ids
    for label in ("know", "unknown"):
        written = text(f" {label}", return_tensors="pt").input_ids
        with torch.inference_mode():
            found.append(-float(model(input_ids=read, labels=written).loss) * written.shape[1])
    return dict(zip(("know", "unknown"), torch.tensor(found).softmax(0).tolist(), strict=True))


def test_a_label_is_as_likely_as_transformers_finds_it(lm: LocalLM) -> None:
    engine = lm.base_engine
    for question in ("Who founded Ulm?", "Who sold Kastrel, and to whom, and what for?"):
        expected = theirs(engine.model, engine, question)
        assert probabilities(engine.complete(scored(question))) == pytest.approx(expected, abs=1e-5)
        assert abs(expected["know"] - 0.5) > 0.01  # else all would agree


def test_it_writes_what_transformers_writes(lm: LocalLM) -> None:
    engine = lm.base_engine
    for question in ("Who founded Ulm?", "Who is Kobel?"):
        read = engine.text.tokenizer(f"question: {question}\nanswer:", return_tensors="pt").input_ids
        model: Any = engine.model
        written = model.generate(read, max_new_tokens=6, do_sample=False)[0]
        assert engine.complete(generated(question)).text == engine.text.decode(written.tolist(), True)


def test_adapters_mixed_in_a_batch_give_what_each_gives_alone(lm: LocalLM, trained: Path) -> None:
    engines = [lm.base_engine, EngineClient(lm.base_engine, (trained, lora_hash(trained)))]
    asked = [
        (engine, make(f"Who founded {name}{'?' * length}"))
        for length, name in enumerate(NAMES)
        for engine in engines
        for make in (scored, generated)
    ]
    alone = answered_alone_as_together(asked)
    base, tuned = probabilities(alone[0])["know"], probabilities(alone[2])["know"]
    assert abs(base - tuned) > 0.05


def test_a_judge_learns_until_it_has_got_it(lm: LocalLM, trained: Path) -> None:
    assert verdicts(lm.with_weights(trained)) == ["know", "unknown"] * 2 != verdicts(lm)
    report = read_json(trained / TRAINING)
    best = report["curve"][report["best_epoch"]]
    assert best["exact"] == 1.0 and best["loss"] < 0.5 < report["curve"][0]["loss"]
    assert report["base"] == lm.base
    assert read_json(trained / CONFIG)["task_type"] == "SEQ_2_SEQ_LM"


def test_an_adapter_gives_what_peft_gives_with_it(lm: LocalLM, trained: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(lm.base_engine.folder, dtype=torch.float32)
    expected = theirs(PeftModel.from_pretrained(model, str(trained)).eval(), lm.base_engine, "Who founded Ulm?")
    ours = EngineClient(lm.base_engine, (trained, lora_hash(trained))).complete(scored("Who founded Ulm?"))
    assert probabilities(ours) == pytest.approx(expected, abs=1e-5)


def test_all_weights_can_be_trained_and_are_a_model_of_their_own(lm: LocalLM, tmp_path: Path) -> None:
    folder = train(lm, rows(lm), rows(lm, ("Ulm", "Trebin")), tmp_path, FULL, progress=False)
    tuned = LocalLM(f"local/{folder}", adapter="pocket", cache=False)
    assert tuned.lora is None and verdicts(tuned) == ["know", "unknown"] * 2
    assert tuned.model == lm.with_weights(folder).model


def test_a_killed_training_goes_on_to_the_very_same_weights(
    lm: LocalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A T5 drops out while it learns: the dice must fall the same."""

    def tune(place: str) -> Path:
        return train(lm, rows(lm), rows(lm, ("Ulm",)), tmp_path / place, SHORT, progress=False)

    save = FinetuneRun.save

    def killed(self: FinetuneRun, path: Path, identity: str) -> None:
        save(self, path, identity)
        if len(self.curve) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(FinetuneRun, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            tune("killed")
    torch.rand(3)
    assert (tune("killed") / WEIGHTS).read_bytes() == (tune("whole") / WEIGHTS).read_bytes()


@pytest.mark.parametrize("adapter", ["compact", "pocket"])
def test_what_is_learnt_is_what_is_scored(t5: Path, adapter: str) -> None:
    """The end of a block is the decoder's end-of-text, in a row as in a label."""
    lm = LocalLM(f"local/{t5}", adapter=adapter, cache=False)
    form: Any = lm.adapter
    text = lm.base_engine.text
    asked = {"question": "Who founded Ulm?"}
    row = form.format_finetune_data(SelfKnowledge, [], asked, {"verdict": "know"})["messages"]
    row_of = text.training_row(row, completion=True)
    tokens, start = row_of.tokens, row_of.start
    assert (tokens, start) == text.completed(row[0]["content"], " know", True)
    assert tokens[:start] == text.encode(row[0]["content"], True)
    assert text.decode(tokens[start:], False) == " know<|end|>"


def test_a_completions_log_probability(lm: LocalLM) -> None:
    logprob, count = lm.logprob("question: Who?\nanswer:", " Ulm")
    written = lm.base_engine.text.tokenizer(" Ulm", return_tensors="pt").input_ids
    read = lm.base_engine.text.tokenizer("question: Who?\nanswer:", return_tensors="pt").input_ids
    with torch.inference_mode():
        loss = float(lm.base_engine.model(input_ids=read, labels=written).loss)
    assert count == written.shape[1] and logprob == pytest.approx(-loss * count, abs=1e-4)


def test_an_ensemble_of_it_is_refused(lm: LocalLM) -> None:
    with pytest.raises(InputError, match="is an encoder-decoder"):
        answer_together(lm, DirectAnswer, [], [{"question": "Who?"}], [1.0])


def test_a_tokenizer_that_knows_no_line_break_loses_nothing_that_a_judge_needs() -> None:
    """T5's own: it reads words, and puts its end behind every text."""
    words = ["<pad>", "</s>", "<unk>", "question:", "Who?", "verdict:", "know", "unknown"]
    library = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    text = Text(PreTrainedTokenizerFast(tokenizer_object=library, eos_token="</s>"), seq2seq=True)
    form = CompactAdapter()
    asked = {"question": "Who?"}
    row = form.format_finetune_data(SelfKnowledge, [], asked, {"verdict": "know"})["messages"]
    row_of = text.training_row(row, completion=True)
    tokens, start = row_of.tokens, row_of.start
    assert [words[token] for token in tokens[start:]] == ["know", "</s>"]
    assert [words[token] for token in tokens[start - 4 : start]] == ["question:", "Who?", "verdict:", "</s>"]
    assert (tokens, start) == text.completed(row[0]["content"], " know", True)
