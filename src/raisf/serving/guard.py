"""Who may speak to the service: the address that a request names, the site that it comes from, its key, its size."""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raisf.retrieval.serving.listening import from_another_site, is_loopback
from raisf.utils.errors import InputError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = ("/", "/healthz")
"""What needs no key, beside the page's files: the page, which asks for one, and what a supervisor looks at."""
SHORTEST_KEY = 16
STOPPED = "the server was told to stop, and the answer took too long: ask again"
MOST_UNREAD = 64 << 20
"""Bytes of a refused body that are read all the same, and dropped, so that its sender sees the refusal."""

_NAME = re.compile(r"[a-z0-9_.-]+|[0-9a-f:.]*:[0-9a-f:.]*:[0-9a-f.]*")
"""A host's name as a request has it, or an IPv6 address."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """Who may speak to the service.

    Attributes:
        hosts: The names that a request's Host may have; empty: any. Any other name is a page that has its own name
            resolved to this machine (DNS rebinding).
        keys: SHA-256 of each key that is taken; empty: none is asked for.
    """

    hosts: frozenset[str] = LOOPBACK
    keys: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, host: str, key_file: Path | None, hosts: Iterable[str] = ()) -> "Access":
        """The access of a service that listens at an address.

        Args:
            host: The address.
            key_file: Holds the keys, a line each.
            hosts: Further names of this machine, for a proxy in front of it.

        Raises:
            InputError: Others than this machine reach the address and there is no key; the file holds none; or what is
                given as a name is none.
        """
        local = is_loopback(host)
        if not local and key_file is None:
            raise InputError(
                f"{host} can be reached from outside: give --api-key-file FILE with a key of {SHORTEST_KEY} characters "
                "or more, or listen at 127.0.0.1"
            )
        named = {name.lower() for name in hosts}
        for name in named:
            if _NAME.fullmatch(name) is None:
                raise InputError(
                    f"--allow-host {name!r:.80} is no name of a machine: give it bare, such as raisf.example, without "
                    "scheme, port and path"
                )
        own = LOOPBACK | ({host} if local else frozenset())
        return cls(frozenset(own | named if local or named else ()), _keys(key_file) if key_file else ())

    def knows(self, authorization: str) -> bool:
        """Whether a request's Authorization names a key; takes equally long for all keys."""
        kind, _, given = authorization.partition(" ")
        digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
        return any([hmac.compare_digest(digest, key) for key in self.keys]) and kind.lower() == "bearer"


def _keys(path: Path) -> tuple[bytes, ...]:
    try:
        keys = [line.strip() for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the keys in {path} ({error}): give a text file with a key a line") from error
    if not keys:
        raise InputError(f"{path} holds no key: write one of {SHORTEST_KEY} characters or more into it")
    if told := [number for number, key in enumerate(keys, 1) if key.startswith("#")]:
        raise InputError(f"key {told[0]} in {path} begins with #: a comment would be a key, so drop it")
    if short := [number for number, key in enumerate(keys, 1) if len(key) < SHORTEST_KEY]:
        raise InputError(f"key {short[0]} in {path} is shorter than {SHORTEST_KEY} characters: make a longer one")
    if strange := [number for number, key in enumerate(keys, 1) if not (key.isascii() and key.isprintable())]:
        raise InputError(f"key {strange[0]} in {path} is not of ASCII characters, and no header carries others")
    return tuple(hashlib.sha256(key.encode()).digest() for key in keys)


class Guard:
    """ASGI middleware: refuses what may not come in, before anything reads it.

    Args:
        app: What answers the rest.
        access: Who may.
        body: Bytes of a body at most.
        refused: Called with the reason of each refusal.
    """

    def __init__(self, app: ASGIApp, access: Access, body: int, refused: Callable[[str], Any]) -> None:
        self._app, self._access, self._body, self._refused = app, access, body, refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, begun = Headers(scope=scope), False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                # MCP's library asks to keep a connection, which is for one request.
                given = [(name, value) for name, value in message["headers"] if name != b"connection"]
                present = {name for name, _ in given}
                more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in present]
                message = {**message, "headers": [*given, *more]}
            await send(message)

        refusal = self._refusal(scope["method"], scope["path"], headers)
        if refusal is not None:
            reason, response = refusal
            self._refused(reason)
            if "expect" not in headers:
                await _rest(receive)
            await response(scope, receive, guarded)
            return
        try:
            await self._app(scope, _limited(receive, self._body, self._refused), guarded)
        except asyncio.CancelledError:  # the server's patience has ended
            if begun:
                raise
            await error(503, STOPPED, "stopped")(scope, receive, guarded)

    def _refusal(self, method: str, path: str, headers: Headers) -> tuple[str, JSONResponse] | None:
        host = headers.get("host", "")
        # A name and a port, and nothing else that an address may have: a Host names no user.
        name = "" if set(host) & set("@/?#\\") else _hostname(f"//{host}")
        if self._access.hosts and name not in self._access.hosts:
            return "host", error(421, f"this service is not {host!r:.80}", "invalid_host")
        # A link to the page may be followed, a citation's in another chat for one: the page holds nothing, and no frame
        # may hold it.
        followed = (method, path, headers.get("sec-fetch-mode")) == ("GET", "/", "navigate")
        if not followed and from_another_site(headers):
            return "origin", error(403, "a page of another site may not ask here", "invalid_origin")
        public = path in OPEN or path.startswith("/page/")
        if self._access.keys and not public and not self._access.knows(headers.get("authorization", "")):
            refused = error(401, "give a key: Authorization: Bearer KEY", "invalid_api_key")
            refused.headers["www-authenticate"] = "Bearer"
            return "key", refused
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._body:
            return "body", too_large(self._body)
        return None


class BodyTooLarge(Exception):
    """A body without a length that turned out too large.

    Attributes:
        most: Bytes that it may have.
    """

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.most = most


def too_large(most: int) -> JSONResponse:
    """The refusal of a body."""
    return error(413, f"a body has {most:,} bytes at most", "too_large")


def _limited(receive: Receive, most: int, refused: Callable[[str], Any]) -> Receive:
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            refused("body")
            if message.get("more_body"):
                await _rest(receive)
            raise BodyTooLarge(most)
        return message

    return limited


async def _rest(receive: Receive) -> None:
    """Reads what is left of a body: who is still sending would see a broken connection, not the answer."""
    size, more = 0, True
    while more and size < MOST_UNREAD:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)


def error(status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A refusal, in the form of OpenAI's API."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "code": code}}, status, headers)


def _hostname(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
