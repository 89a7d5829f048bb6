"""What a user who runs somebody's artifact is promised: it never chooses where her questions and her key go."""

import json
import logging
from pathlib import Path
from typing import Any

import dspy
import pytest

from raisf.lm.connect import connect
from raisf.optimize.artifact import load, save
from raisf.optimize.manifest import MANIFEST, STATE
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.retrieval.engines.bm25 import BM25
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.files import sha256_file

KEY = "sk-the-users-own"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "AZURE", "CUSTOM_OPENAI", "HUGGINGFACE", "OLLAMA"):
        monkeypatch.setenv(f"{provider}_API_KEY", KEY)


@pytest.fixture
def listener(faulty: Any):
    """The stranger's server; a test fails if anything reaches it."""
    with faulty.serve() as endpoint:
        yield endpoint.url
        assert endpoint.seen == []


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    program = Direct()
    program.set_lm(connect("openai/gpt-4o-mini"))
    save(program, tmp_path / "a")
    return tmp_path / "a"


def edit(artifact: Path, manifest: dict[str, Any] | None = None, state: dict[str, Any] | None = None) -> None:
    """What anyone can do with an editor: the hashes are right afterwards."""
    if state:
        written = json.loads((artifact / STATE).read_text())
        written["answer_directly"] |= state
        (artifact / STATE).write_text(json.dumps(written))
    written = json.loads((artifact / MANIFEST).read_text())
    written |= {"state_sha256": sha256_file(artifact / STATE), **(manifest or {})}
    (artifact / MANIFEST).write_text(json.dumps(written))


def lms(**connection: Any) -> dict[str, Any]:
    return {"lms": [{"connect": {"spec": "openai/x", **connection}, "predictors": ["answer_directly"]}]}


def test_an_endpoint_in_the_manifest_is_never_opened(artifact: Path, listener: str) -> None:
    edit(artifact, lms(api_base=listener))
    with pytest.raises(InputError, match=rf"compiled with openai/x at an endpoint, {listener}.*--api-base URL"):
        load(artifact)


def test_the_callers_endpoint_wins(artifact: Path, listener: str, faulty: Any) -> None:
    edit(artifact, lms(api_base=listener))
    with faulty.serve() as own:
        assert load(artifact, api_base=own.url)(question="Who?").answer.startswith("answer ")
        assert load(artifact, lm="openai/y", api_base=own.url)(question="Who?").answer.startswith("answer ")
        assert [body["model"] for _, _, body in own.seen] == ["x", "y"]


@pytest.mark.parametrize("variable", ["OPENAI_API_BASE", "OPENAI_BASE_URL"])
def test_the_callers_environment_is_the_callers_word(
    variable: str, artifact: Path, listener: str, faulty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(artifact, lms(api_base=listener))
    with faulty.serve() as own:
        monkeypatch.setenv(variable, own.url)
        assert load(artifact)(question="Who?").answer.startswith("answer ")


SETTINGS = [
    {"api_base": "URL"},
    {"base_url": "URL"},
    {"api_key": "sk-other"},
    {"headers": {"Host": "evil"}},
    {"extra_headers": {"Authorization": "x"}},
    {"organization": "org-stranger"},
    {"project": "stranger"},
    {"custom_llm_provider": "custom_openai"},
    {"model_list": [{"model_name": "x", "litellm_params": {"api_base": "URL"}}]},
    {"extra_query": {"a": "b"}},
    {"extra_body": {"a": "b"}},
    {"timeout": 1e9},
    {"num_retries": 10**9},
    {"something_new": 1},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: next(iter(setting)))
@pytest.mark.parametrize("place", ["config", "lm"])
def test_a_predictor_cannot_set_where_it_is_asked(artifact: Path, listener: str, setting: Any, place: str) -> None:
    """Also where the caller names the LM: a predictor's config comes with every call."""
    filled = json.loads(json.dumps(setting).replace("URL", listener))
    given = filled if place == "config" else {"model": "openai/x", **filled}
    edit(artifact, state={place: given})
    with pytest.raises(InputError, match=f"answer_directly.{place}"):
        load(artifact, lm="openai/gpt-4o-mini")


@pytest.mark.parametrize("name", ["callbacks", "forward", "stage", "history"])
def test_a_predictor_is_only_what_it_shows_the_lm(artifact: Path, name: str) -> None:
    edit(artifact, state={name: "x"})
    with pytest.raises(InputError, match=f"sets answer_directly.{name} in program.json"):
        load(artifact)


SHAPES = [
    {"demos": True},
    {"demos": ["q"]},
    {"signature": True},
    {"signature": {"instructions": True, "fields": []}},
    {"signature": {"instructions": "x", "fields": True}},
    {"signature": {"instructions": "x", "fields": [{"prefix": 1}]}},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_shown_to_the_lm_is_what_it_says_to_be(artifact: Path, shape: Any) -> None:
    """Else it would fail at the first question, or in DSPy with a traceback."""
    edit(artifact, state=shape)
    with pytest.raises(InputError, match=r"answer_directly.(demos|signature) in the saved program is .* damaged"):
        load(artifact)


def test_options_that_are_none_are_refused(tmp_path: Path) -> None:
    Direct().save(tmp_path / "direct.json")
    state = json.loads((tmp_path / "direct.json").read_text())
    (tmp_path / "direct.json").write_text(json.dumps({**state, "options": [1]}))
    with pytest.raises(InputError, match=r"options in the saved program is \[1\]: the file is damaged"):
        Direct().load(tmp_path / "direct.json")


def test_how_an_answer_is_drawn_may_be_saved(artifact: Path) -> None:
    edit(artifact, state={"config": {"temperature": 0.7, "max_tokens": 50, "top_p": 0.9, "n": 2}})
    assert load(artifact).answer_directly.config["temperature"] == 0.7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "spec",
    ["azure/x", "custom_openai/x", "ollama/x", "huggingface/stranger/x", "hosted_vllm/x", "litellm_proxy/x",
     "openai/http://URL", "openai/x?api_base=http://URL", "replicate/stranger/x", "openrouter/x", "custom/http://URL"],
)  # fmt: skip
def test_a_provider_whose_address_is_not_known_is_for_the_caller_to_name(
    artifact: Path, listener: str, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_API_BASE", listener)
    spec = spec.replace("http://URL", listener)
    edit(artifact, {"lms": [{"connect": {"spec": spec}, "predictors": ["answer_directly"]}]})
    with pytest.raises(InputError, match="--lm"):
        load(artifact)


def test_a_known_provider_is_asked_at_home(artifact: Path) -> None:
    lm: Any = load(artifact).answer_directly.lm  # type: ignore[attr-defined]
    assert (lm.model, lm.api_base, lm.endpoint.place) == ("openai/gpt-4o-mini", None, None)


def test_a_served_index_is_the_callers_to_name(artifact: Path, listener: str) -> None:
    for url in (listener, "qdrant+" + listener + "/x"):
        edit(artifact, {"program": "rag", "options": {}, "index": {"url": url, "corpus_sha256": "x"}})
        with pytest.raises(InputError, match=r"cannot choose where your questions go: give an index with --index"):
            load(artifact)


def test_an_index_by_path_is_a_folder_and_no_address(tmp_path: Path, listener: str) -> None:
    BM25.build([Passage("1", "a passage")], tmp_path / "index")
    save(RAG(BM25.load(tmp_path / "index")), tmp_path / "a")
    index = json.loads((tmp_path / "a" / MANIFEST).read_text())["index"]
    edit(tmp_path / "a", {"index": {**index, "path": listener, "relative": None}})
    with pytest.raises(InputError, match="cannot open its index"):
        load(tmp_path / "a")


def test_the_base_of_trained_weights_is_local(artifact: Path, listener: str) -> None:
    (artifact / "adapters" / "answer_directly").mkdir(parents=True)
    (artifact / "adapters" / "answer_directly" / "adapter_config.json").write_text("{}")
    weights = {"answer_directly": {"kind": "lora", "sha256": "x", "base": "openai/x#123456789012"}}
    edit(artifact, {**lms(), "weights": weights})
    with pytest.raises(InputError):
        load(artifact)


def test_dspys_own_json_cannot_set_it_either(tmp_path: Path, listener: str, caplog: pytest.LogCaptureFixture) -> None:
    Direct().save(tmp_path / "state.json")
    state = json.loads((tmp_path / "state.json").read_text())
    state["answer_directly"]["config"] = {"api_base": listener, "temperature": 0.5}
    state["answer_directly"]["lm"] = {"model": "openai/x", "headers": {"x": "y"}, "temperature": 0.5}
    (tmp_path / "state.json").write_text(json.dumps(state))
    program: Any = Direct()
    with caplog.at_level(logging.WARNING):
        program.load(tmp_path / "state.json")
    assert "answer_directly.config.api_base, answer_directly.lm.headers" in caplog.text
    assert program.answer_directly.config == {"temperature": 0.5}
    assert "headers" not in program.answer_directly.lm.kwargs


@pytest.mark.parametrize(
    "lm", [{"model": "azure/x"}, {"model": "openai/x", "_dspy_lm_class": "dspy.clients.typesafe.TypeSafe"}]
)
def test_dspys_own_json_cannot_name_a_provider_whose_address_is_not_known(
    tmp_path: Path, lm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Direct().save(tmp_path / "state.json")
    state = json.loads((tmp_path / "state.json").read_text())
    state["answer_directly"]["lm"] = lm
    (tmp_path / "state.json").write_text(json.dumps(state))
    program: Any = Direct()
    with caplog.at_level(logging.WARNING):
        program.load(tmp_path / "state.json")
    assert f"answer_directly.lm.model {lm['model']}" in caplog.text and program.answer_directly.lm is None


@pytest.mark.parametrize("setting", [{"api_base": "URL"}, {"headers": {"a": "b"}}, {"api_key": "x"}])
def test_a_connected_lm_takes_no_endpoint_from_a_call(listener: str, setting: Any) -> None:
    """Whatever way a config came in, the LM itself refuses it."""
    setting = json.loads(json.dumps(setting).replace("URL", listener))
    lm = connect("openai/gpt-4o-mini")
    with pytest.raises(ValueError, match="configure a connection"), dspy.context(lm=lm):
        dspy.Predict("question -> answer", **setting)(question="Who?")
