"""A model at an endpoint of one's own under DSPy's own tools."""

import asyncio
from typing import Literal

import dspy
import pytest
from dspy.streaming import StreamListener, StreamResponse

from raisf.lm import pocket
from raisf.lm.chat import UnreadableReply
from raisf.lm.connect import connect
from raisf.utils.errors import InputError

URL = "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("told", ["api_base", "environment"])
def test_training_rows_are_never_uploaded_to_the_provider_of_its_name(monkeypatch, told):
    uploaded = []
    monkeypatch.setattr("openai.files.create", lambda **given: uploaded.append(given))
    if told == "environment":
        monkeypatch.setenv("OPENAI_API_BASE", URL)
    lm = connect("openai/tiny", api_base=URL if told == "api_base" else None)
    with pytest.raises(InputError, match="would upload the training rows to the provider of its name"):
        lm.finetune([{"messages": []}], "chat").result()
    assert not uploaded


class Judged(dspy.Signature):
    question: str = dspy.InputField()
    verdict: Literal["know", "unknown"] = dspy.OutputField()


@pytest.fixture(scope="module")
def served(llamas):
    with llamas.serve({"pocket": pocket.path()}) as endpoint:
        yield endpoint


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("adapter", [None, dspy.JSONAdapter(), dspy.XMLAdapter()], ids=["chat", "json", "xml"])
def test_any_predictor_asks_a_model_that_continues_texts_as_it_asks_it_in_the_process(served, adapter):
    """A module of one's own with trained weights asked its server in DSPy's chat format, which it had not learnt."""
    asked, told = {"question": "On which river does Pasken lie?"}, []
    for lm in (
        connect("pocket", max_tokens=40),
        connect("openai/pocket", api_base=served.url, max_tokens=40, adapter="pocket", completions=True),
    ):
        with dspy.context(lm=lm, adapter=adapter):
            demonstrated = dspy.Predict("question -> answer")
            demonstrated.demos = [dspy.Example(question="Where does Ulm lie?", answer="Oran")]
            awaited = asyncio.run(dspy.Predict("question -> answer").acall(**asked)).answer
            thought = dspy.ChainOfThought("question -> answer")(**asked)
            with pytest.raises(UnreadableReply):
                dspy.Predict("question -> length: int")(**asked)
            verdict = dspy.Predict(Judged)(**asked).verdict
            told.append((awaited, demonstrated(**asked).answer, thought.reasoning, thought.answer, verdict))
    assert told[0] == told[1]
    assert {path for path, _ in served.seen} == {"/v1/completions"}


@pytest.mark.parametrize("awaited", [False, True], ids=["called", "awaited"])
def test_a_model_that_continues_texts_streams_to_any_predictor(served, awaited):
    lm = connect("openai/pocket", api_base=served.url, max_tokens=40, adapter="pocket", completions=True).copy(
        cache=False
    )
    predictor, asked = dspy.Predict("question -> answer"), {"question": "On which river does Pasken lie?"}

    async def parts():
        listeners = [StreamListener("answer")]
        stream = dspy.streamify(predictor, stream_listeners=listeners, is_async_program=awaited)
        return [part async for part in stream(**asked)]

    with dspy.context(lm=lm):
        *told, final = asyncio.run(parts())
        answer = predictor(**asked).answer
    assert "".join(part.chunk for part in told if isinstance(part, StreamResponse)) == final.answer == answer != ""
