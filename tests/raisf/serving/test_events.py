"""POST /ask: what a page and a program of one's own see of a question."""

import http.client
import json
import math
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.programs.baselines.replug import REPLUG
from raisf.retrieval.serving import listening
from raisf.serving.limits import Limits
from raisf.serving.service import Served, Service

SAID = {"role": "user", "content": "Where is Oltrey?"}


def test_the_tree_comes_event_by_event(server: Any, ask: Any) -> None:
    events = ask(server.url, ask.sea)
    assert [event.get("type") for event in events[:2]] == [None, "question"] and events[0]["program"] == "ra-isf"
    done = events[-1]
    assert done["type"] == "done" and done["answer"] == "Pasmur Sea"
    subs = done["trace"]["root"]["sub_questions"]
    assert [sub["answer"] for sub in subs] == ["Funzol River", "Pasmur Sea"]
    assert {event["node"] for event in events if event.get("type") == "answer"} == {"0", "0.1", "0.2"}


def test_one_json_for_who_asks_for_it(server: Any, ask: Any) -> None:
    with ask.post(f"{server.url}/ask", {"question": ask.sea, "stream": False, "program": "rag"}) as response:
        done = json.loads(response.read())
    assert done["answer"] == "Pasmur Sea" and done["trace"]["system"] == "rag"


@pytest.mark.parametrize("stream", ["false", 0, []])
def test_a_stream_is_wanted_or_not(server: Any, ask: Any, stream: Any) -> None:
    for path, more in (("/ask", {"question": "Where is Oltrey?"}), ("/v1/chat/completions", {"messages": [SAID]})):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask.post(f"{server.url}{path}", {**more, "stream": stream})
        assert refused.value.code == 400 and "give true or false" in refused.value.read().decode()


def test_a_client_that_goes_away_stops_its_run(server: Any, service: Service, script: Any, ask: Any) -> None:
    response = ask.post(f"{server.url}/ask", {"question": "slow Bulgorton?"})
    next(ask.events(response))
    assert script.begun.wait(60)
    assert service.admission.under_way == 1
    response.close()
    _until(lambda: b'outcome="stopped"' in service.metrics.text())
    script.let_go.set()
    _until(lambda: service.admission.under_way == 0)
    assert len(service.served["ra-isf"].program.know.lm.calls) == 1


def test_a_client_of_the_whole_answer_that_goes_away_stops_its_run(server: Any, service: Service, script: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/ask", json.dumps({"question": "slow?", "stream": False}))
    assert script.begun.wait(60)
    connection.close()
    _until(lambda: b'outcome="stopped"' in service.metrics.text())
    script.let_go.set()
    _until(lambda: service.admission.under_way == 0)


def test_what_fails_is_told_in_the_stream(server: Any, ask: Any) -> None:
    *_, last = ask(server.url, "Does it fail?")
    assert last == {"type": "error", "message": "the endpoint is down: start it again", "kind": "lm_failed"}


def test_a_programming_error_is_told_without_its_words(server: Any, ask: Any, service: Service) -> None:
    class Mine(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            raise ZeroDivisionError("secret")

    service.served["mine"] = Served("mine", Mine())
    *_, last = ask(server.url, "Which river?", program="mine")
    assert last["kind"] == "failed" and "secret" not in last["message"]


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "an object"),
        ({"question": ""}, 400, "empty"),
        ({"question": 5}, 400, "a question is text"),
        ({"question": "x" * 20_001}, 400, "20,000"),
        ({"question": "Who?", "program": "nope"}, 404, "choose ra-isf, rag"),
        ({"question": "Who?", "program": 7}, 404, "choose ra-isf, rag"),
        ({"question": "Who?", "max_calls": 0}, 400, "above 0"),
        ({"question": "Who?", "max_calls": True}, 400, "above 0"),
        ({"question": "Who?", "max_seconds": "long"}, 400, "above 0"),
        ({"question": "Who?", "max_seconds": math.nan}, 400, "the body has NaN, which JSON has not"),
        (b'{"question": "Who?", "max_seconds": -Infinity}', 400, "the body has -Infinity"),
        (b'{"question": "Who?", "max_seconds": 1e999}', 400, "above 0"),
        (b'{"question": "Who?", "question": "Where?"}', 400, "the body has 'question' twice"),
        ({"question": "\ud800"}, 400, "Unicode"),
        (b"[" * 100_000, 400, "not JSON"),
    ],
)
def test_what_is_no_question_is_refused_with_a_reason(server: Any, ask: Any, body: Any, status: int, told: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask.post(f"{server.url}/ask", body)
    assert caught.value.code == status and told in json.loads(caught.value.read())["error"]["message"]


def test_a_requests_budget_holds(server: Any, ask: Any) -> None:
    done = ask(server.url, ask.sea, max_calls=3)[-1]
    assert done["trace"]["cost"]["lm_calls"] == 3 and done["trace"]["root"]["route"] == "budget"


@pytest.mark.parametrize("limit", ["max_calls", "max_seconds"])
def test_no_request_raises_the_servers_own_limits(make: Any, start: Any, ask: Any, limit: str, script: Any) -> None:
    script.pause = 0.2
    with start(make(Limits(rate=0, **{limit: 1}))) as server:
        done = ask(server.url, ask.sea, **{limit: 60})[-1]
    assert done["trace"]["root"]["route"] == "budget" and f"{limit}=1" in done["trace"]["root"]["reason"]


@pytest.mark.parametrize("path", ["/ask", "/v1/chat/completions"])
def test_calls_that_nobody_counts_are_not_said_to_be_limited(
    server: Any, service: Service, ask: Any, path: str
) -> None:
    service.served["own"] = Served("own", dspy.Predict("question -> answer"))
    message = {"role": "user", "content": "Who?"}
    body = {"question": "Who?", "program": "own"} if path == "/ask" else {"model": "own", "messages": [message]}
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask.post(server.url + path, body | {"max_calls": 1})
    assert caught.value.code == 400 and b"own is a module of the server's own" in caught.value.read()
    assert service.admission.under_way == 0


class Own(dspy.Module):
    def forward(self, question: str) -> Any:
        return "Oltrey" if question == "bare" else dspy.Prediction(answer=True)


def test_a_fault_of_a_module_of_ones_own_is_the_servers_and_in_the_log(
    server: Any, service: Service, ask: Any, caplog: Any
) -> None:
    service.served["own"] = Served("own", Own())
    with caplog.at_level("INFO", "raisf.serving"), pytest.raises(urllib.error.HTTPError, match="500") as failed:
        ask.post(f"{server.url}/ask", {"question": "bare", "program": "own", "stream": False})
    assert b"Own gave a str" in failed.value.read()
    assert [record.levelname for record in caplog.records if "Own gave a str" in record.message] == ["WARNING"]


def test_a_question_that_is_too_long_for_the_model_is_the_clients_whatever_reads_it(
    server: Any, rivers: Any, service: Service, ask: Any
) -> None:
    for name, program in (("rag", RAG(rivers)), ("replug", REPLUG(rivers))):
        program.set_lm(connect("pocket"))
        service.served[name] = Served(name, program)
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            ask.post(f"{server.url}/ask", {"question": "Where is it? " * 1_500, "program": name, "stream": False})
        assert b"cannot read so much" in refused.value.read()


def test_a_module_of_ones_own_says_yes_as_it_does_elsewhere(server: Any, service: Service, ask: Any) -> None:
    service.served["own"] = Served("own", Own())
    told = [event for event in ask(server.url, "Is it?", program="own") if event.get("type") in ("answer", "done")]
    assert [event["answer"] for event in told] == ["yes", "yes"]


class Endless(dspy.Module):
    """Asks again and again, by itself or through a program that it holds."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, question: str) -> dspy.Prediction:
        for number in range(10_000):
            self.inner(question=f"{question} {number}")
            time.sleep(0.02)
        return dspy.Prediction(answer="late")


@pytest.mark.slow
@pytest.mark.parametrize("inner", [dspy.Predict("question -> answer"), Direct()], ids=["predictor", "program"])
@pytest.mark.parametrize("ends", ["limit", "leaving"])
def test_a_module_of_ones_own_ends_with_its_seconds_or_its_client(
    server: Any, service: Service, ask: Any, faulty: Any, inner: Any, ends: str
) -> None:
    with faulty.serve() as endpoint:
        own = Endless(inner)
        own.set_lm(connect("openai/x", api_base=endpoint.url))
        service.served["own"] = Served("own", own)
        begun = time.monotonic()
        if ends == "limit":
            *_, done = ask(server.url, "Who?", program="own", max_seconds=2)
            assert done["answer"] == "unknown" and time.monotonic() - begun < 4
        else:
            response = ask.post(f"{server.url}/ask", {"question": "Who?", "program": "own"})
            _until(lambda: len(endpoint.seen) > 3)
            response.close()
        _until(lambda: service.admission.under_way == 0)
        time.sleep(0.2)
        asked = len(endpoint.seen)
        time.sleep(0.5)
        assert asked == len(endpoint.seen) > 3


def test_a_module_that_computes_is_not_waited_for(server: Any, service: Service, ask: Any) -> None:
    class Computes(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            time.sleep(5)
            return dspy.Prediction(answer="late")

    service.served["own"] = Served("own", Computes())
    events = ask(server.url, "Who?", program="own", max_seconds=0.3)
    (told,) = [event for event in events if event.get("type") == "answer"]
    assert told["route"] == "budget" and "max_seconds=0.3" in told["reason"] and events[-1]["answer"] == "unknown"


def test_too_many_at_once_are_told_when_to_come_again(make: Any, start: Any, script: Any, ask: Any) -> None:
    with start(make(Limits(concurrency=1, rate=0))) as server:
        first = ask.post(f"{server.url}/ask", {"question": "slow?"})
        assert script.begun.wait(60)
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask.post(f"{server.url}/ask", {"question": "Who?"})
        assert caught.value.code == 429 and int(caught.value.headers["retry-after"]) >= 1
        with urllib.request.urlopen(f"{server.url}/metrics") as told:
            assert 'raisf_refused_total{reason="concurrency"} 1.0' in told.read().decode()
        script.let_go.set()
        assert [*ask.events(first)][-1]["type"] == "done"
        _until(lambda: ask(server.url, "number 4")[-1]["answer"] == "A4")


def test_a_clients_rate_is_bounded(make: Any, start: Any, ask: Any) -> None:
    with start(make(Limits(rate=2))) as server:
        ask(server.url, "number 1")
        ask(server.url, "number 2")
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(server.url, "number 3")
        assert caught.value.code == 429 and 1 <= int(caught.value.headers["retry-after"]) <= 30


def test_who_is_cut_off_when_the_server_stops_is_told_so(
    make: Any, start: Any, ask: Any, script: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(listening, "GRACE", 0.3)
    message = {"messages": [{"role": "user", "content": "slow?"}], "model": "ra-isf"}
    asked = {
        "/ask": {"question": "slow?"},
        "/ask ": {"question": "slow?", "stream": False},
        "/v1/chat/completions": {**message, "stream": True},
        "/v1/chat/completions ": message,
    }

    def told(url: str, path: str) -> tuple[int, str, str]:
        try:
            with ask.post(url + path.strip(), asked[path]) as answer:
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["content-type"], error.read().decode()

    with ThreadPoolExecutor(4) as pool:
        with start(make()) as server:
            found = {path: pool.submit(told, server.url, path) for path in asked}
            _until(lambda: json.load(ask_get(f"{server.url}/healthz"))["questions"] == 4)
        script.let_go.set()
        ends = {path: one.result() for path, one in found.items()}
    for path, (status, kind, text) in ends.items():
        assert "the server was told to stop" in text
        if path.endswith(" "):
            assert (status, kind) == (503, "application/json") and json.loads(text)["error"]["code"] == "stopped"
        else:
            assert (status, kind.partition(";")[0]) == (200, "text/event-stream")
    events = [json.loads(line[6:]) for line in ends["/ask"][2].splitlines() if line.startswith("data: ")]
    assert events[-1]["type"] == "error" and events[-1]["kind"] == "stopped"
    assert ends["/v1/chat/completions"][2].endswith("data: [DONE]\n\n")
    assert "Exception in ASGI" not in caplog.text


def test_the_log_holds_questions_only_if_asked(make: Any, start: Any, ask: Any, caplog: Any) -> None:
    caplog.set_level("INFO", logger="raisf.serving")
    for log_questions in (False, True):
        caplog.clear()
        with start(make(log_questions=log_questions)) as server:
            cost = ask(server.url, "number 7 of Velm")[-1]["trace"]["cost"]
        (row,) = [json.loads(record.message) for record in caplog.records if record.name == "raisf.serving"]
        assert row["outcome"] == "answered" and row["lm_calls"] == 2 and ("Velm" in json.dumps(row)) == log_questions
        assert row["tokens"] == cost["prompt_tokens"] + cost["completion_tokens"]


def test_the_log_says_why_a_question_was_not_answered(make: Any, start: Any, ask: Any, caplog: Any) -> None:
    caplog.set_level("INFO", logger="raisf.serving")
    with start(make()) as server:
        ask(server.url, "will this fail?")
        body = json.dumps({"question": "an endless one", "stream": False}).encode()
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/ask", body))
        refused.value.close()
    said = [record.message for record in caplog.records if record.name == "raisf.serving"]
    rows = [json.loads(one) for one in said if one.startswith("{")]
    assert [(row["outcome"], row["error"]) for row in rows] == [("failed", "lm_failed"), ("refused", "invalid_request")]
    assert [one for one in said if "endpoint is down" in one] and not any("will this" in one for one in said)


def test_figures_for_prometheus(server: Any, ask: Any) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    cost = ask(server.url, "number 1")[-1]["trace"]["cost"]
    with ask_get(f"{server.url}/metrics") as response:
        families = {family.name: family for family in text_string_to_metric_families(response.read().decode())}
    (questions,) = [sample for sample in families["raisf_questions"].samples if sample.name.endswith("_total")]
    assert questions.labels == {"program": "ra-isf", "outcome": "answered"} and questions.value == 1
    assert families["raisf_lm_calls"].samples[0].value == 2
    tokens = {one.labels["kind"]: one.value for one in families["raisf_tokens"].samples if one.name.endswith("_total")}
    assert tokens == {"prompt": cost["prompt_tokens"], "completion": cost["completion_tokens"]}


def ask_get(url: str) -> Any:
    import urllib.request

    return urllib.request.urlopen(url, timeout=60)


def _until(condition: Any) -> None:
    ends = time.monotonic() + 60
    while True:
        try:
            if condition():
                return
        except urllib.error.HTTPError:
            pass
        assert time.monotonic() < ends
        time.sleep(0.02)
