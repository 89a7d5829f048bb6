"""The service as tools of the Model Context Protocol: `ask` and `search`."""

import contextlib
import functools
import inspect
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from io import TextIOWrapper
from typing import Annotated, Any

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import Tool, ToolAnnotations
from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticKnownError
from starlette.applications import Starlette
from starlette.routing import Route

from raisf import __version__
from raisf.programs.events import AnswerEvent, DoneEvent, QuestionEvent
from raisf.programs.program import check_question
from raisf.retrieval.adapting import as_retriever
from raisf.serving.jsonrpc import Checked, refusal_of
from raisf.serving.service import Service
from raisf.serving.sources import cited_passages
from raisf.utils.errors import InputError, RaisfError


def _number(value: Any) -> Any:
    if isinstance(value, bool | str):  # which would be 1, or the number in it
        raise PydanticKnownError("int_type")
    return value


Passages = Annotated[int, BeforeValidator(_number), Field(ge=1, le=50)]
"""How many a client may search for."""
logger = logging.getLogger(__name__)
READS = ToolAnnotations(readOnlyHint=True, openWorldHint=False)


class _Strict(FastMCP):
    """Refuses arguments that a tool has not: a client would believe that they did something. And what is no message."""

    def streamable_http_app(self) -> Starlette:
        app = super().streamable_http_app()
        for route in app.routes:
            assert isinstance(route, Route)
            route.app = Checked(route.app)
        return app

    async def list_tools(self) -> list[Tool]:
        tools = await super().list_tools()
        for tool in tools:
            tool.inputSchema["additionalProperties"] = False
            tool.description = inspect.cleandoc(tool.description or "")
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        schema = {tool.name: tool.inputSchema for tool in await self.list_tools()}.get(name, {})
        takes = schema.get("properties", arguments)
        if unknown := sorted(arguments.keys() - takes.keys()):
            raise ToolError(f"{name} has no {unknown[0]!r:.80}: it takes {', '.join(takes)}")
        if missing := [field for field in schema.get("required", ()) if field not in arguments]:
            raise ToolError(f"{name} needs {missing[0]!r}")
        try:
            return await super().call_tool(name, arguments)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = error.__cause__.errors(include_url=False)[0]
            field = ".".join(map(str, wrong["loc"]))
            raise ToolError(f"{name}'s {field} is {wrong['input']!r:.80}: {wrong['msg']}") from error


def make_mcp(service: Service) -> FastMCP:
    """The MCP server over a service, for HTTP (`streamable_http_app`) and `serve_stdio`."""
    names = ", ".join(service.served)
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    server = _Strict(
        "raisf",
        instructions="Answers questions from an index of documents, with the passages that each answer was read from. "
        f"Programs: {names}.",
        stateless_http=True,
        log_level="ERROR",
        # `raisf.serving.guard` stands before it.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    root.level, root.handlers[:] = before  # it has made all logs of the process its own, without their warnings
    server._mcp_server.version = __version__  # else the library's own

    @server.tool(annotations=READS)
    @_raising_tool_errors
    async def ask(question: str, ctx: Context, program: str | None = None) -> dict[str, Any]:
        """Answer a question from the indexed documents.

        Gives the answer ("unknown" if there is none), the sentence that it was read from, and the passages it rests on.
        """
        steps = 0
        with service.begin(question, program, client=_client(ctx)) as asked:
            done: Any = None
            async for event in asked.events():
                done = event
                if isinstance(event, AnswerEvent) or (isinstance(event, QuestionEvent) and event.begun):
                    steps += 1
                    await ctx.report_progress(steps, message=_told(event))
            return _answer(done)

    @server.tool(annotations=READS)
    @_raising_tool_errors
    async def search(query: str, ctx: Context, k: Passages = 5, program: str | None = None) -> dict[str, Any]:
        """Find the k passages of the indexed documents that fit a query best."""
        served = service.choose(program)
        if served.retriever is None:
            raise InputError(f"{served.name} searches nothing")
        check_question(query, "query")
        with service.place(_client(ctx)):
            found = await service.searched(lambda: as_retriever(served.retriever)(query, k), query)
        rows = [_shown(passage) | {"score": passage.score} for passage in found]
        return {"passages": rows}

    return server


async def serve_stdio(server: FastMCP) -> None:
    """Speak over standard input and the process's own standard output, until the client closes it or is gone.

    `sys.stdout` itself may stand for standard error: what libraries print would end up between the messages.
    """
    assert sys.__stdout__ is not None and sys.__stdin__ is not None
    inner = server._mcp_server
    # Copies: a wrapper closes what it wraps when it goes, and the process's own are needed after it.
    heard = TextIOWrapper(os.fdopen(os.dup(sys.__stdin__.fileno()), "rb"), encoding="utf-8", errors="replace")
    said = TextIOWrapper(os.fdopen(os.dup(sys.__stdout__.fileno()), "wb"), encoding="utf-8")
    out: Any = _Out(said)
    messages: Any = _messages(heard, out)
    try:
        async with stdio_server(messages, out) as (read, write):
            await inner.run(read, write, inner.create_initialization_options())
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass  # nobody listens any more
    finally:
        for pipe in (heard, said):
            with contextlib.suppress(OSError, ValueError):
                pipe.close()


class _Out:
    """Standard output, a line at a time: whoever refuses a line writes beside the library."""

    def __init__(self, file: TextIOWrapper) -> None:
        self._file, self._one = anyio.wrap_file(file), anyio.Lock()

    async def write(self, line: str) -> None:
        async with self._one:
            await self._file.write(line)
            await self._file.flush()

    async def flush(self) -> None:
        """Each line is written as it comes."""


async def _messages(heard: TextIOWrapper, out: _Out) -> AsyncIterator[str]:
    """The lines that are messages; all others are answered here, but for blank ones."""
    async for line in anyio.wrap_file(heard):
        if not line.strip():
            continue
        if refusal := refusal_of(line):
            await out.write(f"{json.dumps(refusal)}\n")
        else:
            yield line


def _client(ctx: Context) -> str:
    """The address that a request came from; over standard input there is but one client."""
    request = ctx.request_context.request
    return request.client.host if request is not None and request.client else ""


def _told(event: AnswerEvent | QuestionEvent) -> str:
    said = f"{event.answer} ({event.reason})" if isinstance(event, AnswerEvent) else event.question
    return f"{event.node}: {said}"


def _shown(passage: Any) -> dict[str, Any]:
    return {"id": passage.pid, "title": passage.title, "text": passage.text, "citation": passage.citation}


def _answer(done: DoneEvent) -> dict[str, Any]:
    root = done.trace.root if done.trace else None
    return {
        "answer": done.answer,
        "evidence": root.evidence if root else None,
        "reason": root.reason if root else "",
        "confidence": done.confidence,
        "grounded": root.grounded if root else None,
        "citations": [_shown(passage) for passage in cited_passages(done)],
        "lm_calls": done.trace.cost.lm_calls if done.trace else None,
    }


def _raising_tool_errors(tool: Any) -> Any:
    """The tool, whose own errors reach the model as they are; of any other the text stays in the log."""

    @functools.wraps(tool)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return await tool(*args, **kwargs)
        except RaisfError as error:
            raise ToolError(str(error)) from error
        except Exception as error:
            logger.exception("a tool failed")
            raise ToolError("the tool failed: the server's log says why") from error

    return wrapped
