"""Where the weights of a local model lie, what identifies them, and in which precision they are computed with."""

import hashlib
import math
from pathlib import Path
from typing import Literal

from raisf.lm import pocket
from raisf.lm.local import gguf
from raisf.utils.checks import check_named
from raisf.utils.errors import InputError
from raisf.utils.files import expanded, read_json, sha256_file, sha256_of_large

PREFIX = "local/"
WITHOUT_TEMPLATE = ("*.safetensors", "*.json", "tokenizer.model", "spiece.model")
EVERYTHING = (*WITHOUT_TEMPLATE, "*.jinja")
"""What a model is: all that the hub holds of it in the one format that carries no code, too."""

REPORT = "training.json"
"""Beside a model that was trained here: how."""

Precision = Literal["float32", "bfloat16", "float16"]
ANY_PRECISION = "auto"  # in a model string: what suits the machine that opens it
# "default": float32 on a CPU, as chosen on a GPU. float16 is chosen there where weights lie in it, and not asked for.
DTYPES = ("default", "float32", "bfloat16")
# Smaller models spend their time on overhead: the pocket Llama gains nothing from bfloat16.
LEAST_PARAMETERS = 50_000_000


def weights_folder(name: str) -> Path:
    """The folder of a local model: a pocket model's, a folder of that name, or the hub's copy of that id.

    A GGUF file, or a model that a package brings as one, is converted when it is first asked for.

    Raises:
        InputError: there is none, or it is not a model in safetensors.
    """
    if name in gguf.SHIPPED:
        return gguf.converted(gguf.shipped_file(name))
    if name.lower().endswith(".gguf"):
        return gguf.converted(expanded(name))
    folder = pocket.path(name) if name in pocket.WEIGHTS else expanded(name).absolute()
    if not folder.is_dir():
        if name in pocket.WEIGHTS:
            raise InputError(f"the weights of {name} are not in {folder}: make them with `raisf pocket train`")
        folder = _from_hub(name)
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} holds no model: there is no config.json in it, as Hugging Face models have")
    if not list(folder.glob("*.safetensors")):
        found = ", ".join(sorted(path.name for path in folder.glob("*.bin"))) or "no weights"
        raise InputError(
            f"{folder} holds no *.safetensors ({found}). Other formats can run code when loaded and are not read: "
            "load the model where you trust it and save it with save_pretrained()"
        )
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(name, allow_patterns=[*EVERYTHING]))
    except HFValidationError:
        raise InputError(f"{PREFIX}{name}: there is no folder {Path(name).absolute()}, and it is no hub id") from None
    except Exception as error:  # no network, no such repository, no access: the hub's client has a class for each
        raise InputError(
            f"{PREFIX}{name}: there is no folder {Path(name).absolute()}, and the Hugging Face hub gave no such model "
            f"({type(error).__name__}). Check the name; for a gated model log in with `hf auth login`"
        ) from error


def weights_hash(folder: Path) -> str:
    """Twelve hex digits that change with the weights, the tokenizer, its chat template or the configuration.

    What was converted from a GGUF file is told by its weights and that file's hash: tokenizer and configuration follow
    from it, and are written a little differently by each version of transformers.
    """
    return weights_hashes(folder)[0]


def weights_hashes(folder: Path) -> list[str]:
    """The hash of a model, and behind it those by which older versions knew it.

    These passed over a chat template in a file of its own: not where the model has one among its tokenizer's settings,
    which such a file, that came later, would take the place of. And they counted the report of a training in, with the
    seconds that it took.
    """
    settings = folder / "tokenizer_config.json"
    own = settings.is_file() and b'"chat_template"' in settings.read_bytes()
    ways = [EVERYTHING] if own else [EVERYTHING, WITHOUT_TEMPLATE]
    if (folder / gguf.SOURCE).is_file():
        ways = [("*.safetensors", gguf.SOURCE), WITHOUT_TEMPLATE]
    whole = [_hash_of(folder, patterns) for patterns in ways]
    return [_hash_of(folder, ways[0], REPORT), *whole] if (folder / REPORT).is_file() else whole


def hash_of_files(folder: Path, *names: str) -> str:
    """Twelve hex digits that change with any of some files of a folder, which are read anew."""
    whole = "".join(sha256_file(folder / name) for name in names)
    return hashlib.sha256(whole.encode()).hexdigest()[:12]


def same_weights(sha: str, folder: Path) -> bool:
    """Whether a model string's hash, with a precision behind it or not, is that of the model in a folder."""
    return sha.partition("-")[0] in weights_hashes(folder)


def check_unchanged(name: str, folder: Path, sha: str) -> None:
    """Raise InputError if a model's hash is another by now than when it was connected or pickled."""
    if (found := weights_hash(folder)) != sha:
        raise InputError(
            f"the weights of {name} have changed: expected #{sha}, found #{found} in {folder}; connect to them anew"
        )


def _hash_of(folder: Path, patterns: tuple[str, ...], without: str = "") -> str:
    whole = hashlib.sha256()
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern) if path.name != without):
        # Once a process: a Llama of 7 billion weights takes some ten seconds.
        whole.update(f"{path.name} {sha256_of_large(path)}\n".encode())
    return whole.hexdigest()[:12]


def choose_precision(folder: Path, given: str | None = None) -> Precision | None:
    """In which precision a model computes.

    bfloat16 halves the memory traffic and, by AMX, the arithmetic: 1.9 times the speed of scoring and 1.5 times that of
    generation on a Llama of 135 million parameters. Its rounding makes a verdict depend slightly on what else is in its
    batch, so small models and encoder-decoders stay at float32. On a GPU others compute in what their weights lie in.

    Args:
        folder: The model's folder.
        given: What the user asked for, one of `DTYPES`, or what a model string names; None or `ANY_PRECISION` chooses.

    Returns:
        None for float32, which the model string does not name: but where a GPU's choice would be another.

    Raises:
        InputError: There is no such precision.
    """
    if given in (None, ANY_PRECISION):
        return _suitable(folder)
    if given in ("bfloat16", "float16"):
        return given
    check_named("dtype", given, DTYPES)
    otherwise = _suitable(folder) if _has_gpu() else None
    return "float32" if otherwise and given == "float32" else otherwise


def _suitable(folder: Path) -> Precision | None:
    """What suits the model and this machine."""
    config = read_json(folder / "config.json")
    if parameters(folder) < LEAST_PARAMETERS or config.get("is_encoder_decoder"):
        return None
    if _has_gpu():
        own = config.get("dtype") or config.get("torch_dtype")
        return own if own in ("bfloat16", "float16") else None
    return "bfloat16" if multiplies_bfloat16() else None


def parameters(folder: Path) -> int:
    """How many weights a model has, read from the headers of its safetensors files; 0 if one of them is damaged."""
    from safetensors import SafetensorError, safe_open

    count = 0
    try:
        for path in folder.glob("*.safetensors"):
            with safe_open(path, "np") as file:
                count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
    except SafetensorError:  # whoever reads the weights says more
        return 0
    return count


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def multiplies_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 faster than float32: by AMX, or by instructions that are not Intel's.

    Intel's avx512_bf16 without AMX, as many virtual machines have it, takes 1.4 times as long as float32
    (`python -m bench.precision`). AMD's was not measured. Elsewhere bfloat16 is emulated.
    """
    import torch

    found = torch.cpu.get_capabilities()
    intel = str(found.get("cpu_name", "")).startswith("Intel")
    return bool(found.get("amx_bf16") or (found.get("avx512_bf16") and not intel))
