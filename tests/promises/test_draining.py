"""A server that is told to stop answers every request that has come in: none is reset."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from raisf.retrieval.engines.base import Index
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving.server import IndexServer

CLIENTS = 64


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return build_index([Passage(f"p{n}", f"chess opening {n}") for n in range(200)], tmp_path / "ix", "bm25")


def ask(url: str) -> int:
    with urllib.request.urlopen(f"{url}/?query=chess&k=3", timeout=60) as response:
        return len(json.loads(response.read())["topk"])


def test_sixty_four_requests_under_way_are_answered(index: Index, monkeypatch: pytest.MonkeyPatch):
    """They are there at once: searched, waiting for the search, and in the system's queue."""
    begun, search_many = threading.Event(), Index.search_many

    def slow(self: Index, *args: object) -> object:
        begun.set()
        time.sleep(0.5)
        return search_many(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Index, "search_many", slow)
    with IndexServer(index) as server, ThreadPoolExecutor(CLIENTS) as pool:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        answers = [pool.submit(ask, server.url) for _ in range(CLIENTS)]
        assert begun.wait(60)
        connected = time.monotonic() + 60
        while server._server.server_state.total_requests + len(server._server.server_state.connections) < CLIENTS:
            assert time.monotonic() < connected
            time.sleep(0.01)
        server.stop()
        assert [answer.result() for answer in answers] == [3] * CLIENTS
        thread.join()


def test_a_request_that_is_on_its_way_when_the_server_is_told_to_stop_is_answered(index: Index):
    with IndexServer(index) as server:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(b"GET /?query=chess HTTP/1.1\r\nHost: localhost\r\n")
            while not server._server.server_state.connections:
                time.sleep(0.01)
            server.stop()
            time.sleep(0.3)
            client.sendall(b"\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        thread.join()


def test_sigterm_resets_no_client(index: Index):
    """Clients ask again and again while the process ends: each request is answered, or refused before it began."""
    command = [sys.executable, "-m", "raisf.cli", "serve-index", str(index.path), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert server.stderr is not None
    (url,) = re.findall(r"http://[\d.:]+", next(line for line in server.stderr if "serving" in line))
    answered: list[int] = []

    def client() -> str:
        while True:
            try:
                answered.append(ask(url))
            except OSError as error:
                return str(getattr(error, "reason", error))

    with ThreadPoolExecutor(CLIENTS) as pool:
        ends = [pool.submit(client) for _ in range(CLIENTS)]
        while len(answered) < CLIENTS:
            time.sleep(0.01)
        server.send_signal(signal.SIGTERM)
        told, _ = server.communicate(timeout=60)
        told_clients = Counter(end.result().split("]")[-1].strip() for end in ends)
    # Where the system takes no filter, one that connects within microseconds of the end is reset before it began.
    assert told_clients.keys() <= {"Connection refused", "Connection reset by peer"}
    assert told_clients["Connection reset by peer"] <= 2
    assert server.returncode == 0 and json.loads(told)["queries"] == len(answered) and {*answered} == {3}
