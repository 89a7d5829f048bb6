"""A retriever must use the checkpoint that was asked for, whole, offline if it is `minilm`, or say what is wrong."""

import errno
import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from raisf.retrieval.encoders.checkpoint import find_checkpoint
from raisf.retrieval.encoders.encoder import ColBERTEncoder
from raisf.retrieval.engines.dense import find_model
from raisf.utils.cache import cache_folder
from raisf.utils.errors import InputError
from raisf.utils.files import read_json, write_json


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(find_checkpoint("minilm").path, tmp_path / "copy"))


def test_minilm_is_the_same_wherever_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = find_checkpoint("minilm")
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path))

    def no_locks(*args: object) -> None:  # as on a network disk without them
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    again = find_checkpoint("minilm")
    assert again.path.is_relative_to(tmp_path) and again.path != found.path
    assert again.sha256 == found.sha256
    # Indexes that people have made are bound to this: change it only together with the recipe's number.
    assert found.sha256.startswith("0bbb2c57e42c4eaa")


@pytest.mark.parametrize("name", ["minilm", "raisf-minilm"])
def test_a_cache_that_cannot_be_written_is_told_with_what_to_do(tmp_path: Path, monkeypatch, name: str):
    (tmp_path / "taken").write_text("a file, where a folder should be")
    for place in (tmp_path / "taken", tmp_path / "taken" / "below", Path("/proc/none")):
        monkeypatch.setenv("RAISF_CACHE", str(place))
        with pytest.raises(InputError, match=f"{place} cannot be written .*: give a place .* as RAISF_CACHE"):
            find_checkpoint(name)


@pytest.mark.parametrize("find", [find_checkpoint, find_model])
def test_the_home_of_a_user_who_is_not_there_is_no_place(find: Callable[[str], object], monkeypatch):
    with pytest.raises(InputError, match=r"^~nouser/x: this is no path \(.*\): write it out"):
        find("~nouser/x")
    monkeypatch.setenv("RAISF_CACHE", "~nouser/cache")
    with pytest.raises(InputError, match=r"~nouser/cache: this is no path .* as RAISF_CACHE"):
        cache_folder()


@pytest.mark.parametrize("name", ["minilm", "raisf-minilm"])
def test_a_checkpoint_that_is_in_the_cache_is_read_there_without_writing(name: str, monkeypatch):
    found = find_checkpoint(name)

    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    for writes in ("filelock.FileLock", "tempfile.TemporaryFile", "pathlib.Path.mkdir", "os.mkdir"):
        monkeypatch.setattr(writes, read_only)
    assert find_checkpoint(name) == found


def test_a_checkpoint_in_the_cache_that_is_damaged_is_made_anew(tmp_path: Path, monkeypatch, caplog):
    """A power cut soon after it was made left empty files: every command failed from then on."""
    folders = [find_checkpoint(name).path for name in ("minilm", "raisf-minilm")]
    made = [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in folders]
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path))
    found = find_checkpoint("raisf-minilm")
    for file in ("model.safetensors", "tokenizer.json", "artifact.metadata", "config.json"):
        for folder in made:
            whole = (folder / file).read_bytes()
            (folder / file).write_bytes(whole[: len(whole) // 2])
        assert find_checkpoint("raisf-minilm") == found
        (made[1] / file).write_bytes(b"")
        assert find_checkpoint("raisf-minilm") == found
    assert all(caplog.text.count(f"{folder} is damaged, and is made anew") >= 4 for folder in made)


def test_a_folder_is_a_checkpoint_and_any_change_is_noticed(copy: Path):
    found = find_checkpoint(copy)
    assert found.sha256 == find_checkpoint("minilm").sha256
    weights = load_file(copy / "model.safetensors")
    weights["linear.weight"][0, 0] += 0.5
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    assert find_checkpoint(copy).sha256 != found.sha256


def test_notes_beside_a_checkpoint_are_no_part_of_it_and_its_tokenizer_is(copy: Path):
    found = find_checkpoint(copy)
    for name in ("notes.txt", "LICENSE.txt", "README.md"):
        (copy / name).write_text("Trained in March.")
    assert find_checkpoint(copy).sha256 == found.sha256  # its indexes can still be opened
    seen = {found.sha256}
    for name in ("vocab.txt", "merges.txt", "sentencepiece.bpe.model"):
        (copy / name).write_text("a\nb\n")
        assert find_checkpoint(copy).sha256 not in seen
        seen.add(find_checkpoint(copy).sha256)


def test_a_trained_checkpoint_keeps_its_query_augmentation(copy: Path):
    settings = read_json(copy / "artifact.metadata")
    del settings["query_augmentation"]
    write_json(copy / "artifact.metadata", {**settings, "query_maxlen": 32})
    found = find_checkpoint(copy)
    assert [len(q) for q in ColBERTEncoder(found.path, found.augment).encode_queries(["Who?", "Who was it?"])] == [
        32,
        32,
    ]


@pytest.mark.parametrize(("precision", "sizes"), [("float32", [3, 1]), ("bfloat16", [1, 1, 1, 1])])
def test_a_query_is_encoded_once_and_in_bfloat16_by_itself(
    precision: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch
):
    found = find_checkpoint("minilm")
    encoder, encoded = ColBERTEncoder(found.path, found.augment, precision), []
    whole = encoder._checkpoint.query

    def counted(ids: Any, *args: Any, **options: Any) -> Any:
        encoded.append(len(ids))
        return whole(ids, *args, **options)

    monkeypatch.setattr(encoder._checkpoint, "query", counted)
    first = encoder.encode_queries(["Who?", "Where?", "Who?", "When was it?"])
    again = encoder.encode_queries(["When was it?", "Why?", "Where?"])
    assert encoded == sizes
    assert first[3] is again[0] and first[1] is again[2] and first[0] is first[2]
    alone = ColBERTEncoder(found.path, found.augment, precision).encode_queries(["Where?"])[0]
    assert abs(first[1] - alone).max() <= (1e-5 if precision == "float32" else 0)


def test_a_checkpoint_in_the_hubs_cache_is_found_by_its_id(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "models--someone--colbert"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc123")
    shutil.move(copy, repository / "snapshots" / "abc123")
    assert find_checkpoint("someone/colbert").sha256 == find_checkpoint("minilm").sha256
    with pytest.raises(InputError, match="no folder someone/else here, and the hub did not give it"):
        find_checkpoint("someone/else")


@pytest.mark.parametrize("name", ["nowhere", "./nowhere/at", "a/b/c"])
def test_a_name_that_is_nothing_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no checkpoint"):
        find_checkpoint(name)


def test_what_is_no_colbert_checkpoint_is_refused(copy: Path):
    weights = load_file(copy / "model.safetensors")
    save_file({key: weights[key] for key in weights if key != "linear.weight"}, copy / "model.safetensors")
    with pytest.raises(InputError, match=r"no projection \(linear.weight\)"):
        find_checkpoint(copy)
    (copy / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(InputError, match=r"damaged: model.safetensors"):
        find_checkpoint(copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no \*.safetensors file"):
        find_checkpoint(copy)
    write_json(copy / "config.json", {"auto_map": {"AutoModel": "evil.Model"}})
    with pytest.raises(InputError, match="own code"):
        find_checkpoint(copy)
    (copy / "artifact.metadata").unlink()
    with pytest.raises(InputError, match=r"has no artifact.metadata"):
        find_checkpoint(copy)
