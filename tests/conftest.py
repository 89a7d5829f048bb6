"""What all tests share: no network but loopback (pytest-socket, in pyproject.toml), no hub, no GPU, one thread."""

import importlib.util
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# No test is timed: a machine may be busy.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
# Set before any test imports torch or transformers: both read these once, at import.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # they compare with tensors on the CPU, in float32
_CACHE = tempfile.TemporaryDirectory(prefix="raisf-tests-")  # no answers of earlier runs; gone with the process
os.environ["DSPY_CACHEDIR"] = _CACHE.name
os.environ.pop("RAISF_LM", None)  # a developer's own default LM
# A shell's background job ignores Ctrl-C, and so would the processes that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def makers() -> Any:
    """tests/lm/conftest.py, whose `make_llama` and `make_t5` make small models, for the tests of other packages."""
    return _module("lm_conftest", Path(__file__).parent / "lm" / "conftest.py")


@pytest.fixture(scope="session")
def faulty() -> Any:
    """tests/faulty_endpoint.py, whose `serve` is an endpoint on loopback that does wrong as often as it is told."""
    return _module("faulty_endpoint", Path(__file__).parent / "faulty_endpoint.py")


@pytest.fixture(scope="session")
def llamas() -> Any:
    """tests/llama_endpoint.py, whose `serve` is a real OpenAI-compatible server on loopback."""
    return _module("llama_endpoint", Path(__file__).parent / "llama_endpoint.py")


@pytest.fixture(scope="session")
def rays() -> Any:
    """tests/ray_cluster.py, whose `started` adds a node to a Ray cluster on this machine."""
    return _module("ray_cluster", Path(__file__).parent / "ray_cluster.py")


@pytest.fixture
def own_cache() -> Iterator[None]:
    """A test meets an empty DSPy cache, and leaves nothing on the disk."""
    import dspy  # not before the cache's place is settled

    before = dspy.cache
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    yield
    dspy.cache = before
