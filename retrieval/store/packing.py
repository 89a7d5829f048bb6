"""Token vectors in a quarter of their bytes: what sets each one apart from its passage's mean, in 3.75 bits a number.

A vector is kept as the difference from its passage's mean (which is on the disk anyway): a length, float16, and a
direction, quantised by faiss's TurboQuant after a fixed rotation that spreads every direction evenly over the numbers.
Three quarters of the numbers have 4 bits, the others 3.

Nothing is trained: a vector's code hangs on its own passage alone. So any segment is packed by itself, passages move
between segments with their codes as they are, and an index that grows for years never has a codec that is out of date.

Source: TurboQuant, https://arxiv.org/abs/2504.19874; the length that keeps dot products unbiased is RaBitQ's,
https://arxiv.org/abs/2405.12497, section 3.2.
"""

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PACKING = "difference, 3.75 bits"
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
    codes = [
        torch.from_numpy(quantizer.sa_encode((directions[:, numbers] / size).contiguous().numpy()))
        for quantizer, numbers, _, size in _parts(dim)
    ]
    # So long that the dot product with the vector itself is right: quantised, a direction is a little off and short.
    alike = (directions * _decode(torch.cat(codes, dim=1), dim)).sum(dim=1, keepdim=True).clamp(min=0.5)
    return torch.cat([*codes, (norms / alike).half().view(torch.uint8)], dim=1)


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
    import torch

    whole = torch.zeros(len(turned), len(codes))
    for part, numbers, size in _decoded(codes, turned.shape[1]):
        whole.addmm_(turned[:, numbers] * size, part.T)
    return whole.mul_(_lengths(codes))


def _decode(codes: "torch.Tensor", dim: int) -> "torch.Tensor":
    """The rotated directions that codes stand for, float32 `(n_vectors, dim)`; about of unit length."""
    import torch

    return torch.cat([part * size for part, _, size in _decoded(codes, dim)], dim=1)


def _decoded(codes: "torch.Tensor", dim: int) -> "Iterator[tuple[torch.Tensor, slice, float]]":
    """Of each part of the directions: itself, its numbers, and what it is to be multiplied by."""
    import torch

    for quantizer, numbers, places, size in _parts(dim):
        yield torch.from_numpy(quantizer.sa_decode(codes[:, places].contiguous().numpy())), numbers, size


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
def _parts(dim: int) -> list[tuple[Any, slice, slice, float]]:
    """Of each part of a direction: its quantiser, its numbers, its bytes, and its length in a direction of one."""
    import faiss
    import numpy as np

    kinds, parts, number, place = faiss.ScalarQuantizer, [], 0, 0
    fine = dim - dim // 4
    for size, kind in ((fine, kinds.QT_4bit_tqmse), (dim - fine, kinds.QT_3bit_tqmse)):
        if not size:
            continue
        quantizer = faiss.IndexScalarQuantizer(size, kind, faiss.METRIC_INNER_PRODUCT)
        quantizer.train(np.zeros((1, size), dtype=np.float32))  # only sets the levels, which hang on `size` alone
        end = place + quantizer.sa_code_size()
        parts.append((quantizer, slice(number, number + size), slice(place, end), (size / dim) ** 0.5))
        number, place = number + size, end
    return parts
