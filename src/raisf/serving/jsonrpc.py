"""What JSON-RPC answers to a line that is no message: the MCP library lets its client wait for ever."""

import json
from typing import Any, get_args

from mcp import types
from pydantic import ValidationError

_REQUESTS = get_args(types.ClientRequest.model_fields["root"].annotation)
METHODS = {request.model_fields["method"].default for request in _REQUESTS}


def refusal_of(line: str) -> str | None:
    """The error that a line is answered with; None for a message that can be read."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _refusal(None, types.PARSE_ERROR, f"a line is a message in JSON, and this is none ({error})")
    if not isinstance(message, dict):
        told = f"a message is one object, found {type(message).__name__}: send each on a line of its own"
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


def _refusal(asked: Any, code: int, told: str) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": asked, "error": {"code": code, "message": told}})
