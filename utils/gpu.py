"""What fails on a GPU, told as what it is."""

import sys

from raisf.utils.errors import RaisfError, in_short


def gpu_trouble(error: BaseException | None) -> tuple[str, str] | None:
    """What a GPU has no room for, or cannot run, and what to do; None for any other error."""
    torch = sys.modules.get("torch")  # whoever has met one has imported it
    if torch is None or error is None or not isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
        return None
    others = "another GPU (CUDA_VISIBLE_DEVICES=1) or the CPU (CUDA_VISIBLE_DEVICES=)"
    if not isinstance(error, torch.OutOfMemoryError):
        return f"the GPU cannot be used ({in_short(error)})", f"take {others}"
    return (
        f"the GPU has no room left ({in_short(error)})",
        "end what else holds its memory; ask fewer questions at a time (--threads) or train fewer layers (--layers); "
        f"take a smaller model, {others}",
    )


def gpu_failure(error: BaseException) -> RaisfError | None:
    """The error that tells of it; None for any other."""
    trouble = gpu_trouble(error)
    return RaisfError(": ".join(trouble)) if trouble else None
