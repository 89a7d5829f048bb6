"""The tools of the Model Context Protocol, through the SDK's own client."""

import http.client
import json
import logging
import os
import re
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

import raisf
from raisf.commands.served import _log
from raisf.retrieval.serving import listening
from raisf.serving.limits import Limits
from raisf.serving.service import Served, Service
from tests.raisf.serving.conftest import until

pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from raisf.serving.mcp_tools import make_mcp

CLIENT = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
HELLO = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT})


def test_ask_and_search_over_http_with_progress(server: Any, service: Service, ask: Any) -> None:
    told: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def use() -> None:
        async with (
            streamable_http_client(f"{server.url}/mcp") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert set(tools) == {"ask", "search"} and "question" in tools["ask"].inputSchema["required"]
            assert not any(tool.inputSchema["additionalProperties"] for tool in tools.values())
            assert not any("\n " in (tool.description or "") for tool in tools.values())
            given = await session.call_tool("ask", {"question": ask.sea}, progress_callback=progress)
            assert not given.isError and given.structuredContent is not None
            assert given.structuredContent["answer"] == "Pasmur Sea"
            cited = given.structuredContent["citations"][0]
            assert cited["title"] == "Bulgorton" and cited["citation"].startswith("atlas/rivers.md")
            found = await session.call_tool("search", {"query": "Pasmur Sea frozen", "k": 2.0})
            assert found.structuredContent is not None
            assert found.structuredContent["passages"][0]["title"] == "Pasmur Sea"
            for tool, arguments, message in (
                ("ask", {"question": " "}, "the question is empty"),
                ("search", {"query": " "}, "the query is empty"),
                ("ask", {}, "ask needs 'question'"),
                ("ask", {"question": "Who?", "program": "x"}, "choose ra-isf, rag"),
                ("search", {"query": "Who?", "program": "x"}, "choose ra-isf, rag"),
                ("search", {"query": "x", "k": 500}, "search's k is 500: Input should be less than or equal to 50"),
                ("search", {"query": "x", "k": True}, "search's k is True: Input should be a valid integer"),
                ("search", {"query": "x", "k": "five"}, "search's k is 'five': Input should be a valid integer"),
                ("search", {"query": "sea " * 10_000}, "the limit is 20,000"),
                ("search", {"query": "sea", "where": "page = 3"}, "search has no 'where': it takes query, k, program"),
                ("ask", {"question": "Who?", "max_calls": -3}, "ask has no 'max_calls': it takes question, program"),
            ):
                refused = await session.call_tool(tool, arguments)
                assert refused.isError and message in refused.content[0].text  # type: ignore[union-attr]
                assert "pydantic" not in refused.content[0].text  # type: ignore[union-attr]

    anyio.run(use)
    assert told[0].startswith("0: In which sea") and any(one.startswith("0.1: Funzol River") for one in told)


def test_a_module_of_ones_own_is_searched_and_tells_no_password(start: Any, caplog: Any) -> None:
    def retriever(query: str, k: int = 3) -> list[str]:
        if query == "down":
            raise RuntimeError(f"cannot reach http://admin:hunter2@10.0.0.5/search, asked for {query}")
        return ["The Funzol River flows into the Pasmur Sea.", "Bulgorton lies inland."][:k]

    program = SimpleNamespace(retriever=retriever)
    service = Service({"mine": Served("mine", cast(Any, program), "")}, Limits(rate=0))

    async def use(url: str) -> Any:
        async with streamable_http_client(f"{url}/mcp") as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            return [await session.call_tool("search", {"query": query, "k": 1}) for query in ("sea", "down")]

    with start(service) as server:
        found, failed = anyio.run(use, server.url)
    assert [one["text"] for one in found.structuredContent["passages"]] == [
        "The Funzol River flows into the Pasmur Sea."
    ]
    assert failed.isError and "cannot reach http://***@10.0.0.5/search" in str(failed.content)
    assert "hunter2" not in str(failed.content) + caplog.text
    assert "a search failed" in caplog.text and "asked for down" not in caplog.text


def test_what_breaks_in_a_search_stays_in_the_log(make: Any, start: Any, caplog: Any, monkeypatch: Any) -> None:
    service = make()

    def broken(*_: Any) -> Any:
        raise RuntimeError("secret words")

    monkeypatch.setattr(type(service.served["rag"].retriever), "__call__", broken)

    async def use(url: str) -> Any:
        async with streamable_http_client(f"{url}/mcp") as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            return await session.call_tool("search", {"query": "sea"})

    with start(service) as server:
        failed = anyio.run(use, server.url)
    assert failed.isError and "the server's log says why" in str(failed.content)
    assert "secret words" not in str(failed.content) and "secret words" in caplog.text


def test_clients_of_one_address_share_its_rate_searches_too(make: Any, start: Any, ask: Any) -> None:
    service = make(Limits(rate=2))

    async def use(url: str) -> list[bool]:
        async with streamable_http_client(f"{url}/mcp") as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            calls = [("search", {"query": "Pasmur Sea"}), ("ask", {"question": ask.sea}), ("search", {"query": "sea"})]
            return [(await session.call_tool(tool, arguments)).isError for tool, arguments in calls]

    with start(service) as server:
        assert anyio.run(use, server.url) == [False, False, True]
    assert set(service.admission._clients) == {"127.0.0.1"}


def test_standard_output_is_the_clients_alone_to_the_end(rivers: Any) -> None:
    """A blank line behind the last message, as the server ended, broke clients that were still listening."""
    assert [answer["id"] for answer in said_to(rivers, HELLO)] == [1]


def said_to(rivers: Any, *lines: str) -> list[dict[str, Any]]:
    """What `raisf mcp` answers on its standard output."""
    command = [sys.executable, "-m", "raisf.cli", "mcp", str(rivers.path), "--lm", "pocket"]
    done = subprocess.run(command, input="\n".join([*lines, ""]), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
NO_MESSAGES = [
    ("garbage", None, -32700),
    ("[" * 100_000, None, -32700),
    (json.dumps([PING]), None, -32600),
    ("null", None, -32600),
    (json.dumps({**PING, "id": None}), None, -32600),
    (json.dumps({**PING, "id": 1.5}), None, -32600),
    (json.dumps({"jsonrpc": "2.0", "id": 3}), 3, -32600),
    (json.dumps({**PING, "id": "\ud800", "params": {"lone": "\ud800"}}), "\ud800", -32600),
    (json.dumps({**PING, "id": 4, "method": "nope"}), 4, -32601),
]
"""With the id and the code of the error that each is answered with."""


def test_a_line_that_is_no_message_is_answered_and_the_next_one_too(rivers: Any) -> None:
    """Its sender would wait for ever."""
    hello, *refused = said_to(rivers, HELLO, *(line for line, _, _ in NO_MESSAGES), "", json.dumps(PING))
    assert hello["result"] and refused.pop() == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert [(one["id"], one["error"]["code"]) for one in refused] == [(asked, code) for _, asked, code in NO_MESSAGES]
    assert all(one["error"]["message"] for one in refused)


def test_what_is_no_message_is_answered_alike_over_http_and_no_failure_in_the_log(server: Any, caplog: Any) -> None:
    """With an id that is none it was taken for a notification (202), and a nested one failed with a traceback."""
    for body, asked, code in NO_MESSAGES:
        answer, said = posted(server, body)
        refused = json.loads(said)
        assert (refused["id"], refused["error"]["code"]) == (asked, code)
        assert answer.status == (200 if code == -32601 else 400)
    answer, said = posted(server, json.dumps(PING))
    assert answer.status == 200 and b'"result":{}' in said
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_who_leaves_in_the_middle_of_a_message_is_no_failure_in_the_log(
    server: Any, service: Service, caplog: Any
) -> None:
    for path in (b"/mcp", b"/ask"):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            client.sendall(head + b"Accept: application/json, text/event-stream\r\nContent-Length: 50\r\n\r\n{")
            until(lambda: server._server.server_state.tasks)
        until(lambda: not server._server.server_state.tasks)
    assert not [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_who_is_cut_off_when_the_server_stops_is_told_to_ask_again(
    make: Any, start: Any, script: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """The answer broke off, and the log had a traceback."""
    monkeypatch.setattr(listening, "GRACE", 0.3)
    called = {"name": "ask", "arguments": {"question": "slow?"}}
    body = json.dumps({"jsonrpc": "2.0", "id": "q7", "method": "tools/call", "params": called})
    with ThreadPoolExecutor(1) as pool:
        with start(make()) as server:
            asked = pool.submit(posted, server, body)
            assert script.begun.wait(60)
        script.let_go.set()
        answer, said = asked.result()
    told = json.loads(said.decode().splitlines()[-2].removeprefix("data: "))
    assert answer.status == 200 and told["id"] == "q7" and told["error"]["code"] == -32603
    assert "ask again" in told["error"]["message"]
    assert "Traceback" not in caplog.text


def posted(server: Any, body: str) -> tuple[http.client.HTTPResponse, bytes]:
    """The answer to a body at /mcp, and what it says."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    connection.request("POST", "/mcp", body, headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer, said


IN_TORCH = """
import sys, dspy, torch, raisf.commands.mcp as mcp
from raisf import cli
from raisf.serving.limits import Limits
from raisf.serving.service import Served, Service

class Busy(dspy.Module):
    def forward(self, question):
        sys.__stdout__.write("{}\\n")
        sys.__stdout__.flush()
        square = torch.ones(300, 300)
        while True:
            square = (square @ square).clamp(0, 1)

mcp.open_service = lambda *given: Service({"busy": Served("busy", Busy())}, Limits())
sys.exit(cli.main(["mcp", "anything"]))
"""


def test_a_client_that_leaves_in_the_middle_of_a_call_ends_the_server_without_an_abort() -> None:
    """What worked in torch by then, as an LM that was just being read, was cut off there: exit code 134."""
    asked = {"name": "ask", "arguments": {"question": "?"}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked}
    lines = [HELLO, json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), json.dumps(call)]
    with subprocess.Popen([sys.executable, "-c", IN_TORCH], stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n".join([*lines, ""]))
        process.stdin.flush()
        assert {json.loads(process.stdout.readline()).get("id") for _ in range(2)} == {1, None}  # in either order
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said


@pytest.mark.slow
def test_over_standard_input_and_output(rivers: Any) -> None:
    async def use() -> None:
        command = ["-m", "raisf.cli", "mcp", str(rivers.path), "--lm", "pocket"]
        async with (
            stdio_client(StdioServerParameters(command=sys.executable, args=command, env={**os.environ})) as (
                read,
                write,
            ),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            found = await session.call_tool("search", {"query": "Funzol River", "k": 1})
            assert found.structuredContent is not None and len(found.structuredContent["passages"]) == 1

    anyio.run(use)


def test_the_tools_leave_the_warnings_of_others_alone(service: Service) -> None:
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    assert make_mcp(service)._mcp_server.version == raisf.__version__
    assert (root.level, root.handlers) == before


def test_a_service_logs_its_questions_and_all_warnings_as_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    root, ours, served = logging.getLogger(), logging.getLogger("raisf"), logging.getLogger("raisf.serving")
    before = list(root.handlers), ours.level, served.level
    try:
        _log()
        _log()  # another service of the same process
        served.info('{"outcome": "done"}')
        logging.getLogger("raisf.retrieval.serving.watcher").warning("the index %s has changed", "i\n1")
        logging.getLogger("raisf.lm").info("nothing to tell")
        logging.getLogger("stranger").warning("chatter")
    finally:
        root.handlers[:], ours.level, served.level = before
    rows = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert all(datetime.fromisoformat(row.pop("time")).tzinfo for row in rows)
    assert rows == [{"outcome": "done"}, {"level": "warning", "message": "the index i\n1 has changed"}]


@pytest.mark.slow
def test_a_request_over_mcp_leaves_the_log_as_it_is(rivers: Any) -> None:
    command = [sys.executable, "-m", "raisf.cli", "serve", str(rivers.path), "--lm", "pocket", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        try:
            (url,) = re.findall(r"http://[\d.:]+", next(line for line in process.stderr if "serving" in line))

            async def use() -> None:
                async with streamable_http_client(f"{url}/mcp") as (read, write, _), ClientSession(read, write) as mcp:
                    await mcp.initialize()
                    await mcp.call_tool("ask", {"question": "Where is Oltrey?"})
                    await mcp.call_tool("ask", {"question": " "})

            anyio.run(use)
        finally:
            process.terminate()
        rows = [json.loads(line) for line in process.stderr if not line.startswith("answering what")]
    assert [row["event"] for row in rows] == ["question"]


def test_no_client_holds_a_stream_open_that_nothing_is_sent_on(server: Any) -> None:
    """It held up the server's end until it was cut off, with a traceback in the log."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", "/mcp", headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("Allow")) == (405, "POST")
    connection.close()


@pytest.mark.parametrize("call", [{"method": "ping"}, {"method": "tools/list"}, {"method": "nope"}, {}])
def test_one_connection_carries_one_request_of_mcp_too(server: Any, call: dict[str, Any]) -> None:
    """The next one on it was cut off half a minute after the answer to this one, however far its own had come."""
    answer, _ = posted(server, json.dumps({"jsonrpc": "2.0", "id": 1, **call}))
    assert answer.headers.get_all("Connection") == ["close"]
