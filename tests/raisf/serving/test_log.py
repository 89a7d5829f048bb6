"""Questions stand in the log only with --log-questions, whatever an endpoint or a retriever says of them."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.connect import connect
from raisf.programs.baselines.rag import RAG
from raisf.serving.limits import Limits
from raisf.serving.service import Served, Service
from raisf.utils.errors import SearchError
from tests.raisf.serving.conftest import post
from tests.scripted import ScriptedLM


class _Parrot(BaseHTTPRequestHandler):
    """Refuses each request, with the end of its prompt."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = {"error": {"message": f"flagged: {asked['messages'][-1]['content'][:200]}"}}
        body = json.dumps(told).encode()
        self.send_response(400)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Iterator[dspy.LM]:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Parrot) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield connect("openai/x", api_base=f"http://127.0.0.1:{server.server_port}/v1", num_retries=0)
        server.shutdown()


class Own(dspy.Module):
    def __init__(self, lm: dspy.LM) -> None:
        super().__init__()
        self.answer = dspy.Predict("question -> answer")
        self.answer.lm = lm

    def forward(self, question: str) -> dspy.Prediction:
        return self.answer(question=question)


@pytest.mark.parametrize("log_questions", [False, True])
@pytest.mark.parametrize(
    ("model", "turns"),
    [
        ("rag", ["Has Anna diabetes?"]),
        ("rag", ["Has Anna  two\nbreaks?"]),
        ("rag", [f"Has Anna a {'very ' * 80} long question?"]),
        ("rag", ["Who is Anna?", "A patient.", "Is she ill?"]),
        ("own", ["Has Anna diabetes?"]),
    ],
)
def test_what_an_endpoint_repeats_is_not_logged(
    rivers: Any, start: Any, parrot: Any, caplog: Any, model: str, turns: list[str], log_questions: bool
) -> None:
    """Only the question's own words were left out, where they came back letter for letter."""
    rag = RAG(rivers, k=1)
    rag.set_lm(parrot)
    service = Service({"rag": Served("rag", rag), "own": Served("own", Own(parrot))}, Limits(rate=0), log_questions)
    said = [{"role": ("user", "assistant")[n % 2], "content": turn} for n, turn in enumerate(turns)]
    with start(service) as server, pytest.raises(OSError, match=r"50[02]"):
        post(f"{server.url}/v1/chat/completions", {"model": model, "messages": said})
    assert ("Anna" in caplog.text) == log_questions and "400" in caplog.text
    if model == "rag" and not log_questions:
        assert "refuses the request (HTTP 400: ...): is the model's name right" in caplog.text


@pytest.mark.parametrize("log_questions", [False, True])
@pytest.mark.parametrize("raises", [AdapterParseError, ValueError])
def test_what_an_lm_repeats_in_a_reply_that_cannot_be_read_is_not_logged(
    start: Any, caplog: Any, raises: type[Exception], log_questions: bool
) -> None:
    class Counting(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = dspy.Predict("question -> count: int")
            self.count.lm = ScriptedLM(lambda fields: f"You ask: {fields['question']} I cannot tell.")

        def forward(self, question: str) -> dspy.Prediction:
            try:
                return dspy.Prediction(answer=str(self.count(question=question).count))
            except AdapterParseError as error:
                if raises is AdapterParseError:
                    raise
                raise raises("nothing was counted") from error

    service = Service({"own": Served("own", Counting())}, Limits(rate=0), log_questions)
    with start(service) as server, pytest.raises(OSError, match="500"):
        post(f"{server.url}/ask", {"question": "Has Anna diabetes?", "stream": False})
    assert ("Anna" in caplog.text) == log_questions
    assert raises.__name__ in caplog.text and "AdapterParseError" in caplog.text


def test_what_a_retriever_repeats_is_not_logged(start: Any, parrot: Any, caplog: Any) -> None:
    def retriever(query: str, k: int) -> list[str]:
        raise RuntimeError(f"500 for http://127.0.0.1/search?q={query.replace(' ', '+')}")

    program = RAG(cast(Any, retriever), k=1)
    program.set_lm(parrot)
    with start(Service({"rag": Served("rag", program)}, Limits(rate=0))) as server, pytest.raises(OSError, match="500"):
        post(f"{server.url}/ask", {"question": "Has Anna diabetes?", "stream": False})
    assert "Anna" not in caplog.text and "failed (RuntimeError)" in caplog.text


def test_an_error_without_a_question_is_logged_as_it_is(parrot: Any) -> None:
    """The search for no passage was logged as "...d...o...w...n..."."""
    service = Service({"own": Served("own", Own(parrot))}, Limits())
    assert service.logged(SearchError("down"), "") == "down"
