"""Makes an artifact fit to ship: its base by name instead of a folder of this machine, its hashes checked and renewed.

    python -m raisf.optimize.shipping ARTIFACT [--name smollm2] [--out optimize/shipped/smollm2]

What each training was (data by name and count, seeds, seconds, figures) stays as the artifact tells it.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from raisf.lm.local import gguf
from raisf.lm.local.multi_lora import CONFIG, TRAINING, WEIGHTS
from raisf.lm.local.weights import ANY_PRECISION, PREFIX, same_weights, weights_folder, weights_hash
from raisf.optimize.adapters import ADAPTERS, README, adapter_hash, readme
from raisf.optimize.artifact import ARTIFACT
from raisf.optimize.manifest import MANIFEST, STATE, read
from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import atomic_folder, read_json, sha256_file, write_json, write_text

MOST = 30 * 10**6
"""Bytes of all adapters together: more does not belong into a wheel."""


def ship(artifact: Path, name: str, out: Path) -> dict[str, Any]:
    """Writes an artifact as a compiled program that ships, and checks that it opens.

    Args:
        artifact: Made by `raisf.optimize.artifact.save`, all of its weights LoRA adapters on one base.
        name: Of that base among the models that packages carry.
        out: The folder; replaced whole.

    Returns:
        Its manifest.

    Raises:
        InputError: Another base, weights that are damaged or too large, or no artifact.
    """
    if name not in gguf.SHIPPED:
        raise InputError(f"no package carries a model {name!r}: choose {', '.join(gguf.SHIPPED)}")
    base = weights_folder(name)
    spec = f"{PREFIX}{name}#{weights_hash(base)}-{ANY_PRECISION}"
    kept, manifest = read(artifact), read_json(artifact / MANIFEST)
    for predictor, entry in kept.weights.items():
        if entry.kind != "lora":
            raise InputError(f"{predictor!r} has a model of its own: only adapters ship")
        _check_base(predictor, entry.base, base)
        if adapter_hash(artifact / ADAPTERS / predictor) != entry.sha256:
            raise InputError(f"{ADAPTERS}/{predictor} of {artifact} has changed since it was saved: save it again")
    for entry in kept.lms:
        _check_base(" and ".join(entry.predictors), entry.connect.spec, base)
    with atomic_folder(out, *ARTIFACT) as folder:
        shutil.copyfile(artifact / STATE, folder / STATE)
        for predictor in kept.weights:
            _copy_adapter(artifact / ADAPTERS / predictor, folder / ADAPTERS / predictor, name, spec)
            sha = adapter_hash(folder / ADAPTERS / predictor)
            manifest["weights"][predictor] = {"kind": "lora", "sha256": sha, "base": spec}
        for lm in manifest["lms"]:
            lm.pop("relative", None)
            lm["connect"]["spec"] = spec
        manifest |= {"index": None, "state_sha256": sha256_file(folder / STATE)}
        manifest["compile"] = _based_on(manifest.get("compile"), spec)
        size = sum(file.stat().st_size for file in folder.rglob(f"*/{WEIGHTS}"))
        if size > MOST:
            raise InputError(f"the adapters take {size / 1e6:.1f} MB, and may take {MOST / 1e6:.0f}: train fewer ranks")
        write_json(folder / MANIFEST, manifest)
        text = readme(kept.program, manifest["weights"], folder)
        write_text(folder / README, text)
    return manifest


def _check_base(what: str, base: str, folder: Path) -> None:
    if not same_weights(base.rpartition("#")[2], folder):
        raise InputError(f"{what} was made on {base}, and not on the weights in {folder}")


def _copy_adapter(source: Path, target: Path, name: str, spec: str) -> None:
    target.mkdir(parents=True)
    shutil.copyfile(source / WEIGHTS, target / WEIGHTS)
    write_json(target / CONFIG, {**read_json(source / CONFIG), "base_model_name_or_path": name})
    write_json(target / TRAINING, _based_on(read_json(source / TRAINING), spec))


def _based_on(report: Any, spec: str) -> Any:
    """A report in which every `base` is the one that ships."""
    if isinstance(report, dict):
        return {key: spec if key == "base" else _based_on(value, spec) for key, value in report.items()}
    return [_based_on(value, spec) for value in report] if isinstance(report, list) else report


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m raisf.optimize.shipping", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--name", default="smollm2", help="of the base, and of the program; default: smollm2")
    parser.add_argument("--out", type=Path, help="default: the folder of that name in raisf.optimize.shipped")
    given = parser.parse_args()
    out = given.out or Path(__file__).resolve().parent / "shipped" / given.name
    try:
        made = ship(given.artifact, given.name, out)
    except RaisfError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"{out}: {', '.join(made['weights'])} on {next(iter(made['weights'].values()))['base']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
