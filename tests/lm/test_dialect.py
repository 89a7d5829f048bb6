"""If these failed, models would be sent limits and zeros that they refuse, and filters would end whole questions."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dspy
import pytest
from dspy.lm15 import Config, InvalidRequestError, Message, Request, Response, UnsupportedFeatureError, Usage

from raisf.lm.adapter import COMPLETION
from raisf.lm.connect import connect
from raisf.lm.dialect import Dialect
from raisf.programs.baselines.direct import Direct
from raisf.programs.ra_isf import RAISF
from raisf.retrieval.passage import Passage
from raisf.utils.errors import LMError
from tests.shelf import Shelf

FILTERED = {"message": "The prompt triggered the content management policy.", "code": "content_filter"}
OWN, OPENAIS, AZURES = (
    "http://127.0.0.1:8000/v1",
    "https://eu.api.openai.com/v1",
    "https://x.openai.azure.com/openai/v1",
)


@pytest.fixture
def refusing(faulty: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Serves an endpoint that refuses some requests."""

    @contextmanager
    def serve(error: dict[str, str], refuses: Callable[[Any], bool], **options: Any) -> Iterator[Any]:
        send = faulty.Handler._send

        def told(self: Any, body: bytes, status: int = 200, headers: Any = None, trickle: bool = False) -> None:
            send(self, json.dumps({"error": error}).encode() if status == 400 else body, status, headers, trickle)

        monkeypatch.setattr(faulty.Handler, "_send", told)
        monkeypatch.setitem(faulty.BUSY, "400", (400, None))
        with faulty.serve(**options) as endpoint:
            draw = endpoint.draw
            endpoint.draw = lambda *asked: draw(*asked) or ("400" if refuses(asked[-1]) else None)
            yield endpoint

    return serve


@pytest.mark.parametrize(
    ("model", "place", "name"),
    [
        *(("openai/x", OWN, "max_tokens"), ("openai/gpt-5-mini", OWN, None), ("openai/x", None, None)),
        *(("openai/x", OPENAIS, None), ("openai/x", AZURES, None)),
    ],
)
def test_the_limit_has_the_name_that_every_server_knows(model: str, place: str | None, name: str | None) -> None:
    """Ollama wrote on to the end of its context, and Mistral refused all."""
    told: list[Request] = []

    async def attempt(request: Request) -> None:
        told.append(request)

    asked = Request(model=model, messages=(Message.user("Who?"),), config=Config(max_tokens=5, extensions={"a": 1}))
    asyncio.run(Dialect(dspy.LM(model), place).ask(attempt, asked))
    config = told[0].config
    assert (config.max_tokens, config.extensions) == ((None, {"a": 1, name: 5}) if name else (5, {"a": 1}))


def answered(*faults: Exception, **options: Any) -> tuple[Any, list[Request]]:
    """What is made of a request whose tries fail with these, one after the other, and the tries."""
    told: list[Request] = []
    left = iter(faults)

    async def attempt(request: Request) -> Response:
        told.append(request)
        for fault in left:
            raise fault
        return Response(None, request.model, Message.assistant("Ada"), "stop", Usage())

    asked = Request(model="x", messages=(Message.user("Who?"),), config=Config(temperature=0.0, **options))
    return asyncio.run(Dialect(dspy.LM("openai/x"), OWN).ask(attempt, asked)), told


def test_a_text_that_is_continued_is_sent_the_limit_that_its_endpoint_knows() -> None:
    _, told = answered(max_tokens=5, extensions=COMPLETION)
    assert (told[0].config.max_tokens, told[0].config.extensions) == (5, COMPLETION)


def test_only_what_speaks_of_the_temperature_is_asked_again_without_one() -> None:
    response, told = answered(UnsupportedFeatureError("no temperature"))
    assert response.finish_reason == "stop" and [one.config.temperature for one in told] == [0.0, None]
    with pytest.raises(InvalidRequestError, match="no such model"):
        answered(InvalidRequestError("no such model"), InvalidRequestError("another try"))


def test_what_gemini_blocks_in_a_stream_is_filtered_and_its_other_faults_are_none() -> None:
    code = "inband_finish_reason"
    response, _ = answered(InvalidRequestError("Candidate blocked: SAFETY", provider_code=code))
    assert response.finish_reason == "content_filter"
    with pytest.raises(InvalidRequestError, match="MALFORMED"):
        answered(InvalidRequestError("MALFORMED_FUNCTION_CALL", provider_code=code))


def test_a_model_that_reasons_under_a_name_of_ones_own_is_sent_the_newer_name(refusing: Any) -> None:
    error = {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}
    with refusing(error, lambda body: "max_tokens" in body) as endpoint:
        program = Direct()
        program.set_lm(connect("openai/my-gpt5", api_base=endpoint.url))
        assert program(question="Who?").answer and program(question="Where?").answer


@pytest.mark.parametrize("streamed", [False, True])
def test_a_model_that_refuses_a_temperature_of_0_is_sent_none(
    refusing: Any, streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Newer Claudes could not be asked with the defaults, and the model's name was blamed."""
    error = {"message": "`temperature` is deprecated for this model."}
    with refusing(error, lambda body: "temperature" in body) as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        for question in ("Who?", "Where?"):
            if streamed:
                streamed_program: Any = dspy.streamify(program, async_streaming=False)
                answer = list(streamed_program(question=question))[-1].answer
            else:
                answer = program(question=question).answer
            assert answer.startswith("answer ")
        assert len(endpoint.seen) == 3 and caplog.text.count("openai/x takes no temperature of 0") == 1
        program.set_lm(connect("openai/x", api_base=endpoint.url, temperature=0.5))
        with pytest.raises(LMError, match="deprecated for this model"):
            program(question="When?")


def test_a_passage_that_is_filtered_costs_its_verdict_and_not_the_question(refusing: Any) -> None:
    def answer(fields: dict[str, str]) -> dict[str, str]:
        verdict = "relevant" if "passage" in fields else "unknown"
        return {"verdict": verdict, "evidence": "passage", "answer": "Rome"}

    with refusing(FILTERED, lambda body: "violent" in str(body["messages"]), answer=answer) as endpoint:
        shelf: Any = Shelf(lambda query: [Passage(str(n), "violent" if n == 3 else f"passage {n}") for n in range(5)])
        program = RAISF(shelf, max_depth=0)
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        found = program(question="Who?")
    assert (found.answer, found.trace.unreadable, found.trace.failed) == ("Rome", 1, 0)
    assert [passage.relevant for passage in found.trace.root.passages] == [True, True, True, False, True]


def test_a_question_that_is_filtered_while_it_is_streamed_ends_as_filtered(refusing: Any) -> None:
    with refusing(FILTERED, lambda body: True) as endpoint:
        lm: Any = connect("openai/x", api_base=endpoint.url)
        events = list(lm.endpoint.stream(Request(model=lm.model, messages=(Message.user("Who?"),))))
    assert [event.type for event in events] == ["start", "end"] and events[-1].finish_reason == "content_filter"
