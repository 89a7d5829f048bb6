"""An index that a Ray cluster helps to make is the one that this machine would make alone, also when a node dies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_socket import socket_allow_hosts

from raisf.retrieval import spread
from raisf.retrieval.engines.colbert import ColBERT
from raisf.retrieval.index import build_index, check_index, open_folder
from raisf.retrieval.passage import Passage
from raisf.retrieval.store import encoding
from raisf.retrieval.store.manifest import read_manifest
from raisf.utils.errors import InputError, RaisfError

PASSAGES = [Passage(str(n), f"The duke of {chr(65 + n % 26)}ville had {n % 97} horses.") for n in range(400)]


@pytest.fixture
def cluster(rays: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head and a second node, each a process tree of its own."""
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # 15 otherwise: beside other work a task would hardly run
    cluster = cluster_utils.Cluster()
    try:
        head = rays.started(cluster, include_dashboard=False)
        # Ray takes an address of this machine's that is not loopback.
        socket_allow_hosts(["127.0.0.1", "::1", head.node_ip_address])
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()


def files_of(index: Path) -> dict[str, str]:
    return {name: file.sha256 for name, file in read_manifest(index).files.items()}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nodes_encode_the_same_index_though_one_dies(
    cluster: Any, rays: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(encoding, "_WINDOW", 16)
    alone = ColBERT.build(PASSAGES[:320], tmp_path / "alone", progress=False)
    second = rays.started(cluster)
    given = []
    stream = spread.RayEncoder.encode_stream

    def dying(self: spread.RayEncoder, windows: Any) -> Iterator[Any]:
        for part in stream(self, windows):
            given.append(len(part[1]))
            if len(given) == 4:
                cluster.remove_node(second, allow_graceful=False)
            yield part

    monkeypatch.setattr(spread.RayEncoder, "encode_stream", dying)
    build_index(PASSAGES[:320], tmp_path / "spread", progress=False, ray=cluster.address)
    assert given == [16] * 20  # each window once
    assert files_of(tmp_path / "spread") == files_of(tmp_path / "alone") and check_index(tmp_path / "spread") == []
    assert open_folder(tmp_path / "spread").corpus_hash == alone.corpus_hash


class Local:
    """Ray's part, in this process: tasks end in the reverse of their order, and some fail."""

    class exceptions:
        class RayError(Exception): ...

    def __init__(self, broken: int | None = None):
        self.most = self.begun = 0
        self.broken = broken

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0}

    def remote(self, **options: Any) -> Any:
        assert options == {"max_retries": spread.RETRIES, "runtime_env": spread.SEES_GPUS}
        ray = self

        def decorate(function: Any) -> Any:
            class Task:
                @staticmethod
                def remote(*args: Any) -> Any:
                    ray.begun += 1
                    return ray.begun, function, args

            return Task

        return decorate

    def get(self, task: Any) -> Any:
        number, function, args = task
        self.most = max(self.most, self.begun - number + 1)
        if number == self.broken:
            raise self.exceptions.RayError("the node died")
        return function(*args)

    def cancel(self, task: Any) -> None: ...


def test_windows_come_in_their_order_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ray = Local()
    monkeypatch.setattr(spread, "connect_ray", lambda address: ray)
    monkeypatch.setattr(encoding, "_WINDOW", 16)
    build_index(PASSAGES[:200], tmp_path / "alone", progress=False)
    build_index(PASSAGES[:200], tmp_path / "spread", progress=False, ray="auto")
    assert files_of(tmp_path / "spread") == files_of(tmp_path / "alone")
    assert (ray.begun, ray.most) == (13, 4)


def test_a_cluster_that_fails_leaves_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spread, "connect_ray", lambda address: Local(broken=2))
    monkeypatch.setattr(encoding, "_WINDOW", 16)
    with pytest.raises(RaisfError, match=r"Ray cluster auto could not encode passages \(the node died\)"):
        build_index(PASSAGES[:100], tmp_path / "i", progress=False, ray="auto")
    assert not list(tmp_path.iterdir())


def test_a_node_with_another_checkpoint_is_refused(monkeypatch: pytest.MonkeyPatch):
    assert ColBERT.find is not None
    with pytest.raises(InputError, match="another on this node"):
        spread._encode(ColBERT.find, "minilm", "0" * 64, "float32", ["text"])


def test_ray_is_refused_where_nothing_is_encoded(tmp_path: Path):
    with pytest.raises(InputError, match="leave --ray out"):
        build_index(PASSAGES[:3], tmp_path / "i", "bm25", ray="auto")
