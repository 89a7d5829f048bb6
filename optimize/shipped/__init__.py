"""Compiled programs that ship with the project: by name a folder beside this file, an artifact like any other.

`python -m raisf.optimize.shipping` makes such a folder of an artifact.
"""

from pathlib import Path

from raisf.utils.errors import InputError

PROGRAMS = {
    "smollm2": (
        "RA-ISF compiled to weights for SmolLM2-135M-Instruct: judges and answerers as LoRA adapters on one base.",
        "Liu et al. 2024, arXiv 2403.06840, section 3; what it learnt from: docs/results/training.md",
    )
}
"""By name, what each is and where it comes from. It is called after its LM, which takes it by default."""


def shipped_folder(name: str) -> Path:
    """The folder of a compiled program that ships.

    Raises:
        InputError: This installation lacks it, or a part of it.
    """
    from raisf.lm.local.multi_lora import WEIGHTS
    from raisf.optimize.adapters import ADAPTERS
    from raisf.optimize.manifest import MANIFEST, read

    folder = Path(__file__).parent / name
    instead = "install raisf again, or give --program ra-isf, which is not compiled and much weaker"
    if not (folder / MANIFEST).is_file():
        raise InputError(f"the compiled program {name} is not in this installation: {instead}")
    for predictor in read(folder).weights:
        if not (folder / ADAPTERS / predictor / WEIGHTS).is_file():
            raise InputError(f"the compiled program {name} lacks {ADAPTERS}/{predictor}/{WEIGHTS}: {instead}")
    return folder
