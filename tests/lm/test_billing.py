"""If this failed, reports would tell a sixtieth of what a question has cost."""

import json
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import dspy
import pytest
from dspy.clients.engines import AsyncLM15Engine
from dspy.lm15 import Message, Request, StreamEndEvent, StreamStartEvent

from raisf.lm.connect import connect

COUNTS = {"promptTokenCount": 100, "candidatesTokenCount": 15, "thoughtsTokenCount": 900, "totalTokenCount": 1015}
SAID: dict[str, Any] = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Skien"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": COUNTS,
}


class Gemini(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        streamed = "stream" in self.path
        body = f"data: {json.dumps(SAID)}\n\n" if streamed else json.dumps(SAID)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def gemini() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Gemini) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1beta"
        server.shutdown()


def test_what_a_model_thought_is_counted(gemini: str) -> None:
    lm: Any = connect("gemini/gemini-2.5-flash", api_base=gemini).copy(cache=False)
    with dspy.track_usage() as usage:
        assert lm("Where?") == ["Skien"]
    told = usage.get_total_tokens()["gemini/gemini-2.5-flash"]
    assert (told["prompt_tokens"], told["completion_tokens"], told["total_tokens"]) == (100, 915, 1015)
    *_, end = lm.endpoint.stream(Request(model=lm.model, messages=(Message.user("Where?"),)))
    assert (end.usage.input_tokens, end.usage.output_tokens) == (100, 915)


def test_an_answer_whose_end_tells_no_usage_is_streamed_to_it(gemini: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stream(self: Any, request: Request) -> AsyncIterator[Any]:
        yield StreamStartEvent(model=request.model)
        yield StreamEndEvent("stop")

    monkeypatch.setattr(AsyncLM15Engine, "stream", stream)
    lm: Any = connect("gemini/gemini-2.5-flash", api_base=gemini).copy(cache=False)
    events = list(lm.endpoint.stream(Request(model=lm.model, messages=(Message.user("Where?"),))))
    assert [event.type for event in events] == ["start", "end"] and events[-1].usage is None
