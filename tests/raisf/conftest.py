"""What the tests of the application share: a small world with its index, as the commands make them."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raisf import cli


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder with a world of so many questions a split, and its BM25 index."""

    def make(train: int, dev: int, test: int) -> Path:
        folder = tmp_path_factory.mktemp("home")
        world = folder / "world"
        counts = ["--train", str(train), "--dev", str(dev), "--test", str(test)]
        assert cli.main(["world", *counts, "--out", str(world)]) == 0
        index = ["index", str(world / "corpus.jsonl"), "--engine", "bm25", "--out", str(folder / "index")]
        assert cli.main(index) == 0
        return folder

    return make


@pytest.fixture(scope="session")
def records() -> Any:
    """tests/raisf/records.py, which makes records by hand."""
    spec = importlib.util.spec_from_file_location("records", Path(__file__).parent / "records.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
