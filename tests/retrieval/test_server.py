"""Whoever shares an index over HTTP keeps answering: DSPy's client, slow and greedy ones, and while it changes."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import dspy
import pytest
from starlette.responses import PlainTextResponse

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import add_to_index, build_index, open_folder, open_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving import connections, listening, watcher
from raisf.retrieval.serving.connections import SETTLE
from raisf.retrieval.serving.listening import HttpServer
from raisf.retrieval.serving.remote import RemoteIndex
from raisf.retrieval.serving.server import IndexServer
from raisf.utils.errors import InputError, RaisfError

Serving = Callable[..., AbstractContextManager[IndexServer]]
WaitFor = Callable[[Callable[[], object]], None]


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


def test_a_page_of_another_site_cannot_make_this_machine_search(server: IndexServer):
    here = server.url.removeprefix("http://")
    for header, value, status in (
        ("Origin", "http://evil.example", 403),
        ("Origin", "null", 403),
        ("Sec-Fetch-Site", "cross-site", 403),
        ("Origin", f"http://{here}", 200),
    ):
        asked = urllib.request.Request(
            server.url, b'{"query": "Hamlet"}', {header: value, "Content-Type": "text/plain"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=20) as response:
                assert response.status == status
        except urllib.error.HTTPError as error:
            assert error.code == status
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/info", headers={"Origin": "null"}), timeout=20):
        pass  # what only reads may be linked to


@pytest.mark.parametrize("k", [2.9, True, "2.9", None, [3]])
def test_a_count_that_is_no_whole_number_is_refused(k: object, server: IndexServer):
    status, told = post(server, json.dumps({"query": "Hamlet", "k": k}).encode())
    assert status == 400 and "give a whole number" in told["message"]


def test_dspys_client_is_told_what_is_wrong(server: IndexServer):
    with pytest.raises(Exception, match="k is 0; search for at least 1 passage"):
        dspy.ColBERTv2(url=server.url)("Hamlet", k=0)


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
        (b'{"query": "a", "where": ""}', "cannot read the filter"),
        (b'{"query": "a", "where": false}', "'where' is a text"),
        (b'{"query": "a", "k": Infinity}', "k is inf"),
        (b'{"query": "a", "k": 1001}', "at most 1000 passages"),
        (b'{"query": "a", "k": 1000000000000}', "at most 1000 passages"),
        (json.dumps({"queries": ["a"] * 129}).encode(), "129 queries; send at most 128"),
        (json.dumps({"query": "a", "where": "page = " + "1" * 10_000}).encode(), "'where' has 10007 characters"),
        (b'{"query": "Hamlet \\ud800"}', "character 8 of 'Hamlet \\ud800' is not valid Unicode"),
        (b'{"query": "a", "where": "title = \'\\udfff\'"}', "is not valid Unicode"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong(body: bytes, message: str, server: IndexServer):
    status, answer = post(server, body)
    assert status == 400 and answer["error"] is True and message in answer["message"]


def test_what_an_address_says_must_be_unicode_too(server: IndexServer):
    with pytest.raises(urllib.error.HTTPError, match=r"400: character 1 of .* is not valid Unicode"):
        urllib.request.urlopen(f"{server.url}/?query=%ff", timeout=20)


def test_the_limits_themselves_are_answered(server: IndexServer):
    where = f"id = 'p4'{' ' * 9_991}"
    status, answer = post(server, json.dumps({"queries": ["Hamlet"] * 128, "k": 1000, "where": where}).encode())
    assert status == 200 and [row[0]["pid"] for row in answer["topk"]] == ["p4"] * 128


@pytest.mark.parametrize("size", [(2 << 20) + 1, 20 << 20])
def test_a_client_whose_request_is_too_large_gets_to_read_so(size: int, server: IndexServer):
    status, answer = post(server, b'{"query": "' + b"a" * size + b'"}')
    assert status == 413 and "at most 2097152 bytes" in answer["message"]


@pytest.mark.parametrize("length", ["", "many", "-1", "9" * 5_000, "\u00b2"])
def test_a_length_that_is_none_is_answered(length: str, server: IndexServer):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(f"POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n".encode("latin-1"))
        assert b" 400 " in connection.recv(1 << 16)


def test_a_client_that_leaves_while_it_sends_is_no_failed_search(
    index: Index, serving: Serving, wait_for: WaitFor, caplog: pytest.LogCaptureFixture
):
    with serving(index) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(b'POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{"query": ')
            wait_for(lambda: server._server.server_state.connections)
        wait_for(lambda: not server._server.server_state.connections)
    assert not caplog.records


def test_a_client_that_drips_is_cut_off(index: Index, monkeypatch: pytest.MonkeyPatch, serving: Serving):
    monkeypatch.setattr(connections, "SLOWEST", 0.3)
    with serving(index) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.settimeout(0.05)
            connection.sendall(b"POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
            start = time.monotonic()
            for _ in range(100):
                try:
                    connection.sendall(b" ")
                    assert connection.recv(1 << 16) == b""
                    break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            assert time.monotonic() - start < 3
        assert RemoteIndex(server.url)("Hamlet", 1)[0].title == "Hamlet"


def test_a_connection_is_for_one_request_whatever_is_served(server: IndexServer):
    """On one that was kept, the next was cut off half a minute after an answer: a large report, in the viewer."""
    with HttpServer(PlainTextResponse("anything")) as plain:
        thread = threading.Thread(target=plain.serve, daemon=True)
        thread.start()
        for running in (plain, server):
            connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=20)
            connection.request("GET", "/info")
            assert connection.getresponse().headers.get_all("Connection") == ["close"]
            connection.close()
        plain.stop()
        thread.join()


@pytest.mark.parametrize(
    ("host", "port", "reason"),
    [("127.0.0.1", None, "in use"), ("127.0.0.1", 99999, "0-65535"), ("300.1.1.1", 0, ""), ("a..b", 0, "")],
)
def test_where_it_cannot_listen_is_told_with_host_and_port(
    host: str, port: int | None, reason: str, server: IndexServer, index: Index
):
    port = server.port if port is None else port
    with pytest.raises(InputError, match=f"cannot listen at {host}, port {port} .*{reason}.*give a free --port"):
        IndexServer(index, host, port)


def test_a_change_while_the_server_opens_the_index_is_not_missed(
    passages: list[Passage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serving: Serving, wait_for: WaitFor
):
    monkeypatch.setattr(watcher, "REFRESH", 0.05)
    path = tmp_path / "i"
    build_index(passages, path, "bm25")
    opened = open_folder(path)
    add_to_index(path, [Passage("new", "A harpsichord.")])
    with serving(opened, lambda: open_folder(path)) as server:
        wait_for(lambda: server.info()["passages"] == len(passages) + 1)


def test_an_index_that_arrives_file_by_file_is_taken_up_once_it_is_whole(
    passages: list[Passage],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    serving: Serving,
    wait_for: WaitFor,
):
    monkeypatch.setattr(watcher, "REFRESH", 0.02)
    path, new, looks = tmp_path / "i", tmp_path / "new", []
    build_index(passages, path, "bm25")
    shutil.copytree(path, new)
    add_to_index(new, [Passage("new", "A harpsichord.")])

    def reopen() -> Index:
        looks.append(len(looks))
        if len(looks) < 3:
            raise MemoryError("whatever a library raises")
        return open_folder(path)

    def rsynced(source: str | Path, target: str | Path) -> None:
        """As rsync does: whole under another name first, so that a manifest is never seen half written."""
        shutil.copyfile(source, f"{target}.part")
        os.replace(f"{target}.part", target)

    with serving(open_folder(path), reopen) as server:
        rsynced(new / "manifest.json", path / "manifest.json")  # its name comes before segments
        wait_for(lambda: "serving the old" in caplog.text)
        time.sleep(0.1)
        assert RemoteIndex(server.url)("Hamlet", 1)[0].title == "Hamlet"
        shutil.copytree(new, path, dirs_exist_ok=True, copy_function=rsynced)
        wait_for(lambda: server.info()["passages"] == len(passages) + 1)
        assert RemoteIndex(server.url)("harpsichord", 1)[0].pid == "new"
    assert len(looks) == 3 and caplog.text.count("serving the old") <= 2  # once for each manifest, not for each look


def test_closing_answers_what_is_under_way(index: Index, monkeypatch: pytest.MonkeyPatch, serving: Serving):
    begun, search_many = threading.Event(), Index.search_many

    def slow(self: Index, *args):
        begun.set()
        time.sleep(0.3)
        return search_many(self, *args)

    with ThreadPoolExecutor(1) as pool:
        with serving(index) as server:
            remote = RemoteIndex(server.url)
            monkeypatch.setattr(Index, "search_many", slow)
            answer = pool.submit(remote, "Hamlet", 1)
            begun.wait(20)
        assert answer.result()[0].title == "Hamlet"
    with pytest.raises(RaisfError, match="does not answer"):
        remote("Hamlet", 1)
    with pytest.raises(InputError, match="start one with: raisf serve-index"):
        open_index(server.url)


def test_closing_waits_for_no_client_that_is_still_sending(index: Index, serving: Serving, wait_for: WaitFor):
    with contextlib.ExitStack() as kept:
        with serving(index) as server:
            client = kept.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            client.sendall(b"GET /?query=a HTTP/1.0\r\nHost: localhost\r\nX-a: ")
            wait_for(lambda: server._server.server_state.connections)
            start = time.monotonic()
        assert time.monotonic() - start < SETTLE + 3 and not server._server.server_state.connections


def test_closing_does_not_wait_for_ever(index: Index, monkeypatch: pytest.MonkeyPatch, serving: Serving):
    monkeypatch.setattr(listening, "GRACE", 0.3)
    begun, ended = threading.Event(), threading.Event()

    def endless(self: Index, *args):
        begun.set()
        ended.wait(20)
        return [[]]

    monkeypatch.setattr(Index, "search_many", endless)
    with ThreadPoolExecutor(1) as pool:
        with serving(index) as server:
            answer = pool.submit(post, server, b'{"query": "a"}')
            begun.wait(20)
            start = time.monotonic()
        assert time.monotonic() - start < 3
        status, told = answer.result()
        assert status == 503 and "told to stop" in told["message"]
        ended.set()
