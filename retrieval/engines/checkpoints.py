"""Where the checkpoint of an index's encoder is: told in the manifest, and found again from there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from raisf.retrieval.encoders.checkpoint import MINILM
from raisf.retrieval.encoders.delta import TRAINED
from raisf.retrieval.store.encoding import Checkpoint
from raisf.retrieval.store.manifest import IndexManifest
from raisf.utils.errors import InputError
from raisf.utils.files import expanded, relative_path


def findable_name(found: Checkpoint) -> str:
    """The name of a checkpoint as it is found from any folder: an absolute path, unless it is of ours or the hub's."""
    if found.name in (MINILM, TRAINED) or not (folder := expanded(found.name)).is_dir():
        return found.name
    return str(folder.absolute())


def place_of(found: Checkpoint | None, index: Path | str) -> dict[str, Any]:
    """What a manifest keeps of a checkpoint, so that it is found again from any folder; see `find_again`.

    Args:
        found: The checkpoint; None for an engine without one.
        index: The folder of the index, which may not be there yet.
    """
    name = findable_name(found) if found else None
    return {
        "checkpoint": name,
        "checkpoint_sha256": found.sha256 if found else None,
        "checkpoint_relative": relative_path(name, index) if name and Path(name).is_absolute() else None,
        "precision": found.precision if found else None,
    }


def find_again(
    find: Callable[[str | Path], Checkpoint] | None,
    path: Path,
    manifest: IndexManifest,
    checkpoint: str | Path | None = None,
) -> Checkpoint | None:
    """The checkpoint that an index was made with, in its precision; None where its engine, the one of `find`, has none.

    Raises:
        InputError: It is gone, or another one is in its place.
    """
    if find is None:
        return None
    wanted = checkpoint or manifest.checkpoint or ""
    if checkpoint is None and manifest.checkpoint_relative is not None:
        moved = (path.resolve() / manifest.checkpoint_relative).resolve()
        # Of a copied project, the one in the old place may have been trained further.
        if moved.is_dir() and not (Path(wanted).is_dir() and is_of(find, wanted, manifest)):
            wanted = moved
    found = find(wanted)
    if found.sha256 != manifest.checkpoint_sha256:
        raise InputError(
            f"the index {path} was made with the checkpoint {manifest.checkpoint} ({manifest.checkpoint_sha256}), "
            f"but {found.name} is now another ({found.sha256}), and its vectors would mean nothing there; "
            f"give the old checkpoint back or make the index again (raisf index --checkpoint {found.name})"
        )
    # An index that does not say was made by a version that computed in float32 alone.
    return found.computing_in(manifest.precision or "float32")


def is_of(find: Callable[[str | Path], Checkpoint], checkpoint: str | Path, manifest: IndexManifest) -> bool:
    """Whether an index was made with a checkpoint; one that cannot be found is not its."""
    try:
        return find(checkpoint).sha256 == manifest.checkpoint_sha256
    except InputError:
        return False
