"""What the service answers at which path."""

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from raisf.programs.registry import PROGRAMS, about
from raisf.serving import openai_api
from raisf.serving.guard import STOPPED, Access, BodyTooLarge, Guard, error, too_large
from raisf.serving.limits import TooManyQuestions
from raisf.serving.mcp_tools import make_mcp
from raisf.serving.service import Service, flag, kind_of
from raisf.serving.sources import document_of, source_of
from raisf.serving.streaming import EventStream, Gone, sse, unless_gone
from raisf.utils.errors import InputError, RaisfError

ASKS = ("question", "program", "max_calls", "max_seconds", "stream")
SHARED = "visible.js"
"""The script that the viewer's page has, too."""
PAGE = {SHARED: "text/javascript", "app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml"}


def make_app(service: Service, access: Access, documents: Path | None = None) -> Any:
    """The ASGI application.

    Args:
        service: What answers.
        access: Who may ask.
        documents: The folder that the indexed documents lie in, to be opened from the page; None: they are not.
    """
    service.discreet = bool(access.keys)  # without keys only this machine asks
    mcp = make_mcp(service)
    routes = [*_Routes(service, documents).all(), _LISTEN, *mcp.streamable_http_app().routes]
    app = Starlette(
        routes=routes,
        lifespan=lambda app: mcp.session_manager.run(),
        exception_handlers={
            RaisfError: _refuse,
            HTTPException: _no_such_way,
            BodyTooLarge: _too_large,
            Gone: _gone,
            ClientDisconnect: _gone,
        },
    )
    return Guard(app, access, service.limits.body, service.metrics.refused)


class _Routes:
    def __init__(self, service: Service, documents: Path | None) -> None:
        self._service, self._documents = service, documents

    def all(self) -> list[Route]:
        return [
            Route("/", self.page),
            Route("/page/{name}", self.page),
            Route("/ask", self.ask, methods=["POST"]),
            Route("/programs", self.programs),
            Route("/source", self.source),
            Route("/document", self.document),
            Route("/healthz", self.healthz),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.models),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    async def page(self, request: Request) -> Response:
        name = request.path_params.get("name")
        if name is not None and name not in PAGE:
            return error(404, "there is no such file", "not_found")
        folder = files("raisf.utils") if name == SHARED else files("raisf.serving").joinpath("page")
        body = folder.joinpath(name or "index.html").read_bytes()
        return Response(body, media_type=PAGE[name] if name else "text/html")

    async def ask(self, request: Request) -> Response:
        given = await _body(request)
        if not isinstance(given, dict):
            raise InputError('a request is an object such as {"question": "..."}')
        if strange := [name for name in given if name not in ASKS]:
            raise InputError(f"a request has no {strange[0]!r:.80}: give of {', '.join(ASKS)}")
        if "question" not in given:
            raise InputError('a request has a "question": give one')
        stream = flag("stream", given.get("stream"))
        asked = self._service.begin(
            given.get("question"),
            given.get("program"),
            client=_client(request),
            max_calls=given.get("max_calls"),
            max_seconds=given.get("max_seconds"),
        )
        if stream is False:
            with asked:
                done = await unless_gone(request.receive, asked.outcome())
            return JSONResponse(done.model_dump(mode="json"))

        async def events() -> AsyncIterator[bytes]:
            yield sse({"id": asked.id, "program": asked.served.name}, "start")
            try:
                async for event in asked.events():
                    yield sse(event.model_dump_json(), event.type)
            except RaisfError as failure:
                yield sse({"type": "error", "message": str(failure), "kind": kind_of(failure)[1]}, "error")

        stopped = sse({"type": "error", "message": STOPPED, "kind": "stopped"}, "error")
        return EventStream(events, asked.close, stopped)

    async def chat(self, request: Request) -> Response:
        given = await _body(request)
        with ExitStack() as held:
            held.enter_context(self._service.place(_client(request)))
            wanted = await run_in_threadpool(openai_api.read_chat, given)  # a megabyte takes its time
            asked = self._service.begin(
                wanted.question,
                wanted.model,
                client=_client(request),
                held=held,
                turns=wanted.turns,
                max_calls=wanted.max_calls,
                max_seconds=wanted.max_seconds,
            )
        base = str(request.base_url).rstrip("/")
        if wanted.stream:
            stopped = openai_api.failed(STOPPED, "stopped")
            return EventStream(lambda: openai_api.chunks(wanted, asked, base), asked.close, stopped)
        with asked:
            done = await unless_gone(request.receive, asked.outcome())
        return JSONResponse(openai_api.completion(wanted, asked, done, base))

    async def models(self, request: Request) -> Response:
        listed, name = openai_api.models(self._service), request.path_params.get("name")
        if name is None:
            return JSONResponse(listed)
        found = [model for model in listed["data"] if model["id"] == name]
        return JSONResponse(found[0]) if found else error(404, f"there is no model {name!r:.80}", "model_not_found")

    async def programs(self, request: Request) -> Response:
        rows = []
        for name, served in self._service.served.items():
            system = getattr(served.program, "system", "")
            summary = about(PROGRAMS[system])[0] if system in PROGRAMS else "A module of your own."
            rows.append({"name": name, "system": system, "index": served.index, "about": summary})
        return JSONResponse({"programs": rows, "documents": self._documents is not None})

    async def source(self, request: Request) -> Response:
        served = self._service.choose(request.query_params.get("program"))
        pid, text_sum = request.query_params.get("pid", ""), request.query_params.get("sum")
        return JSONResponse(await self._service.searched(lambda: source_of(served.retriever, pid, text_sum)))

    async def document(self, request: Request) -> Response:
        served = self._service.choose(request.query_params.get("program"))
        source = request.query_params.get("source", "")
        found = await self._service.searched(lambda: document_of(self._documents, served.retriever, source))
        # Whatever it holds, it runs nothing and is no page of this site.
        headers = {"content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'"}
        if found.media_type == "application/pdf":
            headers["content-security-policy"] = "default-src 'self'"
        saved_as = found.path.name if found.attachment else None
        return FileResponse(found.path, headers=headers, media_type=found.media_type, filename=saved_as)

    async def healthz(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "questions": self._service.admission.under_way})

    async def metrics(self, request: Request) -> Response:
        return Response(self._service.metrics.text(), media_type="text/plain; version=0.0.4")


async def _body(request: Request) -> Any:
    try:
        return json.loads(await request.body(), object_pairs_hook=_each_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise InputError(f"the body is not JSON ({str(problem)[:80]})") from problem


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Of a name that stands in it twice Python would take the last, and what checks it before, the first."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"the body has {name!r:.80} twice in one object: give it once")
        found[name] = value
    return found


def _no_number(name: str) -> None:
    """Python reads NaN and Infinity, which JSON has not."""
    raise InputError(f"the body has {name}, which JSON has not: give a number, or null")


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


async def _refuse(request: Request, problem: Exception) -> Response:
    status, code = kind_of(problem)
    headers = {"retry-after": str(problem.retry_after)} if isinstance(problem, TooManyQuestions) else None
    return error(status, str(problem), code, headers)


async def _nothing_to_hear(request: Request) -> Response:
    raise HTTPException(405, "the server sends nothing of its own accord: POST what you ask", {"Allow": "POST"})


# A client of MCP may hold a GET open for messages. There are none, and it would hold up the server's end.
_LISTEN = Route("/mcp", _nothing_to_hear, methods=["GET"])


async def _no_such_way(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    told = f"{request.method} {request.url.path}: {problem.detail}"
    code = "not_found" if problem.status_code == 404 else "not_allowed"
    return error(problem.status_code, told, code, problem.headers)


async def _too_large(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, BodyTooLarge)
    return too_large(problem.most)


async def _gone(request: Request, problem: Exception) -> Response:
    return Response(status_code=499)
