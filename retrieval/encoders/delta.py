"""A trained ColBERT checkpoint as what differs from the one it grew from: a fifth of the size, so that it can ship.

    delta.safetensors    by tensor's name, trained minus base in float16; tensors that are the base's own are left out
    delta.json           the base and its hash, the delta's hash, settings, what the training was
    training.json        as `raisf colbert train` writes it, where the checkpoint had one

Differences are small numbers, so that half precision keeps them ten times as exactly as it would keep the weights.
"""

import functools
import logging
import shutil
from pathlib import Path
from typing import Any

from raisf.retrieval.encoders.checkpoint import MINILM, cache_folder, find_checkpoint, hash_folder
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, read_json, sha256_file, write_json

TRAINED = "raisf-minilm"
"""The name of the checkpoint that ships: MiniLM's weights out of its package, and the delta beside this file."""
DELTA, FACTS, SETTINGS, PROVENANCE = "delta.safetensors", "delta.json", "artifact.metadata", "training.json"
FORMAT = 1
MOST = 25 * 10**6
"""Bytes of a delta that ships."""

logger = logging.getLogger(__name__)


def shipped_folder() -> Path:
    """The folder of the delta that ships, whether it is there or not."""
    return Path(__file__).parent / TRAINED


@functools.cache
def default_checkpoint() -> str:
    """What ColBERT encodes with where no checkpoint is named: the trained one, or MiniLM where that is missing."""
    if (shipped_folder() / DELTA).is_file():
        return TRAINED
    logger.warning(
        "the trained checkpoint %s is not in this installation: encoding with %s, which is not trained for retrieval",
        TRAINED,
        MINILM,
    )
    return MINILM


def write_delta(
    checkpoint: Path | str, out: Path | str, base: str | Path = MINILM, training: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Writes what a checkpoint differs in from its base; `raisf index --checkpoint` takes the folder like any other.

    Args:
        checkpoint: The trained checkpoint.
        out: The folder, new or a delta to replace.
        base: What it grew from; must be found under the same name where the delta is used.
        training: What it was trained on and what came of it; None: what its training.json says.

    Returns:
        delta.json's content, with `bytes`, and `error`, the largest difference of a weight to the checkpoint's own.

    Raises:
        InputError: No such checkpoint, or another architecture, tokenizer or base.
    """
    import numpy as np
    from safetensors.numpy import save_file

    trained, old = find_checkpoint(checkpoint), find_checkpoint(base)
    ours, theirs = _tensors(trained.path), _tensors(old.path)
    shapes = [{name: tensor.shape for name, tensor in one.items()} for one in (ours, theirs)]
    if shapes[0] != shapes[1] or _files(trained.path) != _files(old.path):
        raise InputError(
            f"{checkpoint} has other tensors, or another tokenizer, than {base}: name the base it grew from"
        )
    changed = {name: (ours[name] - theirs[name]).astype(np.float16) for name in ours}
    changed = {name: tensor for name, tensor in changed.items() if tensor.any()}
    if not changed:
        raise InputError(f"{checkpoint} has the weights of {base}: there is nothing to keep")
    error = max(
        float(np.abs(theirs[name] + tensor.astype(np.float32) - ours[name]).max()) for name, tensor in changed.items()
    )
    told = read_json(trained.path / PROVENANCE) if (trained.path / PROVENANCE).is_file() else {}
    facts: dict[str, Any] = {
        "format": FORMAT,
        "base": str(base),
        "base_sha256": old.sha256,
        "settings": read_json(trained.path / SETTINGS),
        "training": training or {name: value for name, value in told.items() if name not in ("queries", "curve")},
    }
    with atomic_folder(out, FACTS) as folder:
        save_file(changed, folder / DELTA)
        facts["delta_sha256"] = sha256_file(folder / DELTA)
        write_json(folder / FACTS, facts)
        if told:
            shutil.copyfile(trained.path / PROVENANCE, folder / PROVENANCE)
    return {**facts, "tensors": len(changed), "bytes": (Path(out) / DELTA).stat().st_size, "error": error}


def applied(folder: Path, name: str) -> Path:
    """The whole checkpoint of a delta's folder: made once, into the cache.

    Raises:
        InputError: The delta is damaged, or its base is gone or another.
    """
    from filelock import FileLock

    facts = read_json(folder / FACTS) if (folder / FACTS).is_file() else {}
    if facts.get("format") != FORMAT or not {"base", "base_sha256", "delta_sha256", "settings"} <= facts.keys():
        raise InputError(f"the checkpoint {name} is damaged: {folder / FACTS} says nothing of {DELTA}; make it again")
    if sha256_file(folder / DELTA) != facts["delta_sha256"]:
        raise InputError(f"the checkpoint {name} is damaged: {DELTA} has changed since it was made; copy it again")
    base = find_checkpoint(facts["base"])
    if base.sha256 != facts["base_sha256"]:
        raise InputError(
            f"the checkpoint {name} was made on {facts['base']} ({facts['base_sha256'][:12]}), which is now another "
            f"({base.sha256[:12]}): install the version it was made on, or train again"
        )
    path = cache_folder() / f"colbert-{TRAINED if name == TRAINED else 'delta'}-{hash_folder(folder)[:12]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if not path.is_dir():
            with atomic_folder(path, "config.json") as made:
                _apply(base.path, folder, facts["settings"], made)
    return path


def _apply(base: Path, delta: Path, settings: dict[str, Any], out: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file, save_file

    tensors, changes = _tensors(base), load_file(delta / DELTA)
    for name, change in changes.items():
        tensors[name] = tensors[name] + change.astype(np.float32)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    for file in sorted(base.iterdir()):
        if file.suffix in {".json", ".txt", ".model"} and file.name != PROVENANCE:
            shutil.copyfile(file, out / file.name)
    write_json(out / SETTINGS, settings)
    if (delta / PROVENANCE).is_file():
        shutil.copyfile(delta / PROVENANCE, out / PROVENANCE)


def _tensors(folder: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}


def _files(folder: Path) -> list[str]:
    """The hashes of a checkpoint's words and architecture."""
    config = {key: value for key, value in read_json(folder / "config.json").items() if not key.startswith("_")}
    return [sha256_file(folder / "tokenizer.json"), str(sorted(config.items(), key=lambda item: item[0]))]
