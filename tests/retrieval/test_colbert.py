"""ColBERT finds by meaning, says the same however it is asked, and keeps quiet where programs read."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.index import add_to_index, build_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.retrieval.search import maxsim
from raisf.retrieval.search.cells import centroid_count
from raisf.retrieval.search.maxsim import MaxSim
from raisf.retrieval.store.vectors import Vectors, write_shard

QUERIES = {
    "Who wrote the play about a Danish prince?": "Hamlet",
    "Which animal has several hearts?": "Octopus",
    "What is the tallest peak on Earth?": "Mount Everest",
    "How do leaves make food from light?": "Photosynthesis",
    "Which scientist found new radioactive elements?": "Marie Curie",
}


@pytest.fixture(scope="module")
def index(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> ColBERT:
    return ColBERT.build(passages, tmp_path_factory.mktemp("colbert") / "i", progress=False)


def test_it_finds_paraphrases_that_bm25_misses(index: ColBERT, passages: list[Passage], tmp_path: Path):
    found = [index(query, 1)[0].title for query in QUERIES]
    assert found == list(QUERIES.values())
    bm25 = BM25.build(passages, tmp_path / "i")
    assert [hits[0].title if hits else None for hits in bm25.search_many(list(QUERIES), 1)] != found


def test_many_queries_together_find_what_each_finds_alone(index: ColBERT):
    together = index.search_many([*QUERIES, "", "x" * 100_000], 4)
    alone = [index(query, 4) for query in [*QUERIES, "", "x" * 100_000]]
    assert [[p.pid for p in row] for row in together] == [[p.pid for p in row] for row in alone]
    for row, row_alone in zip(together, alone, strict=True):
        # Not the same to the last bit: what a text is padded to changes how bfloat16 rounds.
        assert [p.score for p in row] == pytest.approx([p.score for p in row_alone], abs=0.05)
        scores = [p.score or 0.0 for p in row]
        assert scores == sorted(scores, reverse=True)
    assert index.search_many([], 4) == []


def test_the_order_of_the_passages_does_not_matter(index: ColBERT, passages: list[Passage], tmp_path: Path):
    other = ColBERT.build(passages[::-1], tmp_path / "i", progress=False)
    for query in QUERIES:
        assert [p.pid for p in other(query, 5)] == [p.pid for p in index(query, 5)]


@pytest.mark.parametrize(("text", "share"), [("กรุงเทพมหานคร เมืองหลวง ของ ประเทศไทย", 57), ("Łódź и Москва", None)])
def test_it_is_told_how_much_the_checkpoint_does_not_know(
    text: str, share: int | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Passages of Thai were all the same to it, and nobody said so."""
    ColBERT.build([Passage("p", text)], tmp_path / "i", progress=False)
    told = f"raisf-minilm does not know {share}% of these passages' words or characters"
    assert (told in caplog.text) if share else ("does not know" not in caplog.text)


def test_it_is_told_how_many_passages_the_checkpoint_does_not_read_to_their_end(
    passages: list[Passage], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    begun = "Die Rechtsschutzversicherungsgesellschaften übernahmen Verfahrenskosten vor Arbeitsgerichten. " * 20
    long = Passage("long", f"{begun} Zebra.")
    build_index([*passages, long], tmp_path / "i", "hybrid", progress=False)
    assert f"1 of {len(passages) + 1} passages are longer than the 256 tokens that raisf-minilm reads" in caplog.text
    cut = Passage("cut", begun)
    vectors, lengths = find_checkpoint("raisf-minilm").encoder().encode_passages([long.text, cut.text])
    assert lengths[0] == lengths[1] and torch.equal(*vectors.split(int(lengths[0])))  # as if it did not end so
    assert open_folder(tmp_path / "i")("zebra", 1)[0].pid == "long"  # as the warning says: by its words
    caplog.clear()
    add_to_index(tmp_path / "i", [Passage("short", "Chess.")], progress=False)
    assert "longer than" not in caplog.text


def test_building_prints_to_standard_error_only(
    passages: list[Passage], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    ColBERT.build(passages[:2], tmp_path / "i", progress=False)("chess", 1)
    assert capfd.readouterr() == ("", "")
    ColBERT.build(passages[:2], tmp_path / "i")
    out, err = capfd.readouterr()
    assert out == "" and "encoding passages" in err and "2/2" in err


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    queries=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    k=st.integers(1, 40),
    chunk=st.integers(1, 50),
)
def test_exact_search_is_the_definition(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], queries: list[int], k: int, chunk: int
):
    generator = torch.Generator().manual_seed(len(lengths))
    rows = [torch.randn(n, 8, generator=generator).half() for n in lengths]
    asked = [torch.randn(n, 8, generator=generator) for n in queries]
    folder = tmp_path_factory.mktemp("vectors") / "v"
    for number, start in enumerate(range(0, len(rows), 7)):
        part = rows[start : start + 7]
        write_shard(folder, number, [(torch.cat(part), torch.tensor(lengths[start : start + 7]))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxsim, "_CHUNK", chunk)
        patch.setattr(maxsim, "QUERIES", 2)
        found = MaxSim(Vectors(folder)).search(asked, k, np.ones(len(rows), dtype=bool))
    for query, hits in zip(asked, found, strict=True):
        scores = np.array([float((query @ row.float().T).max(dim=1).values.sum()) for row in rows])
        assert len(hits) == min(k, len(rows))
        assert [score for _, score in hits] == pytest.approx(sorted(scores, reverse=True)[:k], abs=1e-4)
        assert [scores[number] for number, _ in hits] == pytest.approx([score for _, score in hits], abs=1e-4)


def test_many_queries_of_a_large_corpus_take_the_memory_of_their_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    count, tokens = 50_000, 32
    monkeypatch.setattr(maxsim, "_CHUNK", 1_000)
    write_shard(tmp_path, 0, [(torch.randn(count, 8).half(), torch.ones(count, dtype=torch.int64))])
    engine, asked = MaxSim(Vectors(tmp_path)), [torch.randn(tokens, 8) for _ in range(maxsim.QUERIES)]
    tracemalloc.start()
    try:
        engine.search(asked, 10, np.ones(count, dtype=bool))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30e6  # the scores take 3 MB; those of all tokens would take 102


@given(st.integers(1, 10**10))
def test_there_are_vectors_enough_for_the_centroids(vectors: int):
    count = centroid_count(vectors)
    assert count == 1 or count * 8 <= vectors
    assert count & (count - 1) == 0


@pytest.mark.slow
def test_plaid_finds_what_exact_search_finds(
    index: ColBERT, passages: list[Passage], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """Slow where colbert-ai's C++ extensions were never compiled."""
    capfd.readouterr()
    plaid = ColBERT.build(passages, tmp_path / "i", search="plaid", progress=False)
    assert plaid.manifest.shown_search == "plaid"
    for query in QUERIES:
        assert plaid(query, 1)[0].pid == index(query, 1)[0].pid
        assert len(plaid(query, 100)) == len(passages)
    assert capfd.readouterr().out == ""
    assert not list((tmp_path / "i").rglob("vectors"))
    one = ColBERT.build(passages[:1], tmp_path / "one", search="plaid", progress=False)
    assert [p.pid for p in one("anything", 5)] == ["p0"]


@pytest.mark.slow
def test_plaid_in_a_corpus_too_large_to_rank_whole(tmp_path: Path):
    texts = (f"In the year {1000 + n}, the duke of {chr(65 + n % 26)}ville had {n % 97} horses." for n in range(1_000))
    passages = [Passage(str(number), text) for number, text in enumerate(texts)]
    exact = ColBERT.build(passages, tmp_path / "exact", search="exact", progress=False)
    plaid = ColBERT.build(passages, tmp_path / "plaid", search="plaid", progress=False)
    queries = [f"How many horses had the duke in {1000 + n}?" for n in range(0, 1_000, 50)]
    pairs = zip(exact.search_many(queries, 10), plaid.search_many(queries, 10), strict=True)
    shared = [len({p.pid for p in a} & {p.pid for p in b}) / 10 for a, b in pairs]
    assert np.mean(shared) > 0.5
