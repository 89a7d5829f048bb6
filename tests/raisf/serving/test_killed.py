"""`raisf serve` and `raisf mcp` as processes that are killed, or whose client is."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raisf import cli

pytestmark = pytest.mark.slow


class Held:
    """What the endpoint says; to "slow" questions nothing until `let_go` is set."""

    def __init__(self, right: Any) -> None:
        self.let_go, self.begun, self._right = threading.Event(), threading.Event(), right

    def __call__(self, fields: dict[str, str]) -> dict[str, Any]:
        if "slow" in fields.get("question", ""):
            self.begun.set()
            self.let_go.wait(60)
        return self._right(fields)


@pytest.fixture
def held(faulty: Any) -> Iterator[Held]:
    held = Held(faulty.right)
    yield held
    held.let_go.set()


@pytest.fixture
def endpoint(faulty: Any, held: Held) -> Iterator[Any]:
    with faulty.serve(answer=held) as endpoint:
        yield endpoint


def started(command: str, index: Path, endpoint: Any, folder: Path, *options: str, **pipes: Any) -> Any:
    """The command in a session of its own, whose every file lands in a folder of its own."""
    for name in ("tmp", "cache", "here"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
        "TMPDIR": str(folder / "tmp"),
        "DSPY_CACHEDIR": str(folder / "cache"),
        "OPENAI_API_KEY": "none",
    }
    argv = [sys.executable, "-m", "raisf.cli", command, str(index), "--lm", "openai/x", "--api-base", endpoint.url]
    return subprocess.Popen(
        [*argv, "--program", "rag", *options], cwd=folder / "here", env=environment, start_new_session=True, **pipes
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port: int, process: Any) -> None:
    ends = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < ends:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    pytest.fail(f"nothing listens at {port}; the process ended with {process.poll()}")


def left(process: Any) -> bool:
    """Whether anything of its session is left."""
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def asked(port: int, question: str, stream: bool) -> tuple[str, Any]:
    """How a question ends for its client: its last event, or the error's kind."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/ask", json.dumps({"question": question, "stream": stream}))
        answer = connection.getresponse()
        if not stream:
            return "answered", json.loads(answer.read())
        told = [json.loads(line[6:]) for line in answer.read().splitlines() if line.startswith(b"data: ")]
        return "answered" if told and told[-1].get("type") == "done" else "broken", told[-1:]
    except (OSError, http.client.HTTPException) as error:
        return "error", error


def test_a_server_that_was_killed_under_load_starts_again_at_its_port(
    rivers: Any, endpoint: Any, held: Held, tmp_path: Path
) -> None:
    port = free_port()
    process = started("serve", rivers.path, endpoint, tmp_path, "--port", str(port))
    try:
        listens(port, process)
        assert asked(port, "Who is the mayor?", True)[0] == "answered"
        found: list[tuple[str, Any]] = []
        clients = [
            threading.Thread(target=lambda n=n: found.append(asked(port, f"slow {n}?", n % 2 == 0))) for n in range(8)
        ]
        for client in clients:
            client.start()
        assert held.begun.wait(60)
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL and not left(process)
        for client in clients:
            client.join(60)
        # Nobody waits for ever, or takes half an answer for a whole one.
        assert [kind for kind, _ in found] == ["error"] * 8, found
        assert asked(port, "Who?", False)[0] == "error"
        assert not list((tmp_path / "tmp").iterdir()) and not list((tmp_path / "here").iterdir())

        held.let_go.set()
        process = started("serve", rivers.path, endpoint, tmp_path, "--port", str(port))
        listens(port, process)
        assert [asked(port, f"slow {n}?", n % 2 == 0)[0] for n in range(4)] == ["answered"] * 4
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0 and not left(process)
        assert not list((tmp_path / "tmp").iterdir()) and not list((tmp_path / "here").iterdir())
    finally:
        if process.poll() is None:
            process.kill()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full: of Linux")
@pytest.mark.parametrize("log", ["a pipe that nobody reads any more", "a full disk"])
def test_a_log_that_cannot_be_written_changes_no_answer_and_no_end(
    rivers: Any, endpoint: Any, held: Held, tmp_path: Path, log: str
) -> None:
    port = free_port()
    if log == "a full disk":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        unread, stderr = os.pipe()
        os.close(unread)
    process = started("serve", rivers.path, endpoint, tmp_path, "--port", str(port), stderr=stderr)
    os.close(stderr)
    try:
        listens(port, process)
        assert asked(port, "Who is the mayor?", False)[1]["answer"]
        found: list[tuple[str, Any]] = []
        client = threading.Thread(target=lambda: found.append(asked(port, "slow?", True)))
        client.start()
        assert held.begun.wait(60)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        held.let_go.set()
        client.join(60)
        assert found[0][0] == "answered" and process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()


@pytest.mark.parametrize("asks", [False, True])
def test_ctrl_c_ends_mcp_at_once(rivers: Any, endpoint: Any, held: Held, tmp_path: Path, asks: bool) -> None:
    """It read its input on until a line came, however often one pressed."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started("mcp", rivers.path, endpoint, tmp_path, **pipes) as process:
        try:
            say_hello(process)
            if asks:
                say(process, id=2, method="tools/call", params={"name": "ask", "arguments": {"question": "slow?"}})
                assert held.begun.wait(60)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            told = process.stderr.read().decode()
            assert "interrupted" in told and "Traceback" not in told and not left(process)
        finally:
            if process.poll() is None:
                process.kill()


def say(process: Any, **message: Any) -> None:
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def say_hello(process: Any) -> None:
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    say(process, id=1, method="initialize", params=hello)
    assert json.loads(process.stdout.readline())["id"] == 1
    say(process, method="notifications/initialized")


@pytest.mark.parametrize("way", ["closes its input", "is killed while it waits for an answer"])
def test_mcp_ends_when_its_client_goes(rivers: Any, endpoint: Any, held: Held, tmp_path: Path, way: str) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started("mcp", rivers.path, endpoint, tmp_path, **pipes) as process:
        try:
            say_hello(process)
            if way == "closes its input":
                process.stdin.close()
            else:
                say(process, id=2, method="tools/call", params={"name": "ask", "arguments": {"question": "slow?"}})
                assert held.begun.wait(60)
                process.stdin.close()  # what the system does with both pipes of a client that is killed
                process.stdout.close()
            assert process.wait(60) == 0  # it has nothing left to say
            assert not left(process) and b"Traceback" not in process.stderr.read()
        finally:
            if process.poll() is None:
                process.kill()
