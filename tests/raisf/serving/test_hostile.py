"""Clients that are slow, broken or hostile: each ends, and nobody else notices."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dspy
import pytest

from raisf.programs.baselines.rag import RAG
from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving import connections
from raisf.serving import openai_api
from raisf.serving.limits import Limits
from raisf.serving.service import Served, Service
from tests.raisf.serving.conftest import until

ASK = b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\n"
QUESTION = json.dumps({"question": "number 1", "stream": False}).encode()


def connect(server: Any, receives: int | None = None) -> socket.socket:
    """A connection; `receives`: bytes that its system keeps unread."""
    client = socket.socket()
    if receives:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    client.settimeout(60)
    client.connect(("127.0.0.1", server.port))
    return client


def whole(client: socket.socket) -> bytes:
    """What the server says until it closes the connection."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := client.recv(1 << 16):
            said += more
    return said


def sent(server: Any, *pieces: bytes) -> bytes:
    """The answer to some bytes; the server may end before it has them all."""
    with connect(server) as client:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                client.sendall(piece)
        return whole(client)


def chat(server: Any, *messages: dict[str, Any]) -> bytes:
    """The answer to a conversation."""
    body = json.dumps({"messages": messages}, ensure_ascii=False).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    return sent(server, head, body)


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def told(answer: bytes) -> str:
    """The message of a refusal."""
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute of patience is a few seconds here: enough for honest clients on a machine that is busy."""
    monkeypatch.setattr(connections, "SLOWEST", 3.0)


@pytest.fixture
def served_meanwhile(server: Any, ask: Any, caplog: Any) -> Iterator[None]:
    """Someone else is answered during and after the test, and no client makes the server's log say "error"."""
    assert ask(server.url, "number 41")[-1]["answer"] == "A41"
    yield
    assert ask(server.url, "number 42")[-1]["answer"] == "A42"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.slow
def test_who_stops_in_the_middle_of_a_request_is_cut_off(
    impatient: None, server: Any, served_meanwhile: None, ask: Any
) -> None:
    begun = (
        b"",
        b"POST /ask HT",
        ASK + b"Content-Le",
        ASK + b"Content-Length: 50\r\n\r\n" + b'{"quest',
        ASK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 50\r\n\r\n{",
    )
    with contextlib.ExitStack() as held:
        clients = [held.enter_context(connect(server)) for _ in begun]
        for client, first in zip(clients, begun, strict=True):
            client.sendall(first)
        assert ask(server.url, "number 3")[-1]["answer"] == "A3"
        assert all(whole(client) == b"" for client in clients)


def test_a_body_that_comes_byte_by_byte_for_ever_is_cut_off(
    impatient: None, server: Any, served_meanwhile: None
) -> None:
    with connect(server) as client:
        client.sendall(ASK + b"Content-Length: 100000\r\n\r\n")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(5_000):
                client.sendall(b"x")
                time.sleep(0.02)


@pytest.mark.slow
def test_who_never_reads_its_events_is_cut_off_and_its_question_stopped(
    impatient: None, service: Service, script: Any, start: Any, ask: Any
) -> None:
    """Passages of megabytes, which no buffer between the two takes up."""
    heavy = RAG(lambda query, k: [f"heavy{n}" * 400_000 for n in range(k)], k=3)
    heavy.set_lm(service.served["rag"].program.get_lm())
    service.served["heavy"] = Served("heavy", heavy)
    with start(service) as server:
        body = json.dumps({"question": "slow?", "program": "heavy"}).encode()
        with connect(server, receives=4096) as client:
            client.sendall(ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            until(lambda: b'outcome="stopped"' in service.metrics.text())
            assert ask(server.url, "number 5")[-1]["answer"] == "A5"
        script.let_go.set()
        until(lambda: service.admission.under_way == 0)


@pytest.mark.slow
def test_who_never_reads_a_whole_answer_is_cut_off(impatient: None, documents: Path, make: Any, start: Any) -> None:
    with (documents / "atlas/rivers.md").open("w") as file:
        file.write("x" * (32 << 20))
    with start(make(), documents=documents) as server, connect(server, receives=4096) as client:
        client.sendall(b"GET /document?source=atlas/rivers.md HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until(lambda: len(server._server.server_state.connections) == 1)
        until(lambda: not server._server.server_state.connections)
        assert len(whole(client)) < 32 << 20


def test_two_hundred_connections_keep_nobody_out(
    impatient: None, server: Any, served_meanwhile: None, ask: Any
) -> None:
    with contextlib.ExitStack() as held:
        clients = [held.enter_context(connect(server)) for _ in range(200)]
        for number in range(3):
            assert ask(server.url, f"number {number}")[-1]["answer"] == f"A{number}"
        assert all(whole(client) == b"" for client in clients)


def test_headers_of_a_megabyte(server: Any, served_meanwhile: None) -> None:
    for header in (b"X: " + b"y" * (1 << 20), b"".join(b"X%d: y\r\n" % n for n in range(100_000))):
        answer = sent(server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", header, b"\r\n\r\n")
        assert not answer or status(answer) == 400  # or the answer is lost: it came before all was sent


@pytest.mark.parametrize("path", [b"/ask", b"/v1/chat/completions", b"/mcp"])
def test_a_body_beyond_the_limit_is_told_so_even_while_it_is_sent(
    make: Callable[..., Service], start: Any, path: bytes
) -> None:
    head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n"
    head += b"Content-Type: application/json\r\n"
    service = make(Limits(rate=0, body=1_000))
    with start(service) as server:
        said = sent(server, head + b"Content-Length: 3000000\r\n\r\n", b"x" * 3_000_000)
        assert status(said) == 413 and "1,000 bytes" in told(said)
        chunks = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        said = sent(server, head + b"Transfer-Encoding: chunked\r\n\r\n", chunks * 40 + b"0\r\n\r\n")
        assert status(said) == 413 and "1,000 bytes" in told(said)
        # Who asks first, as curl does, is spared the sending.
        said = sent(server, head + b"Expect: 100-continue\r\nContent-Length: 3000000\r\n\r\n")
        assert status(said) == 413
    assert b'raisf_refused_total{reason="body"} 3.0' in service.metrics.text()


def test_bodies_that_are_no_request(server: Any, served_meanwhile: None) -> None:
    forms = (
        (b"application/json", b'{"question": "number 1"'),
        (b"application/json", b"\xff\xfe"),
        (b"application/json", b"NaN"),
        (b"text/xml", b"<question>number 1</question>"),
        (
            b"multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="question"\r\n\r\n1\r\n--x--',
        ),
        (b"application/x-www-form-urlencoded", b"question=number+1"),
    )
    for kind, body in forms:
        for path in (b"/ask", b"/v1/chat/completions"):
            head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: %s\r\n" % (path, kind)
            said = sent(server, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert status(said) == 400 and told(said), (kind, body)


WRITTEN = dspy.JSONAdapter().format(dspy.Signature("question -> answer"), [], {"question": "number 2"})


@pytest.mark.parametrize(
    ("question", "said"),
    [("«" * 400_000, ""), ("«««\n" * 100_000, ""), ("[" * 900_000, ""), ("", "{" * 900_000), ("", '{"a":' * 100_000)],
)
def test_a_megabyte_that_looks_like_a_call_of_dspys_holds_nobody_up(
    server: Any, served_meanwhile: None, question: str, said: str
) -> None:
    system, asked = WRITTEN
    asked = {**asked, "content": asked["content"].replace("number 2", question or "number 2")}
    turns = [asked, {"role": "assistant", "content": said}] if said else []
    begun = time.monotonic()
    answer = chat(server, system, *turns, asked)
    assert time.monotonic() - begun < 10
    assert status(answer) == (200 if said else 400) and (said or "20,000" in told(answer))


@pytest.mark.parametrize(
    ("written", "instead"),
    [("`question`", name) for name in ("`_x`", "`model_config`", "`instructions`", "`fields`")]
    + [("(str)", f"(Literal[{labels}])") for labels in ("", "-" * 20_000 + "1", "[" * 500)]
    + [("fields are:", "fields are:\n" + "\n".join(f"1. `x{n}` (str):" for n in range(2_000)))],
)
def test_a_system_message_that_dspy_could_not_have_written_is_answered_all_the_same(
    server: Any, served_meanwhile: None, written: str, instead: str
) -> None:
    system, asked = WRITTEN
    system = {**system, "content": system["content"].replace(written, instead, 1)}
    answer = chat(server, system, asked)
    assert status(answer) == 200 and b"A2" in answer


def test_who_asks_too_often_has_no_more_read(make: Callable[..., Service], start: Any, monkeypatch: Any) -> None:
    read: list[Any] = []
    honest = openai_api.read_chat
    monkeypatch.setattr(openai_api, "read_chat", lambda given: read.append(given) or honest(given))
    with start(make(Limits(rate=2))) as server:
        answers = [status(chat(server, {"role": "assistant", "content": "no question"})) for _ in range(3)]
    assert answers == [400, 400, 429] and len(read) == 2


def test_a_request_with_a_name_that_it_has_not_is_refused(server: Any) -> None:
    for name in ("max_call", "x" * 100_000):
        body = json.dumps({"question": "number 1", name: 3}).encode()
        said = sent(server, ASK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert status(said) == 400 and f"'{name[:79]}" in told(said) and "max_calls" in told(said)
        assert len(told(said)) < 200


def test_json_is_read_whatever_it_is_called(server: Any) -> None:
    """What `curl -d` sends calls itself a form."""
    for kind in (b"application/x-www-form-urlencoded", b"text/plain", b"application/json; charset=utf-8"):
        said = sent(server, ASK + b"Content-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(QUESTION)) + QUESTION)
        assert status(said) == 200 and b'"A1"' in said


def test_of_requests_in_one_go_the_first_is_answered(server: Any, service: Service, served_meanwhile: None) -> None:
    """Every answer closes its connection, so that none is another's."""
    one = ASK + b"Content-Length: %d\r\n\r\n" % len(QUESTION) + QUESTION
    said = sent(server, one * 3)
    assert said.count(b"HTTP/1.1 ") == 1 and status(said) == 200 and b'"A1"' in said
    assert b'outcome="answered",program="ra-isf"} 2.0' in service.metrics.text()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n{}",
        b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\0b\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(server: Any, served_meanwhile: None, head: bytes) -> None:
    assert status(sent(server, head)) in (400, 501)


def test_a_host_that_only_looks_like_this_machine_is_refused(server: Any) -> None:
    for host in (
        b"127.0.0.1.evil.example",
        b"localhost.evil.example",
        b"evil.example#127.0.0.1",
        b"127.0.0.1@evil.example",
        b"evil.example:80@127.0.0.1:x",
        b"0.0.0.0",
        b"",
        b"localhost\xff",
    ):
        assert status(sent(server, b"GET /programs HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")) in (400, 421), host


def test_no_path_leads_out_of_the_documents(tmp_path: Path, make: Any, start: Any) -> None:
    """Not even one that the index itself calls a source."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("nobody may read this")
    (folder / "good.txt").write_text("good")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    secret = tmp_path / "secret.txt"
    sources = ["good.txt", "../secret.txt", str(secret), "link.txt", "loop", "loop/x", "pipe", ".", "a\0b", "x" * 5_000]
    sources += ["..\\secret.txt", "good.txt/../../secret.txt", "file://" + str(secret), "~", "/proc/self/environ"]
    passages = [Passage(f"p{n}", f"text {n}", "", source=source) for n, source in enumerate(sources)]
    program = RAG(build_index(passages, tmp_path / "index", "bm25", progress=False))
    service = make()
    service.served = {"rag": Served("rag", program)}
    with start(service, documents=folder) as server:
        for source in [*sources, "%2e%2e/secret.txt", "..%2fsecret.txt", ""]:
            path = quote(source, safe="%").encode()
            said = sent(server, b"GET /document?source=" + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"nobody may" not in said
            assert status(said) == (200 if source == "good.txt" else 404), source
        for pid in ("../p1", "%00", "p1%00", "", "x" * 5_000):
            said = sent(server, b"GET /source?pid=" + pid.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert status(said) == 404, pid
        for path in (
            b"/page/../app.py",
            b"/page/%2e%2e/app.py",
            b"/page/..%2fapp.py",
            b"/page//etc/passwd",
            b"//etc/passwd",
        ):
            assert status(sent(server, b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")) == 404, path


def test_a_hundred_at_once_of_all_kinds(impatient: None, server: Any, served_meanwhile: None) -> None:
    """Together they do no more harm than one by one."""
    kinds = [b"", ASK, ASK + b"Content-Length: 9\r\n\r\n{", b"\0" * 1_000, ASK + b"Content-Length: 1\r\n\r\n{"]
    threads = [threading.Thread(target=sent, args=(server, kinds[n % len(kinds)])) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
