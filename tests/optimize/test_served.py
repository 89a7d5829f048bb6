"""An artifact's judges as LoRA modules of one server: each asks its own, and says there what it says in the process."""

import contextlib
import shlex
import socket
import threading
from pathlib import Path
from typing import Any

import dspy
import pytest
import torch
from dspy.utils.exceptions import AdapterParseError
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from raisf.lm import pocket
from raisf.lm.connect import adapter_for, connect
from raisf.lm.local.model import LocalLM
from raisf.optimize.adapters import readme
from raisf.optimize.artifact import load, save
from raisf.optimize.served import _bases
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError, LMError
from raisf.utils.files import write_json

pytestmark = pytest.mark.usefixtures("own_cache")
MODULES = ("know", "relevant")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program on the pocket Llama, two of whose judges have adapters with random weights."""
    folder, base = tmp_path_factory.mktemp("served"), connect("pocket")
    assert isinstance(base, LocalLM)
    program: Any = RAISF(None)
    program.set_lm(base)
    for seed, name in enumerate(MODULES):
        torch.manual_seed(seed)
        model: Any = AutoModelForCausalLM.from_pretrained(pocket.path(), dtype="float32")
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
        get_peft_model(model, config).save_pretrained(str(folder / name))
        getattr(program, name).lm = base.with_weights(folder / name)
    save(program, folder / "artifact")
    return folder / "artifact"


def said(program: Any, name: str) -> Any:
    predictor, inputs = getattr(program, name), {"question": "Who is the mayor of Belrin?"}
    if name == "relevant":
        inputs["passage"] = "Belrin | Its mayor is Oda Hill."
    with dspy.context(adapter=adapter_for(predictor.lm)):
        return predictor(**inputs)


def test_each_predictor_asks_its_module_and_gets_the_probabilities_of_the_process(llamas: Any, artifact: Path) -> None:
    here = load(artifact)
    base = pocket.path()
    folders = {name: (base, artifact / "adapters" / name) for name in MODULES}
    with llamas.serve({"base/name": base, **folders}) as endpoint:
        there: Any = load(artifact, api_base=endpoint.url)
        for name in MODULES:
            mine, theirs = said(here, name), said(there, name)
            assert theirs.probabilities == pytest.approx(mine.probabilities, abs=1e-3)
            path, body = endpoint.seen[-1]
            # What vLLM is sent: the module's name, bare text as it was trained on, one token, the likeliest listed.
            assert path == "/v1/completions" and body.pop("prompt").endswith("\nverdict:")
            assert body == {"model": name, "max_tokens": 1, "temperature": 1.0, "logprobs": 20}
        assert said(here, "know").probabilities != pytest.approx(said(here, "relevant").probabilities, abs=1e-3)
        answers = [said(program, "answer_directly").answer for program in (here, there)]
        assert answers[0] == answers[1]
        path, body = endpoint.seen[-1]
        assert path == "/v1/completions" and body["model"] == "base/name" and body["max_tokens"] == 256
        assert body["temperature"] == 0.0 and body["stop"] and "logprobs" not in body
        again = artifact.parent / "again"
        save(there, again)
        kept: Any = load(again, lm=there.know.lm)
        assert said(kept, "know").probabilities == said(there, "know").probabilities


def test_the_base_is_what_the_modules_name_and_never_guessed_among_several() -> None:
    """Answers went to the first model of a proxy's list, such as one that makes vectors."""
    listed = [{"id": "embedder"}, {"id": "base"}, {"id": "know", "parent": "base"}]
    assert _bases(listed, {"know"}) == ["base"]
    assert _bases([{"id": "embedder"}, {"id": "base"}, {"id": "know"}], {"know"}) == ["embedder", "base"]


def test_a_server_without_the_module_is_told_by_name(llamas: Any, artifact: Path) -> None:
    with llamas.serve({"pocket": pocket.path()}) as endpoint:
        with pytest.raises(InputError, match=r"serves pocket, and no LoRA module 'know': .*README.md has the command"):
            load(artifact, api_base=endpoint.url)
        with pytest.raises(LMError, match="HTTP 404: is --api-base right"):
            load(artifact, api_base=endpoint.url.removesuffix("/v1"))


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x50", "does not say what is served .*--api-base right"),  # it wants https
        (b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"da', "does not say what is served .*IncompleteRead"),
        (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "HTTP 401: check OPENAI_API_KEY"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 200_000, "does not say what is served .*RecursionError"),
        (b"Authorization: Bearer sk-secret-0123456789\r\n", r"does not say what is served .*Bearer \*\*\*"),
        (
            b'HTTP/1.1 200 OK\r\n\r\n{"data": [{"id": "of sk-secret-0123456789"}]}',
            r"serves of \*\*\*, and no LoRA module",
        ),
    ],
)
def test_a_server_that_does_not_say_what_it_serves_is_told(
    artifact: Path, reply: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of most a traceback was shown, of the third that the address may be wrong, of the last two the key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-0123456789")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(reply)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises((InputError, LMError), match=told) as refused:
            load(artifact, api_base=f"http://127.0.0.1:{server.getsockname()[1]}/v1")
    assert "secret" not in str(refused.value)


def test_an_address_that_is_no_url_is_refused_before_anything_is_sent(artifact: Path) -> None:
    for address in ("http://127.0.0.1:80a/v1", "127.0.0.1:8000/v1"):
        with pytest.raises(InputError, match="is no URL"):
            load(artifact, api_base=address)
    with pytest.raises(InputError, match="OPENAI_API_KEY") as refused:
        load(artifact, api_base="http://me:secret@127.0.0.1:8000/v1")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["\u201csecret\u201d", "sec\nret"])
def test_a_key_that_cannot_be_sent_is_not_told(artifact: Path, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood whole in the error, as it was copied: with a text's quotation marks, or over two lines."""
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match="copy it anew") as refused:
        load(artifact, api_base="http://127.0.0.1:9/v1")
    assert "ret" not in str(refused.value)


def test_the_readme_says_how_it_is_served_and_asked(artifact: Path) -> None:
    text = (artifact / "README.md").read_text()
    assert "vllm serve BASE --enable-lora --max-loras 2 --max-lora-rank 8" in text
    assert "--lora-modules know=adapters/know relevant=adapters/relevant" in text
    assert 'raisf.load("THIS_FOLDER", api_base="http://127.0.0.1:8000/v1")' in text


def test_the_commands_of_the_readme_are_whole_in_a_shell_whatever_predictors_are_called(tmp_path: Path) -> None:
    """Of parts['a'].know a shell took the quotation marks away, and no predictor found its module."""
    name = "parts['a'].know"
    write_json(tmp_path / "adapters" / name / "adapter_config.json", {"r": 4})
    text = readme("mine", {name: {"kind": "lora", "sha256": "0", "base": "local/base#1"}}, tmp_path)
    asked = [
        shlex.split(line, comments=False)
        for line in text.splitlines()
        if "lora-modules" in line or "lora-paths" in line
    ]
    assert [words[-1] for words in asked] == [f"{name}=adapters/{name}"] * 2


def test_chat_adapters_ask_the_chat_endpoint(llamas: Any, tmp_path: Path) -> None:
    lm = connect("pocket", adapter="chat")
    assert isinstance(lm, LocalLM)
    program: Any = RAISF(None)
    program.set_lm(lm)
    save(program, tmp_path / "a")
    with llamas.serve({"pocket": pocket.path()}) as endpoint:
        there: Any = load(tmp_path / "a", api_base=endpoint.url)
        there.know.lm.kwargs["max_tokens"] = 4
        with contextlib.suppress(AdapterParseError):  # the pocket Llama knows no chat
            said(there, "know")
        path, body = endpoint.seen[0]
        assert path == "/v1/chat/completions" and body["model"] == "pocket"
        assert (body["max_tokens"], body["logprobs"], body["top_logprobs"]) == (1, True, 20)


def test_a_module_in_the_chat_format_is_asked_for_its_verdict_as_it_was_trained(
    llamas: Any, artifact: Path, tmp_path: Path
) -> None:
    """It was asked for the label alone, which it has never seen."""
    lm = connect("pocket", adapter="chat")
    assert isinstance(lm, LocalLM)
    program: Any = RAISF(None)
    program.set_lm(lm)
    program.know.lm = lm.with_weights(artifact / "adapters" / "know")
    save(program, tmp_path / "a")
    with llamas.serve({"pocket": pocket.path(), "know": (pocket.path(), artifact / "adapters" / "know")}) as endpoint:
        there: Any = load(tmp_path / "a", api_base=endpoint.url)
        there.know.lm.kwargs["max_tokens"] = 4
        with contextlib.suppress(AdapterParseError):  # the pocket Llama knows no chat
            said(there, "know")
        path, body = endpoint.seen[0]
        assert path == "/v1/chat/completions" and body["model"] == "know" and "logprobs" not in body
        question = {"question": "Who is the mayor of Belrin?"}
        assert body["messages"] == lm.adapter.format(there.know.signature, [], question)


def test_completions_need_a_format_that_writes_text() -> None:
    with pytest.raises(InputError, match="adapter compact or pocket"):
        connect("openai/x", api_base="http://127.0.0.1:9/v1", completions=True)
    with pytest.raises(InputError, match="give --api-base"):
        connect("openai/x", adapter="compact", completions=True)
