"""Keeping of a trained ColBERT checkpoint what differs from its base; see `raisf.retrieval.encoders.delta`."""

import shutil
from pathlib import Path
from typing import Any

from raisf.lm.local.soundness import VOCABULARIES
from raisf.retrieval.encoders.checkpoint import MINILM, find_checkpoint
from raisf.retrieval.encoders.delta import DELTA, DELTA_FILES, FACTS, FORMAT, PROVENANCE, SETTINGS, tensors
from raisf.retrieval.engines.checkpoints import findable_name
from raisf.utils.errors import InputError
from raisf.utils.files import atomic_folder, read_json, sha256_file, write_json


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
    ours, theirs = tensors(trained.path), tensors(old.path)
    alike = all(name in theirs and tensor.shape == theirs[name].shape for name, tensor in ours.items())
    if not (alike and _have_one_tokenizer(trained.path, old.path) and _shape(trained.path) == _shape(old.path)):
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
        "base": findable_name(old),
        "base_sha256": old.sha256,
        "settings": read_json(trained.path / SETTINGS),
        "training": training or {name: value for name, value in told.items() if name not in ("queries", "curve")},
    }
    with atomic_folder(out, *DELTA_FILES) as folder:
        save_file(changed, folder / DELTA)
        facts["delta_sha256"] = sha256_file(folder / DELTA)
        write_json(folder / FACTS, facts)
        if told:
            shutil.copyfile(trained.path / PROVENANCE, folder / PROVENANCE)
    return {**facts, "tensors": len(changed), "bytes": (Path(out) / DELTA).stat().st_size, "error": error}


def _have_one_tokenizer(trained: Path, base: Path) -> bool:
    """Whether the words of two checkpoints are the same; one may have them in fewer kinds of files."""
    ours, theirs = (
        {file.name: sha256_file(file) for kind in VOCABULARIES for file in folder.glob(kind)}
        for folder in (trained, base)
    )
    both = ours.keys() & theirs.keys()
    return bool(both) and all(ours[name] == theirs[name] for name in both)


def _shape(folder: Path) -> dict[str, Any]:
    """What a checkpoint's config.json says of its architecture."""
    return {key: value for key, value in read_json(folder / "config.json").items() if not key.startswith("_")}
