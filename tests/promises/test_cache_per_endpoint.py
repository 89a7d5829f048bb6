"""What a user of two endpoints is promised: no answer of the one is ever served as the other's."""

import asyncio
from typing import Any

import dspy
import pytest
from dspy.lm15 import Message, Request

from raisf.lm.connect import connect
from raisf.optimize.artifact import load, save
from raisf.programs.baselines.direct import Direct

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def pair(faulty: Any):
    """Two endpoints that serve "the same model" and say different things."""
    with (
        faulty.serve(answer=lambda f: {"answer": "first"}) as a,
        faulty.serve(answer=lambda f: {"answer": "other"}) as b,
    ):
        yield a, b


def by_program(lm: dspy.LM, folder: Any) -> str:
    program = Direct()
    program.set_lm(lm)
    return program(question="Who?").answer


def by_context(lm: dspy.LM, folder: Any) -> str:
    with dspy.context(lm=lm):
        return dspy.Predict("question -> answer")(question="Who?").answer


def by_default(lm: dspy.LM, folder: Any) -> str:
    before = dspy.settings.lm
    dspy.configure(lm=lm)
    try:
        return dspy.Predict("question -> answer")(question="Who?").answer
    finally:
        dspy.configure(lm=before)


def by_coroutine(lm: dspy.LM, folder: Any) -> str:
    with dspy.context(lm=lm):
        return asyncio.run(dspy.Predict("question -> answer").acall(question="Who?")).answer


def by_copy(lm: dspy.LM, folder: Any) -> str:
    return by_context(lm.copy(rollout_id=3, temperature=1.0), folder)


def by_artifact(lm: Any, folder: Any) -> str:
    program = Direct()
    program.set_lm(lm)
    save(program, folder / "a")
    return load(folder / "a", api_base=lm.api_base)(question="Who?").answer


def by_words(lm: dspy.LM, folder: Any) -> str:
    return lm("[[ ## question ## ]]\nWho?")[0]


def by_request(lm: dspy.LM, folder: Any) -> str:
    return lm(Request(lm.model, (Message.user("[[ ## question ## ]]\nWho?"),))).text


WAYS = [by_program, by_context, by_default, by_coroutine, by_copy, by_artifact, by_words, by_request]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_two_endpoints_of_one_model_share_no_answers_and_each_has_its_own_kept(
    way: Any, pair: Any, tmp_path: Any
) -> None:
    for _ in range(2):
        for endpoint, says in zip(pair, ("first", "other"), strict=True):
            assert says in way(connect("openai/x", api_base=endpoint.url), tmp_path)
    assert [len(endpoint.seen) for endpoint in pair] == [1, 1]


def test_an_endpoint_of_the_environment_is_one_of_its_own_too(
    pair: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for endpoint, says in zip(pair, ("first", "other"), strict=True):
        monkeypatch.setenv("OPENAI_API_BASE", endpoint.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        assert by_context(connect("openai/x"), tmp_path) == says


def test_what_tells_answers_apart_is_not_sent(pair: Any, tmp_path: Any) -> None:
    by_copy(connect("openai/x", api_base=pair[0].url), tmp_path)
    [(_, _, body)] = pair[0].seen
    assert body.keys() == {"model", "messages", "temperature", "max_tokens"} and body["model"] == "x"


def test_dspys_resampling_gets_new_answers(pair: Any, tmp_path: Any) -> None:
    lm = connect("openai/x", api_base=pair[0].url, temperature=1.0)
    for rollout in (None, 1, 2, 1):
        by_context(lm.copy(rollout_id=rollout), tmp_path)
    assert len(pair[0].seen) == 3


def test_the_old_way_in_keeps_nothing(pair: Any) -> None:
    """`forward` goes around the call whose key names the endpoint."""
    for endpoint, says in zip(pair, ("first", "other"), strict=True):
        lm = connect("openai/x", api_base=endpoint.url)
        messages = [{"role": "user", "content": "[[ ## question ## ]]\nWho?"}]
        assert says in str(lm.forward(messages=messages))
