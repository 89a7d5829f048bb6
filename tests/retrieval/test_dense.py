"""Dense retrieval finds by meaning from any folder of weights, and hybrid search finds what either engine finds."""

import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedModel

from raisf.retrieval.encoders.checkpoint import minilm_package
from raisf.retrieval.engines import hybrid
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.engines.dense import Dense, Tower, find_model
from raisf.retrieval.engines.hybrid import Hybrid, fuse
from raisf.retrieval.index import add_to_index, build_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """MiniLM as a plain Hugging Face folder, without the files of the sentence-transformers."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "model.safetensors"):
        shutil.copyfile(Path(minilm_package().get_model_path()) / name, folder / name)
    return folder


def test_it_finds_paraphrases_and_scores_by_cosine(passages: list[Passage], tmp_path: Path):
    index = Dense.build(passages, tmp_path / "i", progress=False)
    for query, title in {
        "Which animal has several hearts?": "Octopus",
        "tallest peak on Earth": "Mount Everest",
    }.items():
        assert index(query, 1)[0].title == title
    same = index(passages[0].prompt_text, 1)[0]
    assert same.pid == "p0" and same.score == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_it_is_told_how_many_passages_the_model_does_not_read_to_their_end(
    passages: list[Passage], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """ColBERT's engine told it, and the vectors of this one left it out in silence."""
    long = Passage("long", "Rechtsschutzversicherungsgesellschaften übernahmen Verfahrenskosten. " * 40)
    Dense.build([*passages, long], tmp_path / "i", progress=False)
    assert f"1 of {len(passages) + 1} passages are longer than the 512 tokens that minilm reads" in caplog.text


def test_it_is_told_how_much_the_model_does_not_know(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    Dense.build([Passage("p", "กรุงเทพมหานคร เมืองหลวง ของ ประเทศไทย")], tmp_path / "i", progress=False)
    assert "minilm does not know 66% of these passages' words or characters" in caplog.text


@pytest.mark.slow
def test_vectors_are_those_of_the_sentence_transformers(passages: list[Passage]):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = [passage.prompt_text for passage in passages[:4]]
    found, lengths = find_model("minilm").encoder().encode_passages(texts)
    theirs = sentence_transformers.SentenceTransformer(str(minilm_package().get_model_path()), device="cpu")
    assert torch.allclose(found.float(), torch.from_numpy(theirs.encode(texts)), atol=2e-3)
    assert lengths.tolist() == [1] * 4


def test_a_plain_folder_is_compared_by_dot_product(model: Path, passages: list[Passage], tmp_path: Path):
    assert not find_model(model).cosine and find_model("minilm").cosine
    index = Dense.build(passages, tmp_path / "i", model, progress=False)
    encoder = find_model(model).encoder()
    (query,) = encoder.encode_queries(["Who wrote Hamlet?"])
    vectors, _ = encoder.encode_passages([passage.prompt_text for passage in passages])
    best = index("Who wrote Hamlet?", 1)[0]
    assert best.title == "Hamlet" and best.score == pytest.approx(float((vectors.float() @ query[0]).max()), abs=1e-3)
    assert best.score is not None and best.score > 2  # no cosine


def test_what_is_no_text_encoder_is_refused(model: Path, tmp_path: Path):
    def error_of(name: str | Path) -> str:
        with pytest.raises(InputError) as caught:
            find_model(name)
        return str(caught.value)

    assert "no checkpoint at nowhere" in error_of("nowhere")
    assert "has no config.json" in error_of(tmp_path)
    (model / "1_Pooling").mkdir()
    for other in (
        {"pooling_mode_cls_token": True},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},  # both, one behind the other
        {"pooling_mode": "cls"},
        {"pooling_mode": ["mean", "max"]},
    ):
        (model / "1_Pooling" / "config.json").write_text(json.dumps(other))
        assert "does not pool by the mean" in error_of(model)
    shutil.rmtree(model / "1_Pooling")
    types = [f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Dense")]
    (model / "modules.json").write_text(json.dumps([{"type": kind} for kind in types]))
    assert "has a step Dense in modules.json, and only Transformer, Pooling, Normalize are done" in error_of(model)
    (model / "modules.json").unlink()
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    assert "Pickled weights (*.bin) are not read" in error_of(model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "is_encoder_decoder": True}))
    assert "has a decoder behind its encoder" in error_of(model)
    (model / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}}))
    assert "brings its own code" in error_of(model)


def test_the_mean_is_known_however_the_sentence_transformers_write_it(model: Path):
    """What their version 6 saves was refused: its models pool by the mean, too."""
    (model / "1_Pooling").mkdir()
    for mean in (
        {"word_embedding_dimension": 384, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        {"embedding_dimension": 384, "pooling_mode": "mean", "include_prompt": True},
    ):
        (model / "1_Pooling" / "config.json").write_text(json.dumps(mean))
        assert find_model(model).path == model


def test_options_that_do_nothing_are_refused(passages: list[Passage], tmp_path: Path):
    with pytest.raises(InputError, match="search='plaid' is for ColBERT's vectors, not for dense"):
        build_index(passages, tmp_path / "i", "dense", search="plaid")


def test_hybrid_finds_by_meaning_and_by_names(passages: list[Passage], tmp_path: Path):
    named = Passage("xq", "The part number is ZK-4471-B.", "Spare part")
    index = Hybrid.build([*passages, named], tmp_path / "i", progress=False)
    assert index("Which animal has several hearts?", 1)[0].title == "Octopus"
    assert index("4471", 1)[0].pid == "xq"
    unshared = "Leaves make food using light"
    assert BM25.build([*passages, named], tmp_path / "b")(unshared, 1) == []
    assert index(unshared, 1)[0].title == "Photosynthesis"
    assert [p.pid for p in open_folder(tmp_path / "i")("4471", 3)] == [p.pid for p in index("4471", 3)]


@given(st.lists(st.permutations(range(6)), min_size=1, max_size=3))
def test_fusion_is_by_ranks_alone(orders: list[list[int]]):
    fused = fuse([[(number, 1000.0 - rank) for rank, number in enumerate(order)] for order in orders])
    assert fused == fuse([[(number, -float(rank)) for rank, number in enumerate(order)] for order in orders])
    for number, score in fused:
        assert score == pytest.approx(sum(1 / (61 + order.index(number)) for order in orders))
    if len(orders) == 1:
        assert [number for number, _ in fused] == orders[0]


def test_hybrid_finds_the_same_however_its_passages_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of passages that have a word alike those that were added first were taken for the better."""
    words = "river heron owl chess king music moon".split()
    passages = [Passage(" ".join(five), " ".join(five)) for five in itertools.combinations(words, 5)]
    Hybrid.build(passages, tmp_path / "once", progress=False)
    Hybrid.build(passages[15:], tmp_path / "grown", progress=False)
    add_to_index(tmp_path / "grown", passages[14::-1], progress=False)
    once, grown = open_folder(tmp_path / "once"), open_folder(tmp_path / "grown")
    assert once.corpus_hash == grown.corpus_hash
    assert [p.pid for p in once("owl", 3)] == [p.pid for p in grown("owl", 3)]
    monkeypatch.setattr(hybrid, "DEPTH", 4)  # of the 15 that have the word
    assert [p.pid for p in once("owl owl", 3)] == [p.pid for p in grown("owl owl", 3)]
    assert len(once("owl", 21)) == 21, "k may be larger"
    assert fuse([[(4, 2.0), (7, 1.5), (1, 1.5), (0, 1.0)]]) == [(4, 1 / 61), (1, 1 / 62), (7, 1 / 62), (0, 1 / 64)]


def test_contrievers_queries_are_cut_at_64_tokens_and_its_passages_are_not(model: Path, tmp_path: Path):
    """The papers' set-up: of a query with a whole passage before it, as BlendFilter's, the beginning is looked for."""
    encoder = find_model(model.rename(tmp_path / "contriever-msmarco")).encoder()
    start = "river " * 64
    one, other = encoder.encode_queries([f"{start} Danube", f"{start} chess and music"])
    assert torch.allclose(one, other, atol=1e-5)
    (one, other), _ = encoder.encode_passages([f"{start} Danube", f"{start} chess and music"])
    assert not torch.allclose(one, other, atol=1e-3)


def test_what_is_contriever_is_told_by_the_models_own_name(model: Path, tmp_path: Path):
    """Below a folder of that name, queries were cut in each process but the one that had made the index."""
    (tmp_path / "contriever-study").mkdir()
    assert find_model(model.rename(tmp_path / "contriever-study" / "e5")).query_tokens is None
    (tmp_path / "contriever").symlink_to(tmp_path / "contriever-study" / "e5")
    assert find_model(tmp_path / "contriever").query_tokens == 64


def test_a_gpu_computes_and_the_vectors_come_back_from_it(monkeypatch: pytest.MonkeyPatch):
    """Its place is taken by a device that keeps shapes alone."""
    device, places, brought = torch.device("meta"), list[object](), list[str]()

    def model(**words: torch.Tensor) -> SimpleNamespace:
        assert all(tensor.device == device for tensor in words.values())
        return SimpleNamespace(last_hidden_state=torch.ones(*words["input_ids"].shape, 8, device=device))

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(PreTrainedModel, "to", lambda self, place: places.append(place) or self)
    tower = Tower(find_model("minilm").path, cosine=True)
    assert places == ["cuda"]
    model.device = device  # type: ignore[attr-defined]
    tower.model = model
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: brought.append(self.device.type) or torch.ones(self.shape))
    vectors = tower.vectors(["It lies on a river.", "It does not."])
    assert (vectors.device.type, vectors.shape, brought) == ("cpu", (2, 8), ["meta"])
