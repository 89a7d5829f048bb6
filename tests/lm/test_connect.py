"""A user names a model in one word: it opens, or she reads what was wrong and what to do, and never her key."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import dspy
import pytest
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.adapter import CompactAdapter
from raisf.lm.connect import adapter_for, connect
from raisf.lm.failures import explain
from raisf.lm.local.model import LocalLM
from raisf.programs.baselines.rag import RAG
from raisf.retrieval.passage import Passage
from raisf.signatures.answers import DirectAnswer
from raisf.signatures.judges import SelfKnowledge
from raisf.utils.errors import InputError, LMError

KEY = "sk-very-secret-key"


def test_specs(llama, monkeypatch):
    lm = connect(f"local/{llama}")
    assert isinstance(lm, LocalLM)
    assert adapter_for(lm).instructions is True
    assert lm.kwargs["max_tokens"] == 256
    assert isinstance(adapter_for(connect(f"local/{llama}", adapter="chat")), dspy.ChatAdapter)
    monkeypatch.setattr("raisf.lm.pocket.path", lambda name="pocket": llama)
    assert adapter_for(connect("pocket")).instructions is False
    remote = connect("openai/gpt-4o-mini")
    assert remote.kwargs["temperature"] == 0.0
    assert isinstance(adapter_for(remote), dspy.ChatAdapter)
    assert isinstance(adapter_for(connect("openai/gpt-4o-mini", adapter="compact").copy()), CompactAdapter)
    assert connect("openai/gpt-5").kwargs.get("temperature") is None  # it takes none
    with dspy.context(adapter=dspy.JSONAdapter()):
        assert isinstance(adapter_for(remote), dspy.JSONAdapter)


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        ("", {}, "unknown language model"),
        ("gpt-4o", {}, "unknown language model 'gpt-4o': choose pocket, .*local/"),
        ("openai/", {}, "unknown language model"),
        ("openai/x", {"adapter": "xml"}, "choose chat, compact or pocket"),
        ("openai/x", {"api_base": "localhost:8000"}, "write it like http://"),
        ("openai/x", {"api_base": "http://[::1/v1"}, "write it like http://"),
        ("openai/x", {"api_base": "http://host:99999/v1"}, "write it like http://"),
        ("openai/x", {"api_base": "http://host/v1\n"}, r"'http://host/v1\\n' is no URL: write it like http://"),
        ("openai/x", {"api_base": " http://host/v1"}, "' http://host/v1' is no URL: write it like http://"),
        ("openai/x", {"api_base": "http://host/v1?api-version=3"}, "has a query or fragment behind 'http://host/v1'"),
        ("openai/x", {"temperature": 3.0}, r"the temperature is 3\.0: give 0 to 2"),
        ("pocket", {"temperature": 2.5}, "the temperature is 2.5: give 0 to 2"),
        ("pocket/x", {}, "unknown language model 'pocket/x': choose pocket"),
        ("http://x", {}, "the language model is an address: give its name"),
        ("local/x", {"api_base": "http://localhost:8000"}, "leave out --api-base"),
        ("openai/x", {"timeout": None}, "the timeout is None: give seconds"),
        ("openai/x", {"timeout": "5"}, "the timeout is '5': give seconds"),
        ("openai/x", {"timeout": 0.0}, r"the timeout is 0\.0: give seconds"),
        ("pocket", {"temperature": None}, "the temperature is None: give 0 to 2"),
        ("openai/x", {"temperature": True}, "the temperature is True: give 0 to 2"),
        ("openai/x", {"max_tokens": -1}, "max_tokens is -1: give 1 or more"),
        ("pocket", {"max_tokens": "7"}, "max_tokens is '7': give 1 or more"),
        ("openai/x", {"num_retries": "3"}, "num_retries is '3': give 0 or more"),
        ("openai/x", {"num_retries": -1}, "num_retries is -1: give 0 or more"),
        ("openai/x", {"api_base": 5}, "--api-base is 5: write it like http://"),
        ("~nouser/x", {}, "unknown language model '~nouser/x'"),
        ("local/~nouser/m", {}, "^~nouser/m: this is no path"),
        ("local/x@~nouser/m", {}, "~nouser/m: this is no path"),
        ("x" * 5000, {}, "unknown language model"),
        ("local/" + "x" * 5000, {}, "this is no path"),
        (
            "openai/gpt-5-mini",
            {"temperature": 0.7},
            "no temperature but 1 .* the temperature 0.7 and no max_tokens",
        ),
        ("openai/o3", {"max_tokens": 5000}, "no limit below 16,000 tokens; .* and 5000 max_tokens: leave both out"),
    ],
)
def test_a_spec_that_cannot_be_opened_is_the_users_to_mend(spec, options, says):
    with pytest.raises(InputError, match=says):
        connect(spec, **options)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, (None, None)),  # our defaults, 0 and 1,024, are refused by the provider
        ({"max_tokens": 20_000}, (None, 20_000)),
        ({"temperature": 1.0, "max_tokens": 16_000}, (1.0, 16_000)),
        ({"temperature": 1.0}, (1.0, None)),
    ],
)
def test_what_is_given_for_a_model_that_reasons_is_sent_and_a_default_is_not(given, kept):
    """What was given was dropped with the defaults, and a temperature of 0 was sent, which the provider refuses."""
    lm = connect("openai/gpt-5-mini", **given)
    assert (lm.kwargs["temperature"], lm.kwargs["max_completion_tokens"]) == kept


def test_half_a_character_in_a_passage_is_the_users_to_mend(llama, faulty):
    """A traceback of DSPy's, or of the tokenizer's, named neither what was wrong nor what to do."""
    with faulty.serve() as endpoint:
        for lm in (connect("openai/x", api_base=endpoint.url), connect(f"local/{llama}")):
            program = RAG(lambda query, k: [Passage("1", "Bergen \ud83d is a port", "T")])
            program.set_lm(lm)
            with pytest.raises(InputError, match=r"lone surrogate U\+D83D.*repair the text"):
                program(question="Where?")
    with pytest.raises(InputError, match=r"half a character \(U\+D800"):
        connect(f"local/{llama}").logprob("x\ud800", "y")


@pytest.mark.parametrize("layer", [0, -1, 3, 99])
def test_a_layer_that_is_not_there_is_told(llama, layer):
    with pytest.raises(InputError, match=f"there is no layer {layer}: the model has the layers 1 to 2"):
        connect(f"local/{llama}").hidden(["a"], [layer])


def test_a_path_without_local_is_recognised(llama):
    with pytest.raises(InputError, match=f"write local/{llama}"):
        connect(str(llama))


def test_no_key_is_kept_or_saved(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    lm = connect("openai/x", api_base="http://127.0.0.1:1/v1")
    assert KEY not in str(lm.kwargs) + str(lm.dump_state())


@pytest.mark.parametrize("completions", [False, True])
def test_the_key_is_the_environments_at_each_call(monkeypatch, faulty, completions):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    adapter = "compact" if completions else None
    with faulty.serve() as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, adapter=adapter, completions=completions, num_retries=0)
        lm.cache = False
        for key in (None, "sk-first-of-two", "sk-second-of-two", None):
            if key is None:
                monkeypatch.delenv("OPENAI_API_KEY", raising=False)
            else:
                monkeypatch.setenv("OPENAI_API_KEY", key)
            with contextlib.suppress(Exception):  # the endpoint speaks in chats only
                with dspy.context(lm=lm, adapter=adapter_for(lm)):
                    dspy.Predict(DirectAnswer)(question="Who?")
    sent = [
        next(value for name, value in headers.items() if name.lower() == "authorization")
        for _, headers, _ in endpoint.seen
    ]
    assert list(dict.fromkeys(sent)) == ["Bearer none", "Bearer sk-first-of-two", "Bearer sk-second-of-two"]
    assert sent[-1] == "Bearer none"


class Endpoint(BaseHTTPRequestHandler):
    """Fails in the way that the first part of the path names."""

    status: ClassVar = {"auth": 401, "busy": 429, "broken": 500, "model": 404, "gateway": 504}
    body: ClassVar = {"html": "<html>Welcome</html>", "list": "[]", "json": '{"hello": "world"}'}

    def do_POST(self):
        way = self.path.split("/")[1]
        if way == "slow":
            time.sleep(2)
        said = self.headers.get("authorization")
        body = self.body.get(way) or f'{{"error": {{"message": "no: {said}"}}}}'
        body = f"<pre>Authorization: {said}</pre>" if way == "echo" else body
        self.send_response(self.status.get(way, 200))
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def failure(lm):
    with pytest.raises(Exception) as caught, dspy.context(lm=lm, adapter=CompactAdapter()):
        dspy.Predict(SelfKnowledge)(question="Who?")
    return explain(caught.value, lm)


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("html", "sent no chat completion .*Welcome.*OpenAI-compatible"),
        ("list", "sent no chat completion"),
        ("json", "sent no chat completion .*hello"),
        ("auth", "refuses the credentials .HTTP 401: no: Bearer .* check OPENAI_API_KEY"),
        ("busy", "is busy .HTTP 429.* fewer threads"),
        ("broken", "failed .HTTP 500.* log"),
        ("model", "refuses the request .HTTP 404.* model's name"),
        ("slow", r"did not answer in 0\.5 s"),
        ("gateway", "did not answer .HTTP 504: no: Bearer .* try again"),
    ],
)
def test_an_endpoint_that_fails_is_explained(endpoint, way, says, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    error = failure(connect("openai/tiny", api_base=f"{endpoint}/{way}/v1", num_retries=0, timeout=0.5))
    assert isinstance(error, LMError)
    assert str(error).startswith(f"openai/tiny at {endpoint}/{way}/v1 ")
    assert re.search(says, str(error)), error
    assert KEY not in str(error)


@pytest.mark.parametrize(("way", "completions"), [("echo", False), ("said", True)])
def test_a_key_that_a_message_cuts_off_is_not_repeated_either(endpoint, way, completions, monkeypatch):
    """What a server says is cut off at 200 bytes, or 300, and OpenAI's keys are as long."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-" + "secret" * 60)
    options = {"adapter": "compact", "completions": completions, "num_retries": 0}
    error = failure(connect("openai/tiny", api_base=f"{endpoint}/{way}/v1", **options))
    assert "Bearer ***" in str(error) and "secret" not in str(error)


def test_an_endpoint_that_is_down_is_explained():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    error = failure(connect("openai/tiny", api_base=f"http://127.0.0.1:{port}/v1", num_retries=0))
    assert isinstance(error, LMError)
    assert re.fullmatch(f"openai/tiny at http://127.0.0.1:{port}/v1 cannot be reached .*--api-base right.", str(error))


def test_a_password_in_an_address_is_never_repeated(monkeypatch):
    address = "http://user:hunter2@127.0.0.1:1/v1?key=s3cret"
    error = failure(dspy.LM("openai/tiny", api_base=address, api_key="none", num_retries=0, cache=False))
    assert isinstance(error, LMError) and "cannot be reached" in str(error)
    assert "hunter2" not in str(error) and "s3cret" not in str(error)
    for given in (address, "user:hunter2@host/v1?key=s3cret"):
        with pytest.raises(InputError, match="--api-base") as refused:
            connect("openai/tiny", api_base=given)
        assert "hunter2" not in str(refused.value) and "s3cret" not in str(refused.value)
    with pytest.raises(InputError, match="the language model is an address"):
        connect(address)
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(InputError, match="the address of openai in the environment has a user name") as refused:
        connect("openai/tiny")
    assert "hunter2" not in str(refused.value) and "s3cret" not in str(refused.value)


def test_a_key_for_servers_that_want_none_garbles_no_message(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "e")
    assert "cannot be reached" in str(failure(connect("openai/tiny", api_base="http://127.0.0.1:1/v1", num_retries=0)))


def test_what_the_user_must_mend_has_the_exit_code_of_mistakes(llama, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    error = failure(connect("openai/tiny", num_retries=0))
    assert isinstance(error, LMError) and error.exit_code == 2
    assert "set OPENAI_API_KEY" in str(error)


def test_no_price_list_is_looked_up_on_the_net(monkeypatch):
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    connect("openai/gpt-4o-mini")
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"


def test_a_prompt_beyond_the_context_is_explained(llama):
    lm = connect(f"local/{llama}")
    with pytest.raises(Exception) as caught, dspy.context(lm=lm, adapter=lm.adapter):
        dspy.Predict(SelfKnowledge)(question="x" * 10_000)
    error = explain(caught.value, lm)
    assert isinstance(error, LMError) and error.exit_code == 2
    assert "cannot read so much" in str(error)


@contextmanager
def transformers_serve(folder):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    server = subprocess.Popen(command, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    try:
        for _ in range(240):
            assert server.poll() is None, "the server died"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                break
            except OSError:
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.slow
def test_a_served_llama_says_what_it_says_in_the_process(llama):
    pytest.importorskip("uvicorn", reason="pip install raisf[serve]")
    said = []
    with transformers_serve(llama) as api_base:
        for lm in (
            connect(f"openai/{llama}", api_base=api_base, adapter="pocket", max_tokens=6),
            connect(f"local/{llama}", adapter="pocket", max_tokens=6),
        ):
            with dspy.context(lm=lm, adapter=adapter_for(lm)), dspy.track_usage() as usage:
                # It never comes to an end by itself: both ways tell that it was cut off.
                with pytest.raises(AdapterParseError, match="cut off by the token limit") as cut:
                    dspy.Predict(DirectAnswer)(question="Who founded Velmora?")
                said.append((cut.value.lm_response.strip(), usage.get_total_tokens()[lm.model]["prompt_tokens"]))
    assert said[0] == said[1]
