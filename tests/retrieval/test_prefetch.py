"""Beyond exact search's size a search compares likely passages only, and finds what exact search finds."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.data.world.generator import regions
from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.engines.base import SearchMode
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.index import add_to_index, check_index, index_info, open_folder, remove_from_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.search import prefetch
from raisf.retrieval.search.maxsim import MaxSim
from raisf.retrieval.search.prefetch import Prefetch
from raisf.retrieval.store import manifest
from raisf.retrieval.store.vectors import Vectors, mean_vectors, means_of, write_shard

DUKES = [
    Passage(str(n), f"The duke of {chr(65 + n % 26)}ville had {n % 97} horses in {1000 + n}.", metadata={"n": n})
    for n in range(120)
]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty passages are a large corpus, of which a search compares twenty."""
    monkeypatch.setattr(manifest, "EXACT_UP_TO", 40)
    monkeypatch.setattr(prefetch, "CANDIDATES", 20)


def written(folder: Path, lengths: list[int], files: int = 7) -> Vectors:
    generator = torch.Generator().manual_seed(len(lengths))
    for number, start in enumerate(range(0, len(lengths), files)):
        part = torch.tensor(lengths[start : start + files])
        rows = torch.randn(int(part.sum()), 8, generator=generator)
        write_shard(folder, number, [(torch.nn.functional.normalize(rows, dim=1).half(), part)])
    return Vectors(folder)


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    queries=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    k=st.integers(1, 40),
    at_once=st.integers(1, 40),
    barred=st.sets(st.integers(0, 29)),
)
def test_where_all_passages_are_candidates_it_is_exact_search(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    queries: list[int],
    k: int,
    at_once: int,
    barred: set[int],
):
    vectors = written(tmp_path_factory.mktemp("vectors") / "v", lengths)
    asked = [torch.randn(n, 8, generator=torch.Generator().manual_seed(n)) for n in queries]
    allowed = np.array([number not in barred for number in range(len(lengths))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefetch, "_AT_ONCE", at_once)
        found = Prefetch(vectors).search(asked, k, allowed)
    for hits, exact in zip(found, MaxSim(vectors).search(asked, k, allowed), strict=True):
        assert [score for _, score in hits] == pytest.approx([score for _, score in exact], abs=1e-4)
        assert {number for number, _ in hits}.isdisjoint(barred)


@settings(max_examples=50, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    k=st.integers(1, 9),
    candidates=st.integers(1, 20),
    barred=st.sets(st.integers(0, 59)),
)
def test_the_allowed_passages_that_promise_most_are_ranked(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], k: int, candidates: int, barred: set[int]
):
    vectors = written(tmp_path_factory.mktemp("vectors") / "v", lengths)
    query = torch.randn(3, 8, generator=torch.Generator().manual_seed(k))
    allowed = np.array([number not in barred for number in range(len(lengths))])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefetch, "CANDIDATES", candidates)
        (hits,) = Prefetch(vectors).search([query], k, allowed)
    # Out of the definition: mean product, deviation of the products in an average direction, best of n.
    rows = [passage.float() for file, n in vectors for passage in file.split(n.tolist())]
    products = [float((query @ passage.T).mean()) for passage in rows]
    deviations = [float(((passage - passage.mean(dim=0)) ** 2).mean()) ** 0.5 for passage in rows]
    promises = [p + d * (2 * np.log(n)) ** 0.5 for p, d, n in zip(products, deviations, lengths, strict=True)]
    ranked = sorted(np.flatnonzero(allowed), key=lambda number: -promises[number])
    count = max(candidates, 4 * k)
    tied = len(ranked) > count and promises[ranked[count - 1]] - promises[ranked[count]] < 1e-3
    mask = np.isin(np.arange(len(lengths)), ranked[:count])
    (exact,) = MaxSim(vectors).search([query], k, mask)
    assert tied or [score for _, score in hits] == pytest.approx([score for _, score in exact], abs=1e-4)


def _means(vectors: Vectors) -> torch.Tensor:
    return torch.cat([means_of(file).float() for file in vectors.files()])


def test_means_are_written_and_are_those_of_the_vectors(tmp_path: Path):
    vectors = written(tmp_path / "many", [3, 1, 4, 1, 5])
    expected = torch.cat([mean_vectors(rows, lengths) for rows, lengths in vectors])
    assert torch.allclose(_means(vectors), expected, atol=1e-2)
    one = written(tmp_path / "one", [1, 1, 1])
    assert torch.equal(_means(one), one.all())
    sizes = [sum(file.stat().st_size for file in (tmp_path / name).iterdir()) for name in ("many", "one")]
    assert sizes[1] < sizes[0]


@pytest.mark.slow
def test_it_finds_nearly_all_that_exact_search_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = (row for region in regions(5, 200) for row in region.corpus())
    passages = [Passage(row["id"], row["text"], row["title"]) for row in rows]
    ColBERT.build(passages, tmp_path / "i", "minilm", search="exact", progress=False)
    vectors = Vectors(tmp_path / "i" / "segments" / "1" / "vectors")
    asked = find_checkpoint("minilm").encoder().encode_queries([f"Where is {p.title} from?" for p in passages[::20]])
    monkeypatch.setattr(prefetch, "CANDIDATES", 100)
    every = np.ones(len(passages), dtype=bool)
    pairs = zip(Prefetch(vectors).search(asked, 10, every), MaxSim(vectors).search(asked, 10, every), strict=True)
    shared = [len({n for n, _ in ours} & {n for n, _ in exact}) / 10 for ours, exact in pairs]
    assert np.mean(shared) > 0.95


def test_auto_searches_a_large_corpus_that_way_and_exact_never(large: None, tmp_path: Path):
    searches = []
    cases: list[tuple[int, SearchMode]] = [(40, "auto"), (41, "auto"), (41, "exact")]
    for count, search in cases:
        ColBERT.build(DUKES[:count], tmp_path / "i", search=search, progress=False)
        searches.append(index_info(tmp_path / "i")["search"])
    assert searches == ["exact", "prefetch", "exact"]


def test_additions_removals_and_filters_hold_in_a_large_corpus(large: None, tmp_path: Path):
    path = tmp_path / "i"
    ColBERT.build(DUKES[:60], path, "minilm", progress=False)
    add_to_index(path, DUKES[60:], progress=False)
    before = open_folder(path)
    remove_from_index(path, "n = 7 or n = 70")
    index = open_folder(path)
    assert index_info(path)["search"] == "prefetch" and check_index(path) == []
    asked = [f"How many horses had the duke in {1000 + n}?" for n in (3, 59, 60, 119, 7, 70)]
    *there, seven, seventy = index.search_many(asked, 10)
    assert [row[0].pid for row in there] == ["3", "59", "60", "119"]
    assert not {"7", "70"} & {p.pid for p in [*seven, *seventy]}
    assert before(asked[4], 1)[0].pid == "7"  # an open handle is a snapshot, though its vectors are on the disk
    assert {p.pid for p in index(asked[0], 200, where="n < 5 or n = 98")} == {"0", "1", "2", "3", "4", "98"}
    assert {p.metadata["n"] % 2 for p in index(asked[0], 30, where="n > 50")} == {0, 1}
    assert len(index(asked[0], 5, where="n > 50")) == 5
    assert index(asked[0], 5, where="n > 500") == []
    # The rest is a small corpus again.
    remove_from_index(path, "n > 0")
    assert index_info(path)["search"] == "exact"
    assert [p.pid for p in open_folder(path)(asked[0], 5)] == ["0"]
