"""If these failed, the checkpoint that ships would be another than the one that was trained, or break old indexes."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from raisf import cli
from raisf.retrieval.encoders import delta
from raisf.retrieval.encoders.checkpoint import default_checkpoint, find_checkpoint
from raisf.retrieval.index import build_index, index_info, open_index
from raisf.utils.errors import InputError
from raisf.utils.files import read_json

MOST_BYTES = 25 * 10**6  # of a delta that ships
LAYER = "bert.encoder.layer.5.output.dense.weight"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM with one layer and the projection a little off, as a training leaves it."""
    folder = tmp_path_factory.mktemp("trained") / "checkpoint"
    shutil.copytree(find_checkpoint("minilm").path, folder)
    tensors, rng = load_file(folder / "model.safetensors"), np.random.default_rng(0)
    for name in (LAYER, "linear.weight"):
        tensors[name] = tensors[name] + rng.normal(0, 0.01, tensors[name].shape).astype(np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def small(trained: Path) -> Path:
    out = trained.with_name("delta")
    assert cli.main(["colbert", "delta", str(trained), "--out", str(out)]) == 0
    return out


def test_a_delta_is_small_and_encodes_as_the_checkpoint_does(trained: Path, small: Path) -> None:
    sizes = [sum(file.stat().st_size for file in folder.iterdir()) for folder in (small, trained)]
    assert sizes[0] < sizes[1] / 50
    made, whole = find_checkpoint(small), find_checkpoint(trained)
    assert set(load_file(small / delta.DELTA)) == {LAYER, "linear.weight"}
    ours, theirs = load_file(made.path / "model.safetensors"), load_file(whole.path / "model.safetensors")
    assert max(float(np.abs(ours[name] - theirs[name]).max()) for name in theirs) < 1e-4
    texts = ["Where does the Danube rise?"]
    vectors = [np.asarray(one.encoder().encode_queries(texts)[0], np.float32) for one in (made, whole)]
    assert float((vectors[0] * vectors[1]).sum(-1).min()) > 0.999
    assert made.augment is whole.augment and made.sha256 == find_checkpoint(small).sha256


def test_an_index_made_with_a_delta_is_opened_with_it(small: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The Danube rises in the Black Forest.")
    build_index(tmp_path / "a.txt", tmp_path / "index", checkpoint=small, progress=False)
    assert open_index(tmp_path / "index")("Where does the Danube rise?", 1)
    moved = Path(shutil.copytree(small, tmp_path / "moved"))
    assert find_checkpoint(moved).sha256 == index_sha(tmp_path / "index")


def index_sha(path: Path) -> str:
    return read_json(path / "manifest.json")["checkpoint_sha256"]


@pytest.mark.parametrize("broken", [delta.DELTA, delta.FACTS])
def test_a_damaged_delta_is_told(small: Path, tmp_path: Path, broken: str) -> None:
    copy = Path(shutil.copytree(small, tmp_path / "copy"))
    (copy / broken).write_bytes(b"{}" if broken == delta.FACTS else (copy / broken).read_bytes()[:-2])
    with pytest.raises(InputError, match="is damaged"):
        find_checkpoint(copy)


def test_a_delta_on_another_base_is_refused(small: Path, trained: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(small, tmp_path / "copy"))
    facts = (copy / delta.FACTS).read_text().replace('"minilm"', f'"{trained}"')
    (copy / delta.FACTS).write_text(facts)
    with pytest.raises(InputError, match="which is now another"):
        find_checkpoint(copy)


def test_what_did_not_change_makes_no_delta(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["colbert", "delta", "minilm", "--out", str(tmp_path / "out")]) == 2
    assert "has the weights of minilm" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_words_are_compared_in_whatever_files_both_checkpoints_have(trained: Path, tmp_path: Path) -> None:
    base, grown = tmp_path / "base", tmp_path / "grown"
    for copy, whole in ((base, find_checkpoint("minilm").path), (grown, trained)):
        shutil.copytree(whole, copy, ignore=shutil.ignore_patterns("tokenizer.json"))
    command = ["colbert", "delta", str(grown), "--base", str(base), "--out", str(tmp_path / "out")]
    assert cli.main(command) == 0
    (grown / "vocab.txt").write_text((grown / "vocab.txt").read_text() + "harpsichord\n")
    assert cli.main(command) == 2


def test_a_folder_that_has_the_bases_name_is_not_taken_for_it(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "minilm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["colbert", "delta", str(trained), "--out", "out"]) == 0
    assert find_checkpoint(tmp_path / "out").path.is_dir()


@pytest.fixture
def ships(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation whose trained checkpoint is this one."""
    monkeypatch.setattr(delta, "shipped_folder", lambda: small)
    default_checkpoint.cache_clear()
    yield
    default_checkpoint.cache_clear()


def test_the_trained_checkpoint_is_the_default_and_an_old_index_keeps_its_own(
    ships: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("The Danube rises in the Black Forest.")
    build_index(docs, tmp_path / "new", progress=False)
    build_index(docs, tmp_path / "old", checkpoint="minilm", progress=False)
    assert index_info(tmp_path / "new")["checkpoint"] == delta.TRAINED
    (docs / "b.txt").write_text("Chess is played on 64 squares.")
    caplog.clear()
    build_index(docs, tmp_path / "old", progress=False)
    assert index_info(tmp_path / "old")["checkpoint"] == "minilm" and index_info(tmp_path / "old")["passages"] == 2
    assert "keeps its checkpoint, minilm; --checkpoint raisf-minilm encodes it anew" in caplog.text
    assert open_index(tmp_path / "old")("chess", 1)[0].source == "b.txt"
    build_index(docs, tmp_path / "dense", engine="dense", progress=False)
    assert index_info(tmp_path / "dense")["checkpoint"] == "minilm"


def test_without_the_trained_checkpoint_minilm_encodes_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delta, "shipped_folder", lambda: tmp_path / "nothing")
    default_checkpoint.cache_clear()
    with caplog.at_level(logging.WARNING):
        for name in ("a", "b"):
            (tmp_path / f"{name}.txt").write_text("The Danube rises in the Black Forest.")
            build_index(tmp_path / f"{name}.txt", tmp_path / name, progress=False)
    assert index_info(tmp_path / "b")["checkpoint"] == "minilm"
    assert caplog.text.count("is not in this installation") == 1
    with pytest.raises(InputError, match="raisf-minilm is not in this installation"):
        find_checkpoint(delta.TRAINED)
    default_checkpoint.cache_clear()


@pytest.mark.skipif(not (delta.shipped_folder() / delta.DELTA).is_file(), reason="the delta is not in this checkout")
def test_the_checkpoint_that_ships_opens_and_is_small(tmp_path: Path) -> None:
    found = find_checkpoint(delta.TRAINED)
    assert found.path.is_dir() and (delta.shipped_folder() / delta.DELTA).stat().st_size <= MOST_BYTES
