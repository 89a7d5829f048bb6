"""Encoding passages on the machines of a Ray cluster. What is written is what one machine would write."""

import dataclasses
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raisf.retrieval.engines.checkpoints import findable_name
from raisf.retrieval.store.encoding import Checkpoint, Encoder
from raisf.utils.cluster import connect_ray
from raisf.utils.errors import InputError, RaisfError

if TYPE_CHECKING:
    import torch

AHEAD = 2
"""Windows of passages under way for each processor of the cluster: one that is encoded, and one that waits for it."""

RETRIES = 5
"""How often a window that was under way on a node that died is begun again on another."""


SEES_GPUS = {"env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}
"""Some versions of Ray hide a node's GPUs from tasks that ask for none; if they asked, nodes without would be idle."""


@dataclass(frozen=True)
class OverRay:
    """A checkpoint whose passages are encoded by a Ray cluster; queries are by this machine.

    Ray Data is not used: passages come as a stream in their order, must leave in it, and are held nowhere whole. A
    window of passages is one task of Ray's, which begins it again elsewhere when a node dies; vectors are taken in
    order, each once. A window's vectors follow from its texts, so that it makes no difference which node encodes it.

    Attributes:
        checkpoint: On this machine. Each node must have the same: minilm, or a folder of that path.
        address: The cluster's, as `ray.init` takes it: "auto", "HOST:6379", "ray://HOST:10001".
        find: The engine's, that finds the checkpoint on a node.
    """

    checkpoint: Checkpoint
    address: str
    find: Callable[[str], Checkpoint]

    @property
    def name(self) -> str:
        """As it was asked for."""
        return self.checkpoint.name

    @property
    def sha256(self) -> str:
        """Of its files."""
        return self.checkpoint.sha256

    @property
    def precision(self) -> str:
        """In which every node computes."""
        return self.checkpoint.precision

    def seen_queries(self) -> frozenset[str]:
        """A print of each query that it was trained on, as far as that is known."""
        return self.checkpoint.seen_queries()

    def computing_in(self, precision: str) -> "OverRay":
        """The same in another precision."""
        return dataclasses.replace(self, checkpoint=self.checkpoint.computing_in(precision))

    def encoder(self) -> "RayEncoder":
        """What it encodes with.

        Raises:
            InputError: Ray is not installed, or no cluster answers at the address.
        """
        return RayEncoder(self)


def spread(
    find: Callable[[str], Checkpoint] | None, checkpoint: Checkpoint | None, address: str | None
) -> Checkpoint | None:
    """The checkpoint at work on the Ray cluster of an address; itself where there is none.

    Raises:
        InputError: There is an address, but the engine encodes nothing.
    """
    if address is None:
        return checkpoint
    if find is None or checkpoint is None:
        raise InputError("this engine encodes nothing that a Ray cluster could help with: leave --ray out")
    return OverRay(checkpoint, address, find)


class RayEncoder:
    """Encodes streams of passages on a cluster; see `OverRay`."""

    def __init__(self, told: OverRay):
        self._told = told
        self._ray = connect_ray(told.address)

    def encode_queries(self, queries: Sequence[str]) -> "list[torch.Tensor]":
        """Vectors `(n_vectors, dim)` for each query, float32; on this machine."""
        return self._told.checkpoint.encoder().encode_queries(queries)

    def encode_passages(self, texts: Sequence[str]) -> "tuple[torch.Tensor, torch.Tensor]":
        """Vectors of all texts, float16 `(n_vectors, dim)`, and how many each has `(n_texts,)`."""
        return next(self.encode_stream([texts]))

    def encode_stream(self, windows: Iterable[Sequence[str]]) -> "Iterator[tuple[torch.Tensor, torch.Tensor]]":
        """The vectors of one window of texts after the other, as `encode_passages` gives them.

        Raises:
            RaisfError: A window could not be encoded: its nodes died too often, or a node has another checkpoint.
        """
        import torch

        ray, told, name = self._ray, self._told, findable_name(self._told)
        task = ray.remote(max_retries=RETRIES, runtime_env=SEES_GPUS)(_encode)
        windows, running = iter(windows), deque()
        while True:
            most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))  # nodes come and go
            for texts in itertools.islice(windows, max(0, most - len(running))):
                running.append(task.remote(told.find, name, told.sha256, told.precision, list(texts)))
            if not running:
                return
            try:
                vectors, lengths = ray.get(running.popleft())
            except ray.exceptions.RayError as error:
                for left in running:
                    ray.cancel(left)
                cause = getattr(error, "cause", None)
                raise RaisfError(
                    f"the Ray cluster {told.address} could not encode passages "
                    f"({str(cause or error).splitlines()[0]}); look at its nodes, then run the same command again"
                ) from error
            yield torch.from_numpy(vectors.copy()), torch.from_numpy(lengths.copy())


def _encode(
    find: Callable[[str], Checkpoint], name: str, sha256: str, precision: str, texts: list[str]
) -> tuple[Any, Any]:
    """The vectors of some texts, on a node."""
    vectors, lengths = _encoder(find, name, sha256, precision).encode_passages(texts)
    return vectors.numpy(), lengths.numpy()


@functools.lru_cache(maxsize=2)
def _encoder(find: Callable[[str], Checkpoint], name: str, sha256: str, precision: str) -> Encoder:
    found = find(name)
    if found.sha256 != sha256:
        raise InputError(f"the checkpoint {name} is another on this node: copy the same folder to every node")
    return found.computing_in(precision).encoder()
