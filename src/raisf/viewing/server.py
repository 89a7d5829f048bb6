"""The viewer behind HTTP, on this machine: the page, its data in parts, and the report's page."""

import contextlib
import html
import threading
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from raisf.retrieval.serving.listening import HttpServer, own_pages
from raisf.utils.errors import RaisfError
from raisf.viewing.page import as_json, policy, shell
from raisf.viewing.view import View

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# The report's page holds styles and figures, whose styles stand in their elements, and no script.
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'"


class ViewServer(HttpServer):
    """Serves a view, and its new state when the records have changed.

    As a context it is closed at the end: it listens from the first, and `serve` answers.

    Attributes:
        url: Its address.

    Args:
        open_view: Reads the records.
        host: The address to listen at; where it is loopback, requests that name another host are refused, so that no
            website can read the records by a name of its own that leads here (DNS rebinding).
        port: 0: any free one; `url` tells which.

    Raises:
        InputError: It cannot listen there, or there are no records.
    """

    def __init__(self, open_view: Callable[[], View], host: str = "127.0.0.1", port: int = 0) -> None:
        self._open, self._view, self._lock = open_view, open_view(), threading.Lock()
        routes = [
            Route("/", self._page),
            Route("/data/summary.json", self._summary),
            Route("/data/block-{number}.json", self._block),
            Route("/report-{number}", self._report),
        ]
        super().__init__(Starlette(routes=routes, middleware=own_pages(host)), host, port)

    def _fresh(self) -> View:
        """The view, read again where the records have changed; as it was where they cannot be read now."""
        with self._lock:
            with contextlib.suppress(RaisfError, OSError):
                if self._view.stale:
                    self._view = self._open()
            return self._view

    async def _page(self, request: Request) -> Response:
        view = await run_in_threadpool(self._fresh)
        pages = view.sources.pages
        folders = [page.parent.name for page in pages]
        names = [
            f"Report {one if folders.count(one) == 1 else page.parent}"
            for one, page in zip(folders, pages, strict=True)
        ]
        names = ["Report"] if len(pages) == 1 else names
        links = "".join(f'<a href="report-{number}">{html.escape(name)}</a>' for number, name in enumerate(names))
        headers = {"Content-Security-Policy": policy("connect-src 'self'", "frame-ancestors 'none'")}
        body = "".join(shell(view.title, links)).encode("utf-8", "replace")  # a file's name may be no UTF-8
        return HTMLResponse(body, headers=_HEADERS | headers)

    async def _summary(self, request: Request) -> Response:
        view = self._view  # as the page has found it: another reading would take as long again
        return await _json(lambda: view.summary)

    async def _block(self, request: Request) -> Response:
        view = self._view
        if request.query_params.get("version") != view.version:
            return PlainTextResponse("the records have changed: load the page again", 410, _HEADERS)
        number = {str(one): one for one in range(view.blocks)}.get(request.path_params["number"])
        if number is None:
            return PlainTextResponse("no such questions", 404, _HEADERS)
        return await _json(lambda: view.block(number))

    async def _report(self, request: Request) -> Response:
        pages = {str(number): page for number, page in enumerate(self._view.sources.pages)}
        if (page := pages.get(request.path_params["number"])) is None:
            return PlainTextResponse("there is no such report here", 404, _HEADERS)
        try:
            body = await run_in_threadpool(page.read_bytes)
        except OSError:
            return PlainTextResponse("the report's page is gone: write the report again", 404, _HEADERS)
        return HTMLResponse(body, headers=_HEADERS | {"Content-Security-Policy": _REPORT_POLICY})


async def _json(make: Callable[[], object]) -> Response:
    try:
        text = await run_in_threadpool(lambda: as_json(make()))
    except RaisfError as error:
        return PlainTextResponse(str(error), 500, _HEADERS)
    return Response(text.encode("utf-8", "replace"), media_type="application/json", headers=_HEADERS)
