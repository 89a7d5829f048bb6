"""Whoever opens an index by its URL gets what its owner gets, all from one corpus, and clear errors."""

import contextlib
import dataclasses
import http.client
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import add_to_index, build_index, open_folder, open_index
from raisf.retrieval.passage import Passage, Retriever
from raisf.retrieval.serving import remote as remote_module
from raisf.retrieval.serving import watcher
from raisf.retrieval.serving.remote import RemoteIndex
from raisf.retrieval.serving.server import IndexServer
from raisf.utils.errors import InputError, RaisfError

Serving = Callable[..., AbstractContextManager[IndexServer]]
WaitFor = Callable[[Callable[[], object]], None]


def test_what_is_searched_otherwise_is_another_index_at_a_url_and_behind_a_filter(
    server: IndexServer, index: Index, monkeypatch: pytest.MonkeyPatch
):
    remote, view = open_index(server.url), index.where("page = 1")
    compressed = [dataclasses.replace(segment, search="plaid") for segment in index.manifest.segments]
    others: list[dict[str, Any]] = [{"segments": compressed}, {"checkpoint_sha256": "another encoder's"}]
    for other in others:
        with monkeypatch.context() as patched:
            patched.setattr(index, "manifest", dataclasses.replace(index.manifest, **other))
            assert open_index(server.url).corpus_hash != remote.corpus_hash
            assert index.where("page = 1").corpus_hash != view.corpus_hash


def test_a_url_is_an_index_like_a_folder(server: IndexServer, index: Index):
    remote = open_index(server.url)
    assert isinstance(remote, RemoteIndex) and isinstance(remote, Retriever)
    assert remote.served["corpus_sha256"] == index.corpus_hash
    queries = ["Hamlet tragedy", "sea", "zebra", ""]
    assert remote.search_many(queries, 4) == index.search_many(queries, 4)
    assert remote("sea", 5, where="page = 1") == index("sea", 5, where="page = 1") != []
    assert remote.where("page = 1")("sea", 5) == index.where("page = 1")("sea", 5)
    assert remote.search_many([], 4) == []
    with pytest.raises(InputError, match="no passage has a field 'pgae'"):
        remote.where("pgae = 1")
    with pytest.raises(InputError, match="k is 0"):
        remote("sea", 0)


def test_what_satisfies_a_filter_is_listed_at_a_url_as_of_a_folder_and_not_without_limit(
    server: IndexServer, index: Index, monkeypatch: pytest.MonkeyPatch
):
    remote = RemoteIndex(server.url)
    assert remote.passages_where("page = 1") == index.passages_where("page = 1") == index.passages[:6]
    for whole in (remote, index):
        part = whole.where("page = 1 or title = 'Fado'")
        assert [passage.title for passage in part.passages_where("title in ('Fado', 'Chess')")] == ["Fado"]
    monkeypatch.setattr("raisf.retrieval.serving.server.MOST_LISTED", 5)
    with pytest.raises(InputError, match="6 passages satisfy 'page = 1'; an index that is served lists 5"):
        remote.passages_where("page = 1")


def test_long_and_odd_queries_go_over_the_wire(server: IndexServer, index: Index):
    remote = RemoteIndex(server.url)
    for query in ("Hamlet " * 10_000, "\U0001f600\u0000\u202e Hamlet", "שלום Hamlet", "\ud800 Hamlet"):
        assert remote(query, 2) == index(query, 2)
    two: Any = np.int64(2)
    assert remote("Hamlet sea", two) == index("Hamlet sea", two)


def test_many_queries_go_in_requests_that_the_server_takes(server: IndexServer, index: Index):
    queries = [f"Hamlet sea chess {number}" for number in range(300)]
    assert RemoteIndex(server.url).search_many(queries, 2) == index.search_many(queries, 2)


def test_a_changed_index_is_taken_up_and_nobody_gets_answers_from_both(
    passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Serving, wait_for: WaitFor
):
    monkeypatch.setattr(watcher, "REFRESH", 0.05)
    path = tmp_path / "i"
    build_index(passages, path, "bm25")
    with serving(open_folder(path), lambda: open_folder(path)) as server:
        remote = RemoteIndex(server.url)
        view = remote.where("title = 'Fado'")
        assert remote("harpsichord", 1) == []
        add_to_index(path, [Passage("new", "A harpsichord.")])
        wait_for(lambda: server.info()["passages"] == len(passages) + 1)
        for retriever in (remote, view):
            with pytest.raises(RaisfError, match="has changed since it was opened: open it again"):
                retriever("harpsichord", 1)
        assert RemoteIndex(server.url)("harpsichord", 1)[0].pid == "new"


def test_sixteen_clients_search_on_while_the_index_is_replaced(
    passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Serving
):
    monkeypatch.setattr(watcher, "REFRESH", 0.01)
    path, stop = tmp_path / "i", threading.Event()

    def build(made: int) -> None:
        build_index([Passage(p.pid, p.text, p.title, metadata={"made": made}) for p in passages], path, "bm25")

    build(0)
    with serving(open_folder(path), lambda: open_folder(path)) as server:

        def search(client: int, url: str = server.url) -> list[tuple[str, int]]:
            remote, found = RemoteIndex(url), []
            while not stop.is_set() and len(found) < 1_000:
                try:
                    (best,) = remote("Who wrote Hamlet?", 1) if client % 2 else remote("Hamlet", 1, where="id = 'p4'")
                except RaisfError as error:
                    assert "has changed since it was opened" in str(error)
                    remote = RemoteIndex(url)
                    continue
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


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.0 500 Oh\r\nContent-Length: 100\r\n\r\n{",
        b'HTTP/1.0 200 OK\r\nContent-Length: 11\r\n\r\n{"topk": 1}',
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 50_000,
        b"HTTP/1.0 400 Oh\r\n\r\n" + b"[" * 50_000,
        b"",
    ],
)
def test_another_service_and_a_broken_answer_are_told(answer: bytes, server: IndexServer):
    remote = RemoteIndex(server.url)
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        other.settimeout(10)

        def serve() -> None:
            for _ in range(2):
                connection, _address = other.accept()
                connection.recv(1 << 16)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)

        served = pool.submit(serve)
        remote.url = f"http://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(RaisfError, match="answer"):
            remote("Hamlet", 1)
        with pytest.raises(InputError, match="no index server answers"):
            RemoteIndex(remote.url)
        served.result()


@pytest.mark.parametrize("status", [b"200 OK", b"400 Oh"])
def test_an_answer_that_has_no_end_is_not_kept(status: bytes, server: IndexServer, monkeypatch: pytest.MonkeyPatch):
    """Whoever is at the address could fill the memory of a client, also with what refuses its request."""
    monkeypatch.setattr(remote_module, "LARGEST_ANSWER", 1 << 22)
    remote, sent = RemoteIndex(server.url), 0
    with socket.create_server(("127.0.0.1", 0)) as other, ThreadPoolExecutor(1) as pool:
        other.settimeout(10)

        def serve() -> None:
            nonlocal sent
            connection, _address = other.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.settimeout(20)
                connection.sendall(b"HTTP/1.0 " + status + b"\r\n\r\n")
                while sent < 1 << 27:
                    connection.sendall(b" " * (1 << 20))
                    sent += 1 << 20

        served = pool.submit(serve)
        remote.url = f"http://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(RaisfError, match="answer"):
            remote("Hamlet", 1)
        served.result()
    assert sent < 1 << 26


@pytest.mark.parametrize("url", ["http://127.0.0.1:many", "http://127.0.0.1:99999", "127.0.0.1:80", "http://a b"])
def test_an_address_that_is_none_is_told(url: str):
    with pytest.raises(InputError, match="no index server answers"):
        RemoteIndex(url)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"score": "abc"}, {"score": float("nan")}, {"pid": 5}, {"passage": None}, {"title": ["x"]}, {"source": 1}),
        *({"metadata": [1]}, {"metadata": "x"}),
    ],
)
def test_a_reply_that_is_none_of_an_index_is_told(wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch, server: Any):
    """Whoever is at the address may send anything: there were tracebacks, and NaN in JSON."""
    remote, ask = RemoteIndex(server.url), remote_module._ask

    def changed(url: str, body: Any = None) -> Any:
        answer = ask(url, body)
        return {**answer, "topk": [[{**row, **wrong} for row in rows] for rows in answer["topk"]]}

    monkeypatch.setattr(remote_module, "_ask", changed)
    with pytest.raises(RaisfError, match="does not answer as an index server"):
        remote("Hamlet", 2)


def test_lists_that_are_missing_are_told_and_those_too_long_are_cut(monkeypatch: pytest.MonkeyPatch, server: Any):
    remote, ask = RemoteIndex(server.url), remote_module._ask
    monkeypatch.setattr(remote_module, "_ask", lambda *given: {**ask(*given), "topk": []})
    with pytest.raises(RaisfError, match="0 lists of passages for 1 queries"):
        remote("Hamlet", 2)
    many = lambda *given: (answer := ask(*given)) and {**answer, "topk": [rows * 9 for rows in answer["topk"]]}  # noqa: E731
    monkeypatch.setattr(remote_module, "_ask", many)
    assert len(remote("Hamlet", 2)) == 2


def test_a_website_cannot_read_what_is_served_on_this_machine(server: IndexServer):
    """Its own name may lead to 127.0.0.1."""
    for host, status in (("evil.example", 400), ("localhost", 200)):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("GET", "/?query=Hamlet&k=1", headers={"Host": host})
        assert connection.getresponse().status == status
        connection.close()
