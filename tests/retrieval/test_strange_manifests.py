"""A manifest that was cut, edited or made by a stranger is told in a line; nothing else is searched in its place."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raisf.retrieval.index import build_index, check_index, remove_from_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import MANIFEST, PASSAGES, describe_files
from raisf.utils.files import read_json, write_json, write_jsonl
from tests.retrieval.conftest import error_of


@pytest.fixture
def folder(passages: list[Passage], tmp_path: Path) -> Path:
    build_index(passages, tmp_path / "i", "bm25")
    return tmp_path / "i"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m["segments"][0].update(deleted=[99]), "not ascending numbers of its passages"),
        (lambda m: m["segments"][0].update(deleted=[-1]), "not ascending numbers of its passages"),
        (lambda m: m["segments"][0].update(deleted=[2, 1]), "not ascending numbers of its passages"),
        (lambda m: m["segments"][0].update(deleted=["a"]), r"deleted is \['a'\], not list\[int\]"),
        (lambda m: m["segments"][0].update(passages=True), "passages is True, not int"),
        (lambda m: m["segments"][0].update(passages=3), "its segments do not hold the 12 passages"),
        (lambda m: m["segments"][0].update(passages=13, deleted=[12]), "has 12 passages, not 13"),
        (lambda m: m["segments"][0].update(search="magic"), "is searched by 'magic'"),
        (lambda m: m["segments"][0].update(search="plaid"), "no checksum of segments/1/plaid"),
        (lambda m: m["segments"][0].update(search="exact"), "no checksum of segments/1/vectors"),
        (lambda m: m["segments"][0].update(name="9"), "no checksum of segments/9/passages.jsonl"),
        (lambda m: m.update(segments={}), "its segments do not hold"),
        (lambda m: m.update(documents=[]), r"documents is \[\], not dict\[str, str\]"),
        (lambda m: m.update(words="words-9"), "no checksum of words-9"),
        (lambda m: m.update(words=None), "it has nothing to search by, bm25 searches by others"),
        (lambda m: m.update(kind="dense"), "it has counts of words, dense searches by others"),
    ],
)
def test_a_manifest_that_does_not_hold_together_is_told(change: Callable[[Any], None], told: str, folder: Path):
    manifest = read_json(folder / MANIFEST)
    change(manifest)
    write_json(folder / MANIFEST, manifest)
    assert re.search(told, error_of(folder))
    assert re.search(told, check_index(folder)[0])


def test_rows_that_are_no_passages_are_told(folder: Path):
    for row in ({"id": 1, "text": 2}, {"id": "a"}, {"id": "a", "text": "b", "metadata": []}):
        write_jsonl(folder / "segments" / "1" / PASSAGES, [row] * 12)
        manifest = read_json(folder / MANIFEST)
        described = describe_files(folder, [folder / "segments"]).items()
        manifest["files"] |= {name: dataclasses.asdict(file) for name, file in described}
        write_json(folder / MANIFEST, manifest)
        assert "line 1: no passage" in error_of(folder)


def test_deleted_passages_that_come_back_for_others_do_not_pass_the_check(folder: Path):
    remove_from_index(folder, "title = 'Hamlet'")
    assert check_index(folder) == []
    manifest = read_json(folder / MANIFEST)
    (number,) = manifest["segments"][0]["deleted"]
    manifest["segments"][0]["deleted"] = [number - 1]
    write_json(folder / MANIFEST, manifest)
    assert "the passages are others than when manifest.json was written" in check_index(folder)[0]
