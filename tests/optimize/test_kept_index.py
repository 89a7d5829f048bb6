"""An artifact names the index that its program learnt over, whatever has become of the folder since."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from raisf.optimize.artifact import load, save
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.index import add_to_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.store.manifest import read_manifest
from raisf.utils.errors import InputError


def test_an_index_that_changes_while_a_program_is_compiled_is_another_one(world, tmp_path: Path) -> None:
    """The artifact named what stood in the folder in the end; and where nothing did, it was not written."""
    index = tmp_path / "index"
    shutil.copytree(world.index, index)
    compiled = RAISF(BM25.load(index))
    add_to_index(index, [Passage("new", "Something new.")], progress=False)
    save(compiled, tmp_path / "a")
    with pytest.raises(InputError, match=r"of another corpus .*compile again"):
        load(tmp_path / "a")
    shutil.rmtree(index)
    save(compiled, tmp_path / "b")
    shutil.copytree(world.index, index)
    assert load(tmp_path / "a").system == load(tmp_path / "b").system == "ra-isf"


def test_an_index_that_was_made_anew_with_another_encoder_is_another_one(
    world, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(RAISF(BM25.load(world.index)), tmp_path / "a")
    anew = replace(read_manifest(world.index), checkpoint_sha256="f" * 64)
    monkeypatch.setattr("raisf.optimize.kept_index.read_manifest", lambda path: anew)
    with pytest.raises(InputError, match=r"of another checkpoint .*compile again"):
        load(tmp_path / "a")
