"""What the tests of the application share: a small world with its index, as the commands make them."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raisf import cli
from raisf.experiments.opening import LMChoice

PASSAGES = [("Ada", "Ada was born in Ulm."), ("Bo", "Bo was born in Bonn."), ("Cy", "Where was Ada born? In Ulm.")]


@pytest.fixture(scope="session")
def make_home(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a folder with a world of so many questions a split, and its BM25 index."""

    def make(train: int, dev: int, test: int, entities: int = 400) -> Path:
        folder = tmp_path_factory.mktemp("home")
        world = folder / "world"
        counts = ["--train", str(train), "--dev", str(dev), "--test", str(test), "--entities", str(entities)]
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


@pytest.fixture
def data(tmp_path: Path) -> Callable[..., Path]:
    """Makes a data set's folder out of rows, as `raisf dataset` would."""

    def make(name: str, corpus: bool = True, **splits: list[dict[str, Any]]) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "dataset.json").write_text(json.dumps({"dataset": name}))
        for split, rows in splits.items():
            lines = [json.dumps({"id": f"{split}-{number}", **row}) for number, row in enumerate(rows)]
            (folder / f"{split}.jsonl").write_text("\n".join(lines))
        if corpus:
            lines = [json.dumps({"id": title, "title": title, "text": text}) for title, text in PASSAGES]
            (folder / "corpus.jsonl").write_text("\n".join(lines))
        return folder

    return make


@pytest.fixture
def endpoint(faulty: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LMChoice]:
    """An LM at an endpoint on loopback, which gives no token probabilities."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with faulty.serve() as served:
        yield LMChoice("openai/x", api_base=served.url)


def run_json(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    """What a command that succeeds prints with `--json`."""
    capsys.readouterr()
    assert cli.main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)
