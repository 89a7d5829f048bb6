"""A small corpus of real English, and the checkpoint that every test shares."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from raisf.retrieval.corpus.reading import read_documents
from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import EngineName, build_index, open_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving.server import IndexServer
from raisf.utils.errors import InputError

TEXTS = {
    "Mount Everest": "Mount Everest is the highest mountain above sea level. It lies between Nepal and Tibet.",
    "Danube": "The Danube is a river in Europe. It rises in the Black Forest and flows into the Black Sea.",
    "Marie Curie": "Marie Curie was a physicist and chemist born in Warsaw. She discovered polonium and radium.",
    "Penicillin": "Penicillin is a medicine against bacteria. Alexander Fleming discovered it in London in 1928.",
    "Hamlet": "Hamlet is a tragedy written by William Shakespeare. Its hero is the Prince of Denmark.",
    "Great Wall": "The Great Wall of China was built to keep northern nomads out of the empire.",
    "Photosynthesis": "Plants turn sunlight, water and carbon dioxide into sugar and oxygen.",
    "Octopus": "An octopus has eight arms, three hearts and blue blood. It lives in the sea.",
    "Chess": "Chess is a board game for two players. The game ends when a king is checkmated.",
    "Moon": "The Moon is the only natural satellite of the Earth. Neil Armstrong walked on it in 1969.",
    "Sourdough": "Sourdough bread is leavened by wild yeast and bacteria, which give it a sour taste.",
    "Fado": "Fado is a kind of sad song from Lisbon, often about the sea or the life of the poor.",
}


@pytest.fixture(scope="session")
def passages() -> list[Passage]:
    return [Passage(f"p{number}", text, title) for number, (title, text) in enumerate(TEXTS.items())]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint is made once for all workers, and not in the home folder."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    os.environ["RAISF_CACHE"] = str(root / "raisf-cache")
    return root / "raisf-cache"


@pytest.fixture(scope="module")
def index(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Index:
    with_pages = [Passage(p.pid, p.text, p.title, source="a.pdf", metadata={"page": 1}) for p in passages[:6]]
    return build_index([*with_pages, *passages[6:]], tmp_path_factory.mktemp("served") / "i", "bm25")


@pytest.fixture(scope="session")
def serving() -> Callable[..., AbstractContextManager[IndexServer]]:
    """Serves an index until a block ends."""

    @contextlib.contextmanager
    def serve(index: Index, reopen: Callable[[], Index] | None = None) -> Iterator[IndexServer]:
        with IndexServer(index, reopen=reopen) as server:
            thread = threading.Thread(target=server.serve, daemon=True)
            thread.start()
            try:
                yield server
            finally:
                server.stop()
                thread.join()

    return serve


@pytest.fixture(scope="module")
def server(index: Index, serving: Callable[..., AbstractContextManager[IndexServer]]) -> Iterator[IndexServer]:
    with serving(index) as running:
        yield running


@pytest.fixture(scope="session")
def wait_for() -> Callable[[Callable[[], object]], None]:
    """Waits until something holds."""

    def wait(met: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not met():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    return wait


ENGINES: list[EngineName] = ["colbert", "bm25", "dense", "hybrid"]
NEW = Passage("new", "The harpsichord is an instrument whose strings are plucked.", "Harpsichord")


@pytest.fixture(scope="session")
def made(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An index of each kind, which nobody may change."""
    root = tmp_path_factory.mktemp("made")
    for engine in ENGINES:
        build_index(passages, root / engine, engine, progress=False)
    return {engine: root / engine for engine in ENGINES}


def copy(made: dict[str, Path], engine: str, tmp_path: Path) -> Path:
    """An index to be changed."""
    return Path(shutil.copytree(made[engine], tmp_path / "index"))


def reading_error_of(path: Path, encoding: str | None = None) -> str:
    """Why documents cannot be read."""
    with pytest.raises(InputError) as caught:
        list(read_documents(path, encoding))
    return str(caught.value)


def error_of(path: Path) -> str:
    """Why an index cannot be opened."""
    with pytest.raises(InputError) as caught:
        open_index(path)
    return str(caught.value)
