"""OpenAI's chat completions: the official client and DSPy's use a program as a model."""

import http.client
import json
import time
import urllib.error
from dataclasses import replace
from typing import Any

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.programs.baselines.direct import Direct
from raisf.programs.conversation import Conversation, Turn
from raisf.serving.openai_api import read_chat
from raisf.serving.service import Served, Service
from tests.raisf.serving.conftest import until
from tests.scripted import ScriptedLM

openai = pytest.importorskip("openai")


@pytest.fixture
def client(server: Any) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def say(question: str) -> list[Any]:
    return [{"role": "user", "content": question}]


def test_models_are_the_programs(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["ra-isf", "rag"]


def test_an_answer_with_its_citations_its_trace_and_its_usage(client: Any, ask: Any) -> None:
    given = client.chat.completions.create(model="ra-isf", messages=say(ask.sea))
    choice = given.choices[0]
    assert choice.message.content == "Pasmur Sea" and choice.finish_reason == "stop"
    cited = [note.url_citation for note in choice.message.annotations]
    assert "atlas/rivers.md, line 1" in [note.title for note in cited]
    assert all(note.url.startswith("http://127.0.0.1") and note.end_index == len("Pasmur Sea") for note in cited)
    assert given.trace["root"]["sub_questions"][0]["answer"] == "Funzol River"
    assert given.usage.total_tokens == given.usage.prompt_tokens + given.usage.completion_tokens > 0


def test_streamed_with_usage_and_events(client: Any, ask: Any) -> None:
    options: Any = {"stream": True, "stream_options": {"include_usage": True}, "extra_body": {"trace": True}}
    chunks = list(client.chat.completions.create(model="ra-isf", messages=say(ask.sea), **options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Pasmur Sea" and chunks[-1].usage.total_tokens > 0 and not chunks[-1].choices
    kinds = [chunk.trace_event["type"] for chunk in chunks if getattr(chunk, "trace_event", None)]
    assert kinds[0] == "question" and {"passages", "answer"} <= set(kinds)  # a late look finds passages judged
    (last,) = [chunk for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert last.trace["root"]["answer"] == "Pasmur Sea" and last.choices[0].delta.annotations


def test_a_stream_tells_no_events_unless_asked(client: Any, ask: Any) -> None:
    chunks = list(client.chat.completions.create(model="rag", messages=say(ask.sea), stream=True))
    assert not any(getattr(chunk, "trace_event", None) for chunk in chunks)
    assert all(chunk.choices for chunk in chunks)


def test_earlier_turns_make_the_question_stand_alone(client: Any, service: Service) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Which river flows through Bulgorton?"},
        {"role": "assistant", "content": "Funzol River"},
        {"role": "user", "content": [{"type": "text", "text": "Where does it end?"}]},
    ]
    given = client.chat.completions.create(model="ra-isf", messages=turns)
    assert given.trace["root"]["question"] == "Where does the Funzol River end?"
    # The call that rewrote it is one of the question's own: it counts, and the question's limit holds for it.
    alone = client.chat.completions.create(model="ra-isf", messages=say("Where does the Funzol River end?"))
    assert given.usage.lm_calls == alone.usage.lm_calls + 1 == given.trace["cost"]["lm_calls"]
    assert given.usage.prompt_tokens > alone.usage.prompt_tokens and given.usage.unmetered_calls == 0
    short = client.chat.completions.create(model="ra-isf", messages=turns, extra_body={"max_calls": 1})
    assert short.trace["root"]["route"] == "budget" and short.usage.lm_calls == 1


def test_earlier_turns_are_read_as_the_program_is_served_to_read_them(client: Any, service: Service) -> None:
    """Else a compiled conversation that the server was given would read nothing."""

    class Compiled(Conversation):
        def standalone(self, question: str, turns: Any, run: Any = None) -> str:
            return f"{question} number {len(turns)}"

    served = service.served["ra-isf"]
    service.served["ra-isf"] = replace(served, conversation=Compiled(served.program))
    turns = [*say("Which river?"), {"role": "assistant", "content": "It"}, *say("And where?")]
    given = client.chat.completions.create(model="ra-isf", messages=turns)
    assert given.trace["root"]["question"] == "And where? number 2"


def test_a_question_that_is_left_while_it_is_rewritten_stops(server: Any, service: Service, script: Any) -> None:
    turns = [*say("Which river?"), {"role": "assistant", "content": "It"}, *say("slow rewriting?")]
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("POST", "/v1/chat/completions", json.dumps({"messages": turns, "stream": True}))
    assert script.begun.wait(60)
    connection.close()
    until(lambda: b'outcome="stopped"' in service.metrics.text())
    assert service.admission.under_way == 1
    script.let_go.set()
    until(lambda: service.admission.under_way == 0)
    assert len(service.served["ra-isf"].program.know.lm.calls) == 1


def test_what_dspys_cache_answers_is_told_apart(faulty: Any, service: Service, client: Any) -> None:
    with faulty.serve() as endpoint:
        service.served["rag"].program.set_lm(connect("openai/x", api_base=endpoint.url))
        first, again = (client.chat.completions.create(model="rag", messages=say("Who?")).usage for _ in range(2))
    assert (first.lm_calls, first.unmetered_calls) == (1, 0) and first.total_tokens == 15
    assert (again.lm_calls, again.unmetered_calls) == (1, 1) and again.total_tokens == 0


def test_a_module_of_ones_own_has_its_usage_too(faulty: Any, service: Service, client: Any) -> None:
    class Own(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.write = dspy.Predict("question -> answer")

        def forward(self, question: str) -> dspy.Prediction:
            return self.write(question=question)

    own = Own()
    own.set_lm(service.served["rag"].program.get_lm())
    service.served["own"] = Served("own", own)
    usage = client.chat.completions.create(model="own", messages=say("number 4")).usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    with faulty.serve() as endpoint:
        own.set_lm(connect("openai/x", api_base=endpoint.url))
        first, again = (client.chat.completions.create(model="own", messages=say("Who?")).usage for _ in range(2))
    assert (first.lm_calls, first.unmetered_calls) == (1, 0) and first.total_tokens == 15
    assert (again.lm_calls, again.unmetered_calls) == (1, 1) and again.total_tokens == 0  # DSPy's cache answers


def test_a_module_that_hands_on_what_a_program_said_has_made_its_own_calls_too(service: Service, client: Any) -> None:
    class Rewording(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reword, self.inner = dspy.Predict("question -> answer"), Direct()

        def forward(self, question: str) -> dspy.Prediction:
            return self.inner(question=self.reword(question=question).answer)

    own = Rewording()
    own.set_lm(lm := ScriptedLM(lambda fields: {"answer": "number 4"}))
    service.served["own"] = Served("own", own)
    given = client.chat.completions.create(model="own", messages=say("number 4"))
    assert given.usage.lm_calls == len(lm.calls) == 2 and given.trace["cost"]["lm_calls"] == 1
    assert given.usage.prompt_tokens > given.trace["cost"]["prompt_tokens"]


def test_a_model_can_be_asked_about(client: Any, service: Service) -> None:
    service.served["team/rag"] = service.served["rag"]
    for name in ("rag", "team/rag"):
        assert client.models.retrieve(name).id == name
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4o'"):
        client.models.retrieve("gpt-4o")
    with pytest.raises(openai.NotFoundError, match="POST /v1/embeddings: Not Found"):
        client.embeddings.create(model="rag", input="text")


def test_errors_are_those_that_the_client_knows(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="choose ra-isf, rag"):
        client.chat.completions.create(model="gpt-4o", messages=say("Who?"))
    with pytest.raises(openai.BadRequestError, match="one answer"):
        client.chat.completions.create(model="rag", messages=say("Who?"), n=2)
    with pytest.raises(openai.APIStatusError, match="the endpoint is down"):
        client.chat.completions.create(model="ra-isf", messages=say("Does it fail?"))
    with pytest.raises(openai.APIError, match="the endpoint is down"):
        list(client.chat.completions.create(model="ra-isf", messages=say("Does it fail?"), stream=True))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": []},
        {"messages": ["hello"]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "assistant", "content": "hello"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "text": "Who?"}]}]},
        {"messages": [{"role": "user", "content": [{"text": "Who?"}]}]},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [*say("number 1"), {"role": "User", "content": "number 2"}]},
        {"messages": [{"role": "user", "content": "x"}] * 201},
        {"messages": say("number 1"), "n": True},
        {"messages": say("number 1"), "n": 1.0},
        {"messages": say("number 1"), "logprobs": True},
        {"messages": say("number 1"), "tool_choice": "required"},
        {"messages": say("number 1"), "tool_choice": {"type": "function", "function": {"name": "find"}}},
        {"messages": say("number 1"), "functions": [{"name": "find"}], "function_call": {"name": "find"}},
        {"messages": say("number 1"), "modalities": ["text", "audio"]},
        {"messages": say("number 1"), "modalities": "audio"},
        {"messages": say("number 1"), "response_format": {"type": "json_object"}},
        {"messages": say("number 1"), "response_format": "text"},
        {"messages": say("number 1"), "trace": "yes"},
        {"messages": say("number 1"), "stream_options": True},
        {"messages": say("number 1"), "stream_options": {"include_usage": 1}},
    ],
)
def test_what_is_no_request_is_refused(server: Any, ask: Any, body: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask.post(f"{server.url}/v1/chat/completions", body)
    assert caught.value.code == 400 and json.loads(caught.value.read())["error"]["message"]


def test_what_asks_for_no_other_answer_is_taken(client: Any) -> None:
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}]
    more = {"n": 1, "logprobs": False, "tools": tools, "tool_choice": "auto", "response_format": {"type": "text"}}
    more |= {"function_call": "none", "modalities": ["text"]}
    given = client.chat.completions.create(model="ra-isf", messages=say("number 1"), temperature=0, **more)
    assert given.choices[0].message.content == "A1"


def test_an_answer_that_a_limit_cut_short_says_so(client: Any, service: Service, ask: Any) -> None:
    class Slow(dspy.Module):
        def forward(self, question: str) -> dspy.Prediction:
            time.sleep(2)
            return dspy.Prediction(answer="late")

    service.served["slow"] = Served("slow", Slow())
    for model, limit in (("ra-isf", {"max_calls": 1}), ("slow", {"max_seconds": 0.2})):
        given = client.chat.completions.create(model=model, messages=say(ask.sea), extra_body=limit)
        chunks = client.chat.completions.create(model=model, messages=say(ask.sea), stream=True, extra_body=limit)
        ends = [one.choices[0].finish_reason for one in chunks if one.choices[0].finish_reason]
        assert given.choices[0].finish_reason == "length" and ends == ["length"]


def test_dspy_uses_a_program_as_an_lm(server: Any, ask: Any) -> None:
    lm = dspy.LM("openai/ra-isf", api_base=f"{server.url}/v1", api_key="none", cache=False)
    assert lm(ask.sea) == ["Pasmur Sea"]
    with dspy.context(lm=lm):
        assert dspy.Predict("question -> answer")(question=ask.sea).answer == "Pasmur Sea"
        thought = dspy.ChainOfThought("question -> answer")(question=ask.sea)
        assert thought.answer == "Pasmur Sea" and thought.reasoning
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    for form in ({"type": "json_object"}, schema):  # which DSPy asks for by itself of models it knows
        with dspy.context(lm=lm.copy(response_format=form), adapter=dspy.JSONAdapter()):
            assert dspy.Predict("question -> answer")(question=ask.sea).answer == "Pasmur Sea"


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"question": "«Qui a écrit Madame Bovary ?»"}, "Qui a écrit Madame Bovary ?"),  # a list of one, as DSPy has it
        ({"question": "Who?", "context": ["A", "B"]}, "Who?"),
        ({"topic": "Graz", "notes": ["A", "B"]}, "topic: Graz\nnotes: A\nB"),
    ],
)
def test_what_dspy_asks_is_asked_in_its_words(given: dict[str, Any], asked: str) -> None:
    messages = dspy.ChatAdapter().format(dspy.Signature(f"{', '.join(given)} -> answer"), [], given)
    assert read_chat({"messages": messages}).question == asked


@pytest.mark.parametrize("kind", [dspy.ChatAdapter, dspy.JSONAdapter, dspy.XMLAdapter])
def test_what_was_said_before_a_call_of_dspys_makes_its_question_stand_alone(
    server: Any, service: Service, kind: Any
) -> None:
    before = {"question": "Which river flows through Bulgorton?", "reasoning": "Read.", "answer": "Funzol River"}
    signature = dspy.Signature("question, history: dspy.History -> reasoning, answer")
    demos = [dspy.Example(question="Which river is long?", reasoning="I know.", answer="Nile")]
    given = {"question": "Where does it end?", "history": dspy.History(messages=[before])}
    request = read_chat({"messages": kind().format(signature, demos, given)})
    assert request.turns == [Turn("user", before["question"]), Turn("assistant", "Funzol River")]
    lm = dspy.LM("openai/ra-isf", api_base=f"{server.url}/v1", api_key="none", cache=False)
    with dspy.context(lm=lm, adapter=kind()):
        assert dspy.Predict(signature)(**given).answer == "Pasmur Sea"
    asked = [call["question"] for call in service.served["ra-isf"].program.know.lm.calls]
    assert asked[:2] == ["Where does it end?", "Where does the Funzol River end?"]
