"""Where an index holds real documents too, the pocket Llama must not answer: it would make things up."""

from pathlib import Path

import pytest

from raisf.data.world.files import write_world
from raisf.retrieval.closed_world import of_closed_world
from raisf.retrieval.index import add_to_index, build_index, open_index, remove_from_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.store.writer import MOST_SEGMENTS


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_world(folder / "w", seed=99, entities=300)
    build_index(folder / "w" / "corpus.jsonl", folder / "index", "bm25")
    return folder


def own(number: int, count: int = 1) -> list[Passage]:
    return [Passage(f"mine {number} {one}", "The handbook says more.") for one in range(count)]


def test_a_world_is_one_by_every_passage_whether_open_or_filtered(world: Path):
    index = open_index(world / "index")
    for whole in (world / "index", index, index.where("source = 'corpus.jsonl'")):  # type: ignore[union-attr]
        assert of_closed_world(whole)


def test_own_passages_are_seen_once_segments_are_merged(world: Path, tmp_path: Path):
    folder = tmp_path / "index"
    build_index(open_index(world / "index").passages, folder, "bm25")  # type: ignore[union-attr]
    size = len(open_index(folder).passages)  # type: ignore[union-attr]
    for number in range(MOST_SEGMENTS):
        add_to_index(folder, own(number, size))
    index = open_index(folder)
    assert len(index.manifest.segments) == 1  # type: ignore[union-attr]
    assert not of_closed_world(folder) and not of_closed_world(index)
    assert of_closed_world(index.where("source = 'corpus.jsonl'"))  # type: ignore[union-attr]


def test_what_was_deleted_does_not_count(world: Path, tmp_path: Path):
    folder = tmp_path / "index"
    build_index([*own(0), *open_index(world / "index").passages], folder, "bm25")  # type: ignore[union-attr]
    assert not of_closed_world(folder)
    remove_from_index(folder, "id = 'mine 0 0'")
    assert of_closed_world(folder)
