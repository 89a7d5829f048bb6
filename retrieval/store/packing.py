"""Token vectors in a quarter of their bytes: what sets each one apart from its passage's mean, in 4 bits a number.

A vector is kept as the difference from its passage's mean (which is on the disk anyway): a length, float16, and a
direction, quantised by faiss's TurboQuant after a fixed rotation that spreads every direction evenly over the numbers.

Nothing is trained: a vector's code hangs on its own passage alone. So any segment is packed by itself, passages move
between segments with their codes as they are, and an index that grows for years never has a codec that is out of date.

Source: TurboQuant, https://arxiv.org/abs/2504.19874; the length that keeps dot products unbiased is RaBitQ's,
https://arxiv.org/abs/2405.12497, section 3.2.
"""

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PACKING = "difference, 4 bits"
"""What the manifest says of packed vectors. Another text means other bytes: what one writes, no other can read."""

_SEED = 20_260_611


def pack(vectors: "torch.Tensor", means: "torch.Tensor", lengths: "torch.Tensor") -> "torch.Tensor":
    """The codes, uint8 `(n_vectors, n_bytes)`: of the direction, and then the length of the difference, float16.

    Args:
        vectors: Of all passages, one after the other, `(n_vectors, dim)`.
        means: The mean vector of each passage as it is kept, `(n_passages, dim)`.
        lengths: How many vectors each has, `(n_passages,)`.
    """
    import torch

    dim = vectors.shape[1]
    apart = (vectors.float() - means.float().repeat_interleave(lengths, dim=0)) @ rotation(dim)
    norms = apart.norm(dim=1, keepdim=True)
    directions = apart / norms.clamp(min=1e-6)
    codes = torch.from_numpy(_quantizer(dim).sa_encode(directions.contiguous().numpy()))
    # So long that the dot product with the vector itself is right: quantised, a direction is a little off and short.
    alike = (directions * _decode(codes, dim)).sum(dim=1, keepdim=True).clamp(min=0.5)
    return torch.cat([codes, (norms / alike).half().view(torch.uint8)], dim=1)


def unpack(file: "dict[str, torch.Tensor]") -> "torch.Tensor":
    """The vectors, as well as they are known, float32 `(n_vectors, dim)`, of the tensors of a packed file."""
    means, codes = file["means"].float(), file["codes"]
    dim = means.shape[1]
    apart = _decode(codes, dim) * _lengths(codes).unsqueeze(1)
    return means.repeat_interleave(file["lengths"], dim=0) + apart @ rotation(dim).T


def products(turned: "torch.Tensor", codes: "torch.Tensor") -> "torch.Tensor":
    """The dot products `(n_tokens, n_vectors)` of a query with what sets vectors apart from their passages' means.

    Args:
        turned: The query's vectors times `rotation`, float32 `(n_tokens, dim)`.
        codes: Of the vectors, see `pack`.
    """
    return (turned @ _decode(codes, turned.shape[1]).T).mul_(_lengths(codes))


def _decode(codes: "torch.Tensor", dim: int) -> "torch.Tensor":
    """The rotated directions that codes stand for, float32 `(n_vectors, dim)`; about of unit length."""
    import torch

    quantizer = _quantizer(dim)
    return torch.from_numpy(quantizer.sa_decode(codes[:, : quantizer.sa_code_size()].contiguous().numpy()))


def _lengths(codes: "torch.Tensor") -> "torch.Tensor":
    import torch

    # A copy even of one row: where its bytes begin at an odd place, they are not read as float16.
    ends = codes[:, -2:].clone(memory_format=torch.contiguous_format)
    return ends.view(torch.float16)[:, 0].float()


@functools.lru_cache(maxsize=8)
def rotation(dim: int) -> "torch.Tensor":
    """The matrix, float32 `(dim, dim)`, that packed vectors are multiplied by: random signs, then cosines.

    It follows from the number of dimensions alone, and is the same on every machine.
    """
    import torch

    numbers = torch.arange(dim, dtype=torch.float64)
    cosines = torch.cos(torch.pi / dim * (numbers + 0.5) * numbers.unsqueeze(1)) * (2 / dim) ** 0.5
    cosines[0] /= 2**0.5
    state, signs = _SEED, []
    for _ in range(dim):
        state = (1_103_515_245 * state + 12_345) % (1 << 31)
        signs.append(1.0 if state >> 30 else -1.0)
    return (cosines * torch.tensor(signs, dtype=torch.float64)).T.float().contiguous()


@functools.lru_cache(maxsize=8)
def _quantizer(dim: int) -> Any:
    import faiss
    import numpy as np

    quantizer = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_4bit_tqmse, faiss.METRIC_INNER_PRODUCT)
    quantizer.train(np.zeros((1, dim), dtype=np.float32))  # only sets the levels, which hang on `dim` alone
    return quantizer
