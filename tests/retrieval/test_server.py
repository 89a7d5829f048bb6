"""Whoever shares an index over HTTP gets the same passages as its owner, from DSPy's client too, and clear errors."""

import dataclasses
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dspy
import pytest

from data.errors import InputError, RaisfError
from retrieval import server as server_module
from retrieval.base import Index
from retrieval.index import add_to_index, build_index, open_folder, open_index
from retrieval.passage import Passage, Retriever
from retrieval.remote import RemoteIndex
from retrieval.server import Batcher, IndexServer


@pytest.fixture(scope="module")
def index(passages: list[Passage], tmp_path_factory: pytest.TempPathFactory) -> Index:
    with_pages = [Passage(p.pid, p.text, p.title, source="a.pdf", metadata={"page": 1}) for p in passages[:6]]
    return build_index([*with_pages, *passages[6:]], tmp_path_factory.mktemp("served") / "i", "bm25")


def serving(server: IndexServer) -> Iterator[IndexServer]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def server(index: Index) -> Iterator[IndexServer]:
    yield from serving(IndexServer(index))


def post(server: IndexServer, body: bytes) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url, body), timeout=20) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.parametrize("posting", [False, True])
def test_dspys_own_client_finds_what_the_index_finds(posting: bool, server: IndexServer, index: Index):
    with dspy.context(disk_cache_dir=None):
        client = dspy.ColBERTv2(url=server.url, post_requests=posting)
        found = client("Who wrote Hamlet, the tragedy?", k=3)
        texts = client("Who wrote Hamlet, the tragedy?", k=3, simplify=True)
    wanted = index("Who wrote Hamlet, the tragedy?", 3)
    assert [row["pid"] for row in found] == [p.pid for p in wanted]
    assert texts == [p.prompt_text for p in wanted] == [row["text"] for row in found]
    assert [row["rank"] for row in found] == list(range(1, len(wanted) + 1))
    assert sum(row["prob"] for row in found) == pytest.approx(1)


def test_dspys_client_is_told_what_is_wrong(server: IndexServer):
    with pytest.raises(Exception, match="k is 0; search for at least 1 passage"):
        dspy.ColBERTv2(url=server.url)("Hamlet", k=0)


def test_what_is_searched_otherwise_is_another_index_at_a_url_and_behind_a_filter(
    server: IndexServer, index: Index, monkeypatch: pytest.MonkeyPatch
):
    remote, view = open_index(server.url), index.where("page = 1")
    compressed = [dataclasses.replace(segment, search="plaid") for segment in index.manifest.segments]
    monkeypatch.setattr(index, "manifest", dataclasses.replace(index.manifest, segments=compressed))
    assert open_index(server.url).corpus_hash != remote.corpus_hash
    assert index.where("page = 1").corpus_hash != view.corpus_hash


def test_a_url_is_an_index_like_a_folder(server: IndexServer, index: Index):
    remote = open_index(server.url)
    assert isinstance(remote, RemoteIndex) and isinstance(remote, Retriever)
    assert remote.info["corpus_sha256"] == index.corpus_hash
    queries = ["Hamlet tragedy", "sea", "zebra", ""]
    assert remote.search_many(queries, 4) == index.search_many(queries, 4)
    assert remote("sea", 5, where="page = 1") == index("sea", 5, where="page = 1") != []
    assert remote.where("page = 1")("sea", 5) == index.where("page = 1")("sea", 5)
    assert remote.search_many([], 4) == []
    with pytest.raises(InputError, match="no passage has a field 'pgae'"):
        remote.where("pgae = 1")
    with pytest.raises(InputError, match="k is 0"):
        remote("sea", 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[1]", "a request is an object"),
        (b"{}", "a request has a 'query'"),
        (b'{"query": 3}', "a request has a 'query'"),
        (b'{"queries": ["a", null]}', "a list of texts"),
        (b'{"query": "a", "k": "many"}', "k is 'many'"),
        (b'{"query": "a", "where": ["x"]}', "'where' is a text"),
        (b'{"query": "a", "where": "page ="}', "cannot read the filter"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong(body: bytes, message: str, server: IndexServer):
    status, answer = post(server, body)
    assert status == 400 and answer["error"] is True and message in answer["message"]


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [("127.0.0.1", None, "in use"), ("127.0.0.1", 99999, "0-65535"), ("300.1.1.1", 0, ""), ("a..b", 0, "")],
)
def test_where_it_cannot_listen_is_told_with_host_and_port(
    host: str, port: int | None, reason: str, server: IndexServer, index: Index
):
    port = server.server_port if port is None else port
    with pytest.raises(InputError, match=f"cannot listen at {host}, port {port} .*{reason}.*give a free --port"):
        IndexServer(index, host, port)


def test_long_and_odd_queries_go_over_the_wire(server: IndexServer, index: Index):
    remote = RemoteIndex(server.url)
    for query in ("Hamlet " * 10_000, "\U0001f600\u0000\u202e Hamlet", "שלום Hamlet"):
        assert remote(query, 2) == index(query, 2)


def test_queries_that_arrive_together_are_searched_together(index: Index, monkeypatch: pytest.MonkeyPatch):
    sizes, search_many = [], Index.search_many

    def slow(self: Index, queries: list[str], k: int, where: str | None = None):
        sizes.append(len(queries))
        time.sleep(0.2)
        return search_many(self, queries, k, where)

    monkeypatch.setattr(Index, "search_many", slow)
    batcher = Batcher(index)
    asked = [(f"Hamlet sea chess {n}", 1 + n % 3, "page = 1" if n % 2 else None) for n in range(16)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda job: batcher.search([job[0]], job[1], job[2])[0], asked))
    batcher.close()
    monkeypatch.undo()
    assert found == [index(query, k, where) for query, k, where in asked]
    assert len(sizes) < 16 and sum(sizes) == 16 == batcher.queries


def test_an_error_in_one_batch_harms_no_other(index: Index):
    batcher = Batcher(index)
    with pytest.raises(InputError):
        batcher.search(["a"], 1, "nonsense")
    assert batcher.search(["Hamlet"], 1, None)[0][0].title == "Hamlet"
    batcher.close()


def test_the_server_takes_up_a_changed_index(
    passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(server_module, "REFRESH", 0.05)
    build_index(passages, tmp_path / "i", "bm25")
    path = tmp_path / "i"
    for server in serving(IndexServer(open_folder(path), reopen=lambda: open_folder(path))):
        remote = RemoteIndex(server.url)
        assert remote("harpsichord", 1) == []
        add_to_index(path, [Passage("new", "A harpsichord.")])
        deadline = time.monotonic() + 20
        while not remote("harpsichord", 1) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert remote("harpsichord", 1)[0].pid == "new"
        manifest = (path / "manifest.json").read_bytes()
        (path / "manifest.json").unlink()
        (path / "manifest.json").write_text("{")
        while "serving the old state" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.05)
        assert remote("harpsichord", 1)[0].pid == "new"
        (path / "manifest.json").write_bytes(manifest)


def test_sixteen_clients_search_on_while_the_index_is_replaced(
    passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "REFRESH", 0.01)
    path, stop = tmp_path / "i", threading.Event()

    def build(made: int) -> None:
        build_index([Passage(p.pid, p.text, p.title, metadata={"made": made}) for p in passages], path, "bm25")

    build(0)
    for server in serving(IndexServer(open_folder(path), reopen=lambda: open_folder(path))):

        def search(client: int, url: str = server.url) -> list[tuple[str, int]]:
            remote, found = RemoteIndex(url), []
            while not stop.is_set() and len(found) < 1_000:
                (best,) = remote("Who wrote Hamlet?", 1) if client % 2 else remote("Hamlet", 1, where="id = 'p4'")
                found.append((best.title, int(best.metadata["made"])))
            return found

        with ThreadPoolExecutor(16) as pool:
            searches = [pool.submit(search, client) for client in range(16)]
            try:
                for made in range(1, 4):
                    build_index(
                        [Passage(p.pid, p.text, p.title, metadata={"made": made}) for p in passages], path, "bm25"
                    )
                    time.sleep(0.1)
            finally:
                stop.set()
            answers = [answer for each in searches for answer in each.result()]
        assert {title for title, _ in answers} == {"Hamlet"} and {made for _, made in answers} <= set(range(4))
        assert len({made for _, made in answers}) > 1


def test_closing_answers_what_is_under_way(index: Index, monkeypatch: pytest.MonkeyPatch):
    begun, search_many = threading.Event(), Index.search_many

    def slow(self: Index, *args):
        begun.set()
        time.sleep(0.3)
        return search_many(self, *args)

    running = serving(IndexServer(index))
    server = next(running)
    remote = RemoteIndex(server.url)
    monkeypatch.setattr(Index, "search_many", slow)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(remote, "Hamlet", 1)
        begun.wait(20)
        next(running, None)  # shuts the server down
        assert answer.result()[0].title == "Hamlet"
    with pytest.raises(RaisfError, match="does not answer"):
        remote("Hamlet", 1)
    with pytest.raises(InputError, match="start one with: raisf serve-index"):
        open_index(server.url)
