"""Whether what transformers has read is the model that lies there: what weights lack, it fills with random ones."""

import functools
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from raisf.utils.errors import InputError, RaisfError
from raisf.utils.files import read_json
from raisf.utils.gpu import gpu_failure


def unreadable(path: Path, error: Exception, otherwise: str = "") -> RaisfError:
    """The error for weights that transformers refuses, or that a GPU does, whatever it raised.

    Args:
        path: The model's file or folder.
        error: What it raised.
        otherwise: What else can be done, from a comma on.
    """
    if failure := gpu_failure(error):
        return failure
    reason, *more = (str(error).strip() or type(error).__name__).splitlines()
    reason += f" {more[0].strip()}" if reason.endswith(":") and more else ""
    if "does not support an attention implementation" in reason:
        return InputError(
            f"{path} is of an architecture that cannot run in this process ({reason.split()[0]}): take another model, "
            "or serve this one elsewhere and name it openai/NAME, with its address as --api-base"
        )
    return InputError(
        f"{path} is damaged, or transformers cannot read it ({reason}): copy or download it again{otherwise}"
    )


VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "*.bpe.model")
"""Files of which each kind of tokenizer has one."""


def is_whole(folder: Path) -> bool:
    """Whether no file of a model's folder has been cut or emptied, as by a power cut soon after it was made."""
    try:
        files = [(file, file.stat()) for file in folder.iterdir()]
    except OSError:  # a link to nothing, or another process makes it anew just now
        return False
    return all(_is_whole_file(file, stat.st_mtime_ns, stat.st_size) for file, stat in files)


@functools.cache
def _is_whole_file(file: Path, modified: int, size: int) -> bool:
    """It is looked into once a process while it stays as it is, by its time and size: a tokenizer takes 40 ms."""
    from safetensors import SafetensorError, safe_open

    try:
        if file.suffix in (".json", ".metadata"):
            read_json(file)
        elif file.suffix == ".safetensors":
            with safe_open(file, "np"):
                pass
    except (InputError, SafetensorError):
        return False
    return True


def check_tokenizer(tokenizer: Any, model: Any, path: Path) -> None:
    """Raise InputError for a tokenizer without words: of a class that it knows, transformers makes one of nothing."""
    lacks = not any(next(path.glob(name), None) for name in VOCABULARIES)
    if lacks and 2 * len(tokenizer) < len(model.get_input_embeddings().weight):
        raise InputError(
            f"{path} lacks its tokenizer's words (tokenizer.json, or another of its kind): copy or download it again"
        )


def check_weights(model: Any, loaded: dict[str, Any], path: Path) -> None:
    """Check that a model has all of its weights, and numbers for weights.

    Args:
        model: What was read.
        loaded: What transformers says of it (`output_loading_info`).
        path: The model's file or folder.

    Raises:
        InputError: It lacks some, has some that are no numbers, or leaves some out that are there.
    """
    import torch

    # Some readers miss what others leave out on purpose: the head that is the embeddings once more.
    tied = {"lm_head.weight"} if getattr(model.config, "tie_word_embeddings", False) else set()
    mismatched = {one if isinstance(one, str) else one[0] for one in loaded["mismatched_keys"]}
    # An encoder's pooler, which nothing here asks, is left out on purpose, too.
    lacking = sorted(name for name in {*loaded["missing_keys"], *mismatched} - tied if "pooler" not in name.split("."))
    if lacking:
        names = ", ".join(lacking[:3])
        raise InputError(
            f"{path} lacks {len(lacking)} of the weights that its architecture has ({names}): copy or download it again"
        )
    if beyond := _left_out(model, loaded["unexpected_keys"]):
        names = ", ".join(beyond[:3])
        raise InputError(
            f"{path} has weights that its config.json does not tell of ({len(beyond)}: {names}), and the model is "
            "another without them: copy or download it again"
        )
    for name, tensor in model.named_parameters():
        # One number that is none makes the sum none: a look at each would take several times as long.
        if tensor.is_floating_point() and not tensor.detach().sum(dtype=torch.float32).isfinite():
            broken = f"its {name} has weights that are no numbers"
            raise InputError(f"{path} is damaged: {broken}; copy or download it again")


def _left_out(model: Any, unexpected: Collection[str]) -> list[str]:
    """Of the weights that the model has no place for, those like its own: of one more layer, or the bias of a matrix.

    Others are no sign of damage: an image encoder, or what predicts several tokens at once.
    """
    own = {_anywhere(model, name) for name, _ in model.named_parameters()}
    own |= {f"{name.removesuffix('.weight')}.bias" for name in own if name.endswith(".weight")}
    return sorted(name for name in unexpected if _anywhere(model, name) in own)


def _anywhere(model: Any, name: str) -> str:
    """A weight's name without the numbers of layers and experts, and without the prefix that some files leave out."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "#", name.removeprefix(f"{model.base_model_prefix}."))
