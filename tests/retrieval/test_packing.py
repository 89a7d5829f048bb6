"""A large index keeps its vectors packed, in a quarter of the disk, through every change; old indexes stay readable."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raisf.retrieval.encoders.encoder import ColBERTEncoder
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.index import add_to_index, check_index, index_info, open_folder, remove_from_index
from raisf.retrieval.passage import Passage, found_by
from raisf.retrieval.search import cells, prefetch
from raisf.retrieval.search.candidates import Candidates
from raisf.retrieval.search.maxsim import MaxSim
from raisf.retrieval.search.prefetch import Prefetch
from raisf.retrieval.store import manifest, writer
from raisf.retrieval.store.manifest import MANIFEST, read_manifest
from raisf.retrieval.store.packing import pack, rotation
from raisf.retrieval.store.vectors import Gathered, Vectors, mean_vectors, means_of, write_shard
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json

DUKES = [
    Passage(str(n), f"The duke of {chr(65 + n % 26)}ville had {n % 97} horses in {1000 + n}.", metadata={"n": n})
    for n in range(60)
]
QUERY = "How many horses had the duke in 1003?"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty passages are a large corpus, of which a search compares thirty."""
    for module in (manifest, writer):
        monkeypatch.setattr(module, "EXACT_UP_TO", 20)
    monkeypatch.setattr(prefetch, "CANDIDATES", 30)
    monkeypatch.setattr(prefetch, "PER_HIT", 1)


def made(lengths: list[int], dim: int = 128, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of unit length, those of a passage alike, as an encoder's are."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(sum(lengths), dim, generator=generator)
    about = torch.randn(len(lengths), dim, generator=generator).repeat_interleave(torch.tensor(lengths), dim=0)
    return torch.nn.functional.normalize(rows + 0.6 * about, dim=1).half(), torch.tensor(lengths)


def packed(folder: Path, lengths: list[int], files: int = 7, dim: int = 128, seed: int = 0) -> Vectors:
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, len(lengths), files)):
        write_shard(folder, number, [made(lengths[start : start + files], dim, seed + number)], packed=True)
    return Vectors(folder)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=30), dim=st.sampled_from([1, 7, 8, 96, 128]))
def test_packed_vectors_are_nearly_the_vectors(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], dim: int):
    folder = tmp_path_factory.mktemp("vectors") / "v"
    write_shard(folder, 0, [made(lengths, dim)], packed=True)
    vectors, _ = made(lengths, dim)
    found = Vectors(folder).all()
    assert found.shape == vectors.shape and torch.isfinite(found).all()
    if dim >= 96:
        apart = vectors.float() - mean_vectors(vectors, torch.tensor(lengths)).repeat_interleave(
            torch.tensor(lengths), dim=0
        )
        assert (found - vectors.float()).square().sum() <= 0.04 * apart.square().sum() + 1e-4


def test_a_packed_vector_of_128_numbers_takes_66_bytes():
    vectors, lengths = made([50, 70])
    assert pack(vectors, mean_vectors(vectors, lengths).half(), lengths).shape == (120, 66)


def test_what_was_packed_years_ago_is_read_as_it_was_meant():
    """Bytes on users' disks: if this fails, `PACKING` must get another name and the old one be refused."""
    generator = np.random.default_rng(7)
    codes = torch.from_numpy(generator.integers(0, 256, (50, 64), dtype=np.uint8))
    ones = torch.ones(50, 1, dtype=torch.float16)
    file = {
        "codes": torch.cat([codes, ones.view(torch.uint8)], dim=1),
        "lengths": torch.tensor([50]),
        "means": torch.zeros(1, 128, dtype=torch.float16),
    }
    from raisf.retrieval.store.packing import unpack

    rows = unpack(file)
    assert torch.allclose(rotation(128) @ rotation(128).T, torch.eye(128), atol=1e-5)
    assert [round(float(n), 3) for n in rows[0, :4]] == [0.017, 0.122, 0.045, -0.069]


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    queries=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    k=st.integers(1, 40),
    barred=st.sets(st.integers(0, 29)),
)
def test_scores_are_the_packed_vectors_own(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], queries: list[int], k: int, barred: set[int]
):
    vectors = packed(tmp_path_factory.mktemp("vectors") / "v", lengths)
    asked = [row.float() for n in queries for row in made([n], seed=n)[0].split(n)]
    allowed = np.array([number not in barred for number in range(len(lengths))])
    pairs = zip(Prefetch(vectors).search(asked, k, allowed), MaxSim(vectors).search(asked, k, allowed), strict=True)
    for hits, exact in pairs:
        assert [score for _, score in hits] == pytest.approx([score for _, score in exact], abs=2e-2)
        assert {number for number, _ in hits}.isdisjoint(barred)


def test_an_index_packs_when_it_grows_and_answers_as_before(small: None, tmp_path: Path):
    path = tmp_path / "i"
    exact = ColBERT.build(DUKES, tmp_path / "exact", search="exact", progress=False)
    small_index = ColBERT.build(DUKES[:15], path, progress=False)
    assert (index_info(path)["search"], index_info(path)["packing"]) == ("exact", None)
    add_to_index(path, DUKES[15:40], progress=False)
    add_to_index(path, DUKES[40:45], progress=False)
    add_to_index(path, DUKES[45:], progress=False)
    index = open_folder(path)
    assert index_info(path)["search"] == "prefetch" and check_index(path) == []
    assert {segment.search for segment in index.manifest.segments} == {"packed"}
    assert {p.pid for p in small_index(QUERY, 60)} == {p.pid for p in DUKES[:15]}  # a snapshot
    scores = {p.pid: p.score for p in exact(QUERY, 60)}
    assert {p.pid: p.score for p in index(QUERY, 60)} == pytest.approx(scores, rel=0.05)
    assert len(index(QUERY, 5)) == 5
    size = sum(file.stat().st_size for file in path.rglob("vectors/*"))
    assert size < 0.45 * sum(file.stat().st_size for file in (tmp_path / "exact").rglob("vectors/*"))


def test_packed_passages_move_between_segments_with_their_codes(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "i"
    ColBERT.build(DUKES[:30], path, progress=False)
    before = {p.pid: p.score for p in open_folder(path)("duke horses", 30)}
    monkeypatch.setattr(ColBERTEncoder, "encode_passages", None)
    remove_from_index(path, "n < 10")  # more than a quarter: the segment is written anew
    index = open_folder(path)
    assert [segment.deleted for segment in index.manifest.segments] == [[]]
    found = {p.pid: p.score for p in index("duke horses", 30)}
    assert set(found) == {str(n) for n in range(10, 30)}
    assert found == pytest.approx({pid: before[pid] for pid in found}, abs=1e-4)


@pytest.mark.parametrize("packed", [False, True])
def test_segments_are_merged_into_few_files(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each addition left a file for ever: after 400, an index of 421 passages had 403, all of them read to open it."""
    monkeypatch.setattr("raisf.retrieval.store.vectors.SHARD", 4)
    wanted, gathered = [], Gathered(tmp_path / "new", packed)
    for number, lengths in enumerate([[1, 1], [3, 2], [4], [1, 5, 2], [2], [7, 1]]):
        write_shard(tmp_path / "old", number, [made(lengths, 8, number)])
        (file,) = Vectors(tmp_path / "old").files()
        kept = torch.tensor([place != 1 for place in range(len(lengths))]) if number else torch.zeros(2).bool()
        gathered.add(file, kept)
        wanted += [rows for rows, keep in zip(file["vectors"].split(lengths), kept, strict=True) if keep]
        (tmp_path / "old" / f"{number:05d}.safetensors").unlink()
    gathered.write()
    new = Vectors(tmp_path / "new")
    assert [len(file["lengths"]) for file in new.files()] == [4, 2]
    assert new.lengths.tolist() == [len(rows) for rows in wanted]
    assert torch.allclose(new.all(), torch.cat(wanted).float(), atol=0.3 if packed else 0)
    assert torch.allclose(
        torch.cat([means_of(file).float() for file in new.files()]),
        mean_vectors(torch.cat(wanted), new.lengths),
        atol=1e-3,
    )


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path):
    for number in (99_999, 100_000):
        write_shard(tmp_path, number, [made([number // 99_999 + number % 2], 8)])
    assert Vectors(tmp_path).lengths.tolist() == [2, 1]


def test_an_index_of_the_format_before_opens_and_is_packed_by_its_next_change(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "i"
    with monkeypatch.context() as patch:
        for module in (manifest, writer):
            patch.setattr(module, "EXACT_UP_TO", 1000)
        ColBERT.build(DUKES[:40], path, progress=False)
    told = read_json(path / MANIFEST)
    for segment in told["segments"]:
        del segment["packing"]
    write_json(path / MANIFEST, {**told, "format": 2})
    old = open_folder(path)
    assert index_info(path)["search"] == "prefetch" and "3" in [p.pid for p in old(QUERY, 10)]
    add_to_index(path, DUKES[40:], progress=False)
    new = open_folder(path)
    assert {segment.search for segment in new.manifest.segments} == {"packed"} and new.manifest.format == 3
    assert "3" in [p.pid for p in new(QUERY, 10)] and check_index(path) == []
    remove_from_index(path, "n >= 40")
    assert open_folder(path).corpus_hash == old.corpus_hash
    assert found_by(open_folder(path)) != found_by(old)  # other scores: answers are not taken for one another's


def test_an_unknown_packing_is_refused_in_one_line(small: None, tmp_path: Path):
    path = tmp_path / "i"
    ColBERT.build(DUKES[:30], path, progress=False)
    told = read_json(path / MANIFEST)
    told["segments"][0]["packing"] = "1 bit"
    write_json(path / MANIFEST, told)
    with pytest.raises(InputError, match=r"is packed as '1 bit', this version reads .*make one with: raisf index"):
        open_folder(path)


def test_what_breaks_while_packing_leaves_the_old_index(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "i"
    ColBERT.build(DUKES[:15], path, progress=False)
    before, broken = read_manifest(path), RuntimeError("stopped")

    def fail(*args: object) -> None:
        raise broken

    monkeypatch.setattr("raisf.retrieval.store.vectors.pack", fail)
    with pytest.raises(RuntimeError, match="stopped"):
        add_to_index(path, DUKES[15:], progress=False)
    monkeypatch.undo()
    assert read_manifest(path) == before and check_index(path) == []
    assert [folder.name for folder in (path / "segments").iterdir()] == ["1"]


def test_a_large_segment_has_cells_and_they_choose_what_all_means_choose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lengths = [3 + n % 5 for n in range(3000)]
    vectors = packed(tmp_path / "segment" / "vectors", lengths, files=700)
    asked = [row.float() for row in made([4] * 12, seed=99)[0].split(4)]
    allowed = np.arange(3000) % 3 > 0
    rare = np.arange(3000) % 50 == 0
    flat = Candidates(vectors)
    cells.write_cells(vectors, tmp_path / "segment" / cells.CELLS)
    monkeypatch.setattr(cells, "READ", 10_000)
    every = Candidates(vectors)
    for mask in (np.ones(3000, dtype=bool), allowed, rare):
        pairs = list(zip(flat.choose(asked, 50, mask), every.choose(asked, 50, mask), strict=True))
        assert np.mean([len(np.intersect1d(*pair)) for pair in pairs]) > 49  # the cells' rows are float16
    monkeypatch.setattr(cells, "READ", 8)
    some = Candidates(vectors)
    for mask in (np.ones(3000, dtype=bool), allowed, rare):
        for chosen in some.choose(asked, 50, mask):
            assert len(chosen) == 50 and mask[chosen].all() and (np.diff(chosen) > 0).all()


def test_an_index_with_cells_is_added_to_reduced_and_merged(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cells, "CELLS_FROM", 25)
    path = tmp_path / "i"
    ColBERT.build(DUKES[:40], path, progress=False)
    add_to_index(path, DUKES[40:], progress=False)
    assert len(list(path.rglob(cells.CELLS))) == 1 and check_index(path) == []
    remove_from_index(path, "n = 7 or n = 50")
    index = open_folder(path)
    asked = [f"How many horses had the duke in {1000 + n}?" for n in (3, 39, 40, 59)]
    for n, row in zip((3, 39, 40, 59), index.search_many(asked, 20), strict=True):
        assert str(n) in [p.pid for p in row] and len(row) == 20
    assert not {"7", "50"} & {p.pid for p in index(QUERY, 60)}
    assert {p.pid for p in index(QUERY, 3, where="n = 1 or n > 57")} == {"1", "58", "59"}
    remove_from_index(path, "n < 20")
    assert len(list(path.rglob(cells.CELLS))) == 1 and dataclasses.asdict(open_folder(path).manifest)["passages"] == 39
    assert "39" in [p.pid for p in open_folder(path)(asked[1], 20)]
