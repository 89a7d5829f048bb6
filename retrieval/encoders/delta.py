"""A trained ColBERT checkpoint as what differs from the one it grew from: a fifth of the size, so that it can ship.

    delta.safetensors    by tensor's name, trained minus base in float16; tensors that are the base's own are left out
    delta.json           the base and its hash, the delta's hash, settings, what the training was
    training.json        as `raisf colbert train` writes it, where the checkpoint had one

Differences are small numbers, so that half precision keeps them ten times as exactly as it would keep the weights.
"""

import shutil
from pathlib import Path
from typing import Any

from raisf.utils.errors import InputError
from raisf.utils.files import read_json, sha256_file, write_json

TRAINED = "raisf-minilm"
"""The name of the checkpoint that ships: MiniLM's weights out of its package, and the delta beside this file."""
DELTA, FACTS, SETTINGS, PROVENANCE = "delta.safetensors", "delta.json", "artifact.metadata", "training.json"
DELTA_FILES = (FACTS, DELTA, PROVENANCE)
"""All that lies in a delta's folder."""
FORMAT = 1


def shipped_folder() -> Path:
    """The folder of the delta that ships, whether it is there or not."""
    return Path(__file__).parent / TRAINED


def read_facts(folder: Path, name: str) -> dict[str, Any]:
    """What delta.json says, of a delta that is as it was written.

    Raises:
        InputError: It is damaged.
    """
    facts = read_json(folder / FACTS) if (folder / FACTS).is_file() else {}
    if facts.get("format") != FORMAT or not {"base", "base_sha256", "delta_sha256", "settings"} <= facts.keys():
        raise InputError(f"the checkpoint {name} is damaged: {folder / FACTS} says nothing of {DELTA}; make it again")
    if sha256_file(folder / DELTA) != facts["delta_sha256"]:
        raise InputError(f"the checkpoint {name} is damaged: {DELTA} has changed since it was made; copy it again")
    return facts


def apply(base: Path, folder: Path, settings: dict[str, Any], out: Path) -> None:
    """Writes the whole checkpoint.

    Args:
        base: The folder of the checkpoint that it grew from.
        folder: The delta's.
        settings: Of ColBERT, from delta.json.
        out: An empty folder.
    """
    import numpy as np
    from safetensors.numpy import load_file, save_file

    weights = tensors(base)
    for name, change in load_file(folder / DELTA).items():
        weights[name] = weights[name] + change.astype(np.float32)
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    for file in sorted(base.iterdir()):
        if file.suffix in {".json", ".txt", ".model"} and file.name != PROVENANCE:
            shutil.copyfile(file, out / file.name)
    write_json(out / SETTINGS, settings)
    if (folder / PROVENANCE).is_file():
        shutil.copyfile(folder / PROVENANCE, out / PROVENANCE)


def tensors(folder: Path) -> dict[str, Any]:
    """A checkpoint's weights by name."""
    from safetensors.numpy import load_file

    return {name: tensor for file in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(file).items()}
