"""If these failed, a retriever would be tuned towards passages that do not help, or its index would not fit it."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any, cast

import dspy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from raisf.lm import pocket
from raisf.lm.connect import connect
from raisf.lm.local.model import LocalLM
from raisf.optimize.artifact import load, save
from raisf.optimize.optimizers.lsr import Tuning, _learn, divergence, tune_retriever
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.replug import REPLUG
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.engines.dense import Dense, find_model
from raisf.retrieval.index import build_index, check_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.retrieval.training.query_tuning import QueryStudent
from raisf.utils.errors import InputError
from raisf.utils.text import print_of
from tests.scripted import ScriptedLM

TOWNS = {
    "Velmora": ("Kastrel Oran", "1712"),
    "Tisdel": ("Belrin Sirfer", "1698"),
    "Nedes": ("Kobel Trebin", "1754"),
    "Ulmar": ("Pamal Hugel", "1731"),
    "Gazes": ("Rilden Vihe", "1666"),
    "Lelna": ("Gar Ropas", "1745"),
    "Potul": ("Zespa Ziken", "1689"),
    "Rurves": ("Del Zerfas", "1777"),
}
PASSAGES = [
    Passage(town, f"{town} was founded by {founder}. The year in which {town} was founded is {year}.", town)
    for town, (founder, year) in TOWNS.items()
]
QUICK = Tuning(k=8, epochs=20, batch_size=4, learning_rate=3e-3)

reads = pytest.mark.skipif(
    not (pocket.path() / "model.safetensors").is_file(), reason="the pocket Llama is not trained yet"
)


def question(town: str, asked: str, answer: str) -> dspy.Example:
    return dspy.Example(question=asked, answer=answer, answers=[answer], gold_pids=[town]).with_inputs("question")


TRAIN = [question(town, f"Who founded {town}?", founder) for town, (founder, _) in TOWNS.items()]
DEV = [question(town, f"In which year was {town} founded?", year) for town, (_, year) in TOWNS.items()]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder of random weights that reads words."""
    folder = tmp_path_factory.mktemp("bert")
    texts = " ".join([p.prompt_text for p in PASSAGES] + [e.question for e in TRAIN + DEV]).lower()
    words = ["[PAD]", "[UNK]", *sorted(set(re.findall(r"\w+|[^\w\s]", texts)))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    shape: Any = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=64, initializer_range=0.1, **shape)
    BertModel(config).save_pretrained(folder)
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Normalize"}]))
    return folder


@pytest.fixture(scope="module")
def index(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Dense:
    return Dense.build(PASSAGES, tmp_path_factory.mktemp("dense") / "i", bert, progress=False)


def replug(index: Any) -> REPLUG:
    program = REPLUG(index, k=3)
    program.set_lm(connect("pocket"))
    return program


@pytest.fixture(scope="module")
def tuned(index: Dense, tmp_path_factory: pytest.TempPathFactory) -> Any:
    work = tmp_path_factory.mktemp("lsr")
    places: Any = {"checkpoint": work / "model", "index": work / "index", "work": work / "work"}
    return tune_retriever(replug(index), trainset=TRAIN, valset=DEV, tuning=QUICK, progress=False, **places)


def share_of_gold(index: Any, asked: list[dspy.Example]) -> float:
    """What the gold passages have of the retriever's distribution."""
    shares = []
    for example in asked:
        found = index(example.question, len(PASSAGES))
        weights = torch.tensor([passage.score for passage in found]).div(QUICK.retrieval_temperature).softmax(0)
        shares += [float(w) for w, p in zip(weights, found, strict=True) if p.pid in example.gold_pids]
    return sum(shares) / len(shares)


@reads
def test_the_retriever_comes_near_the_lm_and_the_right_passage_rises(tuned: Any, index: Dense) -> None:
    curve = [point["train_kl"] for point in tuned.compile_report["curve"][1:]]
    assert min(curve) < 0.85 * curve[0]
    for asked in (TRAIN, DEV):
        assert share_of_gold(tuned.retriever, asked) > 1.2 * share_of_gold(index, asked)
    report = tuned.compile_report
    assert report["best_epoch"] > 0 and report["curve"][0].keys() == {"epoch", "train_kl", "kl", "likelihood", "found"}
    assert report["lm_calls"] == 2 * len(TOWNS) * len(PASSAGES)  # each pair once, however often it is found


@reads
def test_the_index_is_kept_and_the_model_makes_the_same_one(tuned: Any, index: Any, bert: Path, tmp_path: Path):
    kept = tuned.retriever.path
    assert check_index(kept) == [] == check_index(index.path or "")
    files = {path.name: path.read_bytes() for path in kept.rglob("*.safetensors")}
    assert files == {path.name: path.read_bytes() for path in index.path.rglob("*.safetensors")}
    model = find_model(kept.parent / "model")
    again = build_index(PASSAGES, tmp_path / "i", "dense", model.path, progress=False)
    for example in TRAIN:
        expected = [(p.pid, p.score) for p in tuned.retriever(example.question, 3)]
        assert [(p.pid, p.score) for p in again(example.question, 3)] == expected
        assert [p.score for p in index(example.question, 3)] != [score for _, score in expected]
    assert open_folder(index.path).manifest.checkpoint == str(bert)  # the old index stays the base's
    seen = {print_of(example.question) for example in [*TRAIN, *DEV]}
    assert tuned.retriever.learnt_from == again.learnt_from == seen and not index.learnt_from


@reads
def test_only_the_query_side_moves_and_not_its_words(tuned: Any, bert: Path) -> None:
    folder = tuned.retriever.path.parent / "model"
    before, passages, queries = (
        load_file(path / "model.safetensors") for path in (bert, folder, folder / "query_encoder")
    )
    words = "embeddings.word_embeddings.weight"
    assert all(torch.equal(before[name], passages[name]) for name in before)
    assert torch.equal(before[words], queries[words])
    assert not torch.equal(
        before["encoder.layer.0.output.dense.weight"], queries["encoder.layer.0.output.dense.weight"]
    )


@reads
def test_a_query_encoder_that_changed_is_refused(tuned: Any, tmp_path: Path) -> None:
    weights = tuned.retriever.path.parent / "model" / "query_encoder" / "config.json"
    kept = weights.read_text()
    weights.write_text(kept + " ")
    try:
        with pytest.raises(InputError, match="is now another"):
            open_folder(tuned.retriever.path)
    finally:
        weights.write_text(kept)


@reads
def test_an_artifact_keeps_the_tuned_retriever(tuned: Any, tmp_path: Path) -> None:
    save(tuned, tmp_path / "a")
    loaded: Any = load(tmp_path / "a")
    assert loaded.retriever.manifest.checkpoint_sha256 == tuned.retriever.manifest.checkpoint_sha256
    assert loaded(question=TRAIN[0].question).trace.root.passages[0].pid == tuned.retriever(TRAIN[0].question, 1)[0].pid


@reads
def test_a_second_call_after_a_kill_asks_the_lm_only_what_is_missing(
    index: Dense, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []
    logprobs = LocalLM.logprobs

    def counted(self: LocalLM, texts: list[tuple[str, str]]) -> list[tuple[float, int]]:
        asked.extend(texts)
        if texts and len(asked) == 24:
            raise KeyboardInterrupt
        return logprobs(self, texts)

    monkeypatch.setattr(LocalLM, "logprobs", counted)
    sets: Any = {
        "trainset": TRAIN[:2],
        "valset": DEV[:2],
        "tuning": dataclasses.replace(QUICK, epochs=1),
        "progress": False,
    }
    places: Any = {"checkpoint": tmp_path / "m", "index": tmp_path / "i", "work": tmp_path / "w"}
    with pytest.raises(KeyboardInterrupt):
        tune_retriever(replug(index), **sets, **places)
    assert not (tmp_path / "m").exists()
    tuned = tune_retriever(replug(index), **sets, **places)
    assert len(asked) == 40 and len(set(asked)) == 32  # the eight that were cut off are asked again
    assert list((tmp_path / "w").glob("*.jsonl")) == []
    # Else programs over it would be others, whose records are not found.
    places = {name: tmp_path / "undisturbed" / name for name in places}
    whole = tune_retriever(replug(index), **sets, **places)
    assert tuned.compile_report == whole.compile_report
    assert tuned.retriever.manifest.checkpoint_sha256 == whole.retriever.manifest.checkpoint_sha256


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_the_divergence_is_none_where_both_agree_and_positive_elsewhere(values: list[float]) -> None:
    given_ = torch.tensor([values])
    assert divergence(given_, given_, Tuning()).item() == pytest.approx(0, abs=1e-4)
    assert divergence(given_, given_.flip(-1), Tuning()).item() >= -1e-4


def test_the_divergence_is_the_papers() -> None:
    tuning = Tuning(retrieval_temperature=0.5, lm_temperature=0.2)
    ours, theirs = torch.tensor([2.0, 0.0]).softmax(0), torch.tensor([0.0, 4.0]).softmax(0)
    expected = float((ours * (ours / theirs).log()).sum())
    found = divergence(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.8]]), tuning)
    assert found.tolist() == [pytest.approx(expected, rel=1e-5)]


def test_each_batch_learns_from_what_the_lm_says_of_its_own_questions() -> None:
    steps: list[tuple[list[str], list[str]]] = []

    class Student:
        passages = ()

        def find(self, questions: list[str], k: int) -> list[list[int]]:
            return [[0] for _ in questions]

        def step(self, queries: list[str], found: Any, loss: Any, share: float, seed: str) -> float:
            steps.append((queries, loss.keywords["likelihoods"]))
            return 0.0

    class Reader:
        def likelihoods(self, examples: list[dspy.Example], *rest: Any) -> list[str]:
            return [f"of {example.question}" for example in examples]

    _learn(cast(Any, Student()), cast(Any, Reader()), TRAIN, QUICK, 1, None)
    assert len(steps) == 2 and all(said == [f"of {one}" for one in queries] for queries, said in steps)


def test_an_index_that_is_replaced_while_it_is_tuned_leaves_a_model_that_is_told(bert: Path, tmp_path: Path) -> None:
    """The tuning ended in a traceback, and nothing said that its model was there."""
    learner = QueryStudent(Dense.build(PASSAGES, tmp_path / "i", bert, progress=False), 1e-3)
    model = learner.publish(tmp_path / "model", {})
    shutil.rmtree(tmp_path / "i")
    with pytest.raises(InputError, match=rf"is saved in {model.path}; `raisf index DOCS --out .* --checkpoint"):
        learner.reindex(model, tmp_path / "tuned")
    assert not (tmp_path / "tuned").exists() and find_model(model.path).queries


def test_what_cannot_be_tuned_is_told(index: Dense, tmp_path: Path) -> None:
    def error_of(program: Any, **options: Any) -> str:
        places = {"checkpoint": tmp_path / "m", "index": tmp_path / "i", "work": tmp_path / "w"}
        sets: Any = {"trainset": TRAIN, "valset": DEV}
        with pytest.raises(InputError) as caught:
            tune_retriever(program, progress=False, **{**sets, **places, **options})
        return str(caught.value)

    far = REPLUG(index)
    far.set_lm(ScriptedLM(lambda fields: {}))
    assert "is asked of an LM in the process" in error_of(far)
    for inside in (tmp_path / "m", tmp_path / "m/index"):  # it was told when all had been asked and learnt
        assert "would lie in one folder" in error_of(replug(index), index=inside)
    assert "only a dense index can be tuned" in error_of(REPLUG(BM25.build(PASSAGES, tmp_path / "b")))
    direct = Direct()
    direct.retriever = index
    direct.set_lm(ScriptedLM(lambda fields: {}))
    assert "direct reads no passages" in error_of(direct)
    if (pocket.path() / "model.safetensors").is_file():
        program = replug(index)
        assert "are in the validation split too" in error_of(program, valset=TRAIN[:1])
        assert "the validation set is empty" in error_of(program, valset=[])
        bare = dspy.Example(question="Who?", answers=[]).with_inputs("question")
        assert "'Who?' has no gold answer" in error_of(program, trainset=[bare])
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "thesis.txt").write_text("mine")
        assert "holds other things" in error_of(program)
    with pytest.raises(InputError, match="k is 1: give a whole number, 2 or more"):
        Tuning(k=1)
