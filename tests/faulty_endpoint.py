"""An OpenAI-compatible endpoint on loopback that knows the answers and, as often as it is told, does something wrong.

with serve(rate=0.1, seed=1) as endpoint:
    connect("openai/x", api_base=endpoint.url)

python tests/faulty_endpoint.py PORT RATE SEED [KIND,KIND,...]
"""

import argparse
import contextlib
import json
import random
import re
import secrets
import socket
import struct
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fields = dict[str, str]
FIELD = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*$", re.MULTILINE)
INSTRUCTION = re.compile(r"\n\nRespond with (the corresponding output fields|a JSON object).*", re.DOTALL)

BODIES: dict[str, Callable[[str], bytes]] = {
    "html": lambda right: b"<html><body><h1>502 Bad Gateway</h1></body></html>",
    "broken json": lambda right: b'{"choices": [{"message": {"content": "know"',
    "not utf-8": lambda right: completion("XXX").replace(b"XXX", b"\xff\xfe\x80"),
    "null": lambda right: b"null",
    "null content": lambda right: completion(None),
    "no choices": lambda right: completion(right).replace(b'"choices": [', b'"choices": [], "others": ['),
    "number": lambda right: completion(7),
    "empty": lambda right: completion(""),
    "wrong fields": lambda right: completion("[[ ## verdit ## ]]\nknow\n\n[[ ## anser ## ]]\nx"),
    "null fields": lambda right: completion('{"verdict": null, "answer": null, "sub_questions": null}'),
    "prose": lambda right: completion("I am not sure what you would like me to do."),
    "cut": lambda right: completion(right[: len(right) // 3], "length"),
    "huge": lambda right: completion("know relevant " * 100_000),
    "error": lambda right: b'{"error": {"message": "model overloaded"}}',
}
"""What is sent with status 200."""
BUSY = {"429": (429, "1"), "429 long": (429, "3600"), "500": (500, None), "503 long": (503, "3600")}
"""Status and Retry-After."""
CONNECTION = ("reset", "silent", "trickle")
KINDS = (*BODIES, *BUSY, *CONNECTION)


def completion(content: Any, finish: str = "stop") -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return json.dumps(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "x", "choices": [choice], "usage": usage}
    ).encode()


def right(fields: Fields) -> dict[str, Any]:
    """Every output that a program may ask for: a third of the questions is known, a third of the passages relevant."""
    drawn = zlib.crc32(" ".join(fields.values()).encode())
    judged = "relevant" if drawn % 3 == 0 else "irrelevant"
    known = "know" if drawn % 3 == 0 else "unknown"
    asked = fields.get("question", "")
    return {
        "verdict": judged if "passage" in fields else known,
        "reasoning": "because",
        "evidence": "evidence",
        "sub_questions": [f"{asked} first?", f"{asked} second?"],
        "relevant_ids": [1],
        "answer": f"answer {drawn % 1000}",
    }


class Endpoint(ThreadingHTTPServer):
    """Attributes: `seen` (each request's path, headers and body) and `faults` (how often each kind was sent)."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self, rate: float, seed: int, kinds: Sequence[str], answer: Callable[[Fields], dict[str, Any] | str], port: int
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.rate, self.kinds, self.answer = rate, kinds, answer
        self.pause = 6.0  # seconds that "silent" is silent, and "trickle" takes for ten bytes
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.faults: Counter[str] = Counter()
        # A port comes again, and answers are cached by address; one that is given stays what it is, for campaigns.
        self._own = "" if port else f"/{secrets.token_hex(4)}"
        self._rng, self._lock = random.Random(seed), threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self._own}/v1"

    def draw(self, path: str, headers: dict[str, str], body: Any) -> str | None:
        with self._lock:
            self.seen.append((path, headers, body))
            kind = self._rng.choice(self.kinds) if self._rng.random() < self.rate else None
            if kind:
                self.faults[kind] += 1
            return kind

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that gave up


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a reply in two parts would wait 40 ms for the first one's receipt
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        kind = self.server.draw(self.path, dict(self.headers), body)
        said = self._right(body)
        if kind in BODIES:
            self._send(BODIES[kind](said))
        elif kind in BUSY:
            status, patience = BUSY[kind]
            self._send(b'{"error": {"message": "not now"}}', status, {"Retry-After": patience} if patience else {})
        elif kind == "moved":
            self._send(completion(said), 307, {"location": "https://elsewhere.example/v1/chat?key=secret"})
        elif kind == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
        elif kind == "silent":
            time.sleep(self.server.pause)
            self.close_connection = True
        elif kind == "trickle":
            self._send(completion(said), trickle=True)
        elif body.get("stream"):
            self._stream(said)
        else:
            self._send(completion(said))

    def _right(self, body: Any) -> str:
        text = str(body["messages"][-1]["content"] if "messages" in body else body["prompt"])
        _, *parts = FIELD.split(INSTRUCTION.sub("", text))
        outputs = self.server.answer({n: v.strip() for n, v in zip(parts[::2], parts[1::2], strict=True)})
        if isinstance(outputs, str):
            return outputs
        if "JSON object" in text:
            return json.dumps(outputs)
        values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in outputs.items()}
        return (
            "\n\n".join(f"[[ ## {name} ## ]]\n{value}" for name, value in values.items()) + "\n\n[[ ## completed ## ]]"
        )

    def _send(
        self, body: bytes, status: int = 200, headers: dict[str, str] | None = None, trickle: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(body), 10) if trickle else ():
            self.wfile.write(body[start : start + 10])
            time.sleep(self.server.pause)
        if not trickle:
            self.wfile.write(body)

    def _stream(self, said: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for piece in [*re.findall(r"\S+\s*", said), None]:
            delta = {"content": piece} if piece else {}
            choice = {"index": 0, "delta": delta, "finish_reason": None if piece else "stop"}
            chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "x", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serve(
    rate: float = 0.0,
    seed: int = 0,
    kinds: Sequence[str] = KINDS,
    answer: Callable[[Fields], dict[str, Any] | str] = right,
    port: int = 0,
) -> Iterator[Endpoint]:
    """Serve in a thread of its own.

    Args:
        rate: The share of requests that go wrong, 0 to 1.
        seed: Of the draws.
        kinds: How, each as often as the others; of `KINDS`.
        answer: From a request's input fields to its outputs, or to the whole reply.
        port: 0 takes a free one.
    """
    endpoint = Endpoint(rate, seed, kinds, answer, port)
    threading.Thread(target=endpoint.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield endpoint
    finally:
        endpoint.shutdown()
        endpoint.server_close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("rate", type=float)
    parser.add_argument("seed", type=int)
    parser.add_argument("kinds", nargs="?", default=",".join(KINDS), help="default: all")
    given = parser.parse_args()
    with serve(given.rate, given.seed, given.kinds.split(","), port=given.port) as running:
        print(running.url, flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print(dict(running.faults))
