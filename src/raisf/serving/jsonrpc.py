"""What JSON-RPC answers to what is no message: the MCP library lets its client wait for ever, or fails."""

import asyncio
import json
from typing import Any, get_args

from mcp import types
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raisf.serving.guard import STOPPED
from raisf.serving.streaming import sse

_REQUESTS = get_args(types.ClientRequest.model_fields["root"].annotation)
METHODS = {request.model_fields["method"].default for request in _REQUESTS}


class Checked:
    """ASGI middleware before MCP's HTTP application: that is given what is a message, and reads no body itself.

    Of who leaves before its body has come, the library would write a failure of the server into the log. Whoever waits
    for the rest of an answer as the server stops is told so.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        refusal = await run_in_threadpool(refusal_of, body.decode("utf-8-sig", "replace"))
        if refusal is not None:
            # The error of a message that can be read is an answer to it; clients take no other status for one.
            status = 200 if refusal["error"]["code"] == types.METHOD_NOT_FOUND else 400
            await Response(json.dumps(refusal), status, media_type="application/json")(scope, receive, send)
            return
        read: list[Message] = [{"type": "http.request", "body": body}]
        streams = False

        async def again() -> Message:
            return read.pop() if read else await receive()

        async def seen(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                streams = any(
                    name == b"content-type" and b"event-stream" in value for name, value in message["headers"]
                )
            else:
                streams = streams and message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, again, seen)
        except asyncio.CancelledError:  # the server's patience has ended
            if not streams:
                raise
            stopped = _refusal(json.loads(body.decode("utf-8-sig")).get("id"), types.INTERNAL_ERROR, STOPPED)
            await send({"type": "http.response.body", "body": sse(stopped, "message")})


def refusal_of(line: str) -> dict[str, Any] | None:
    """The error that a line, or a body, is answered with; None for a message that can be read."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _refusal(None, types.PARSE_ERROR, f"a message is JSON, and this is none ({error})")
    if not isinstance(message, dict):
        told = f"a message is one object, found {type(message).__name__}: send each by itself"
        return _refusal(None, types.INVALID_REQUEST, told)
    asked = message.get("id")
    if "id" in message and (isinstance(asked, bool) or not isinstance(asked, int | str)):
        told = f"a message's id is {json.dumps(asked):.40}: give a whole number or a text"
        return _refusal(None, types.INVALID_REQUEST, told)
    try:
        types.JSONRPCMessage.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"][1:])) or "the message"
        return _refusal(asked, types.INVALID_REQUEST, f"this is no message of JSON-RPC 2.0 ({field}: {first['msg']})")
    method = message.get("method")
    if "id" in message and "method" in message and method not in METHODS:
        return _refusal(asked, types.METHOD_NOT_FOUND, f"there is no method {method!r:.80}")
    return None


def _refusal(asked: Any, code: int, told: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": asked, "error": {"code": code, "message": told}}
