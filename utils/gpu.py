"""What fails on a GPU, told as what it is."""

import sys

from raisf.utils.errors import RaisfError, in_short


def gpu_failure(error: BaseException) -> RaisfError | None:
    """The error for what a GPU has no room for, or cannot run; None for any other error."""
    torch = sys.modules.get("torch")  # whoever has met one has imported it
    if torch is None or not isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
        return None
    told = in_short(error)
    if isinstance(error, torch.OutOfMemoryError):
        return RaisfError(
            f"the GPU has no room left ({told}): end what else holds its memory; ask fewer questions at a time "
            "(--threads) or train fewer layers (--layers); take a smaller model, another GPU "
            "(CUDA_VISIBLE_DEVICES=1) or the CPU (CUDA_VISIBLE_DEVICES=)"
        )
    return RaisfError(
        f"the GPU cannot be used ({told}): take another (CUDA_VISIBLE_DEVICES=1) or the CPU (CUDA_VISIBLE_DEVICES=)"
    )
