"""If these failed, what an endpoint said while it was ill would be its answer for ever: DSPy's cache is on the disk."""

import asyncio
import json

import dspy
import pytest
from dspy.lm15 import Message, ProviderError, Request, StreamDeltaEvent, StreamEndEvent, TextDelta
from dspy.utils.exceptions import AdapterParseError, LMProviderError

from raisf.lm import completions
from raisf.lm.connect import adapter_for, connect
from raisf.lm.keeping import Heard
from raisf.lm.options import together
from raisf.programs.baselines.direct import Direct
from raisf.utils.errors import LMError


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("raisf.lm.transport.GARBAGE_SECONDS", 0.01)


@pytest.fixture
def ill(faulty, monkeypatch):
    """Serves an endpoint whose replies are of one kind until its `rate` is 0."""
    for finish in ("content_filter", "abort", "error", "cancelled"):
        monkeypatch.setitem(faulty.BODIES, finish, lambda right, finish=finish: faulty.completion(right[:-30], finish))
    return lambda kind: faulty.serve(1.0, kinds=[kind])


def ask(lm):
    with dspy.context(lm=lm, adapter=adapter_for(lm)):
        return dspy.Predict("question -> answer")(question="Who?").answer


def awaited(lm):
    async def both():
        with dspy.context(lm=lm, adapter=adapter_for(lm)):
            return (await dspy.Predict("question -> answer").acall(question="Who?")).answer

    return asyncio.run(both())


async def streamed(lm):
    with dspy.context(lm=lm, adapter=adapter_for(lm)):
        program = dspy.streamify(dspy.Predict("question -> answer"))
        return [piece async for piece in program(question="Who?")][-1]


@pytest.mark.parametrize("asked", [ask, awaited])
@pytest.mark.parametrize("kind", ["empty", "null content", "content_filter", "abort", "error", "cancelled"])
def test_the_next_run_asks_again_and_a_good_answer_is_kept(ill, kind, asked):
    with ill(kind) as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, num_retries=1)
        with pytest.raises((AdapterParseError, LMProviderError)):
            asked(lm)
        endpoint.rate = 0.0
        assert asked(lm).startswith("answer ")
        before = len(endpoint.seen)
        assert asked(lm).startswith("answer ") and len(endpoint.seen) == before  # from the cache


def test_what_a_server_broke_off_is_tried_again_and_is_an_error_by_name(ill):
    """The half of a sentence was an answer: DSPy's client takes "abort" for a text's own end."""
    with ill("abort") as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url, num_retries=2))
        with pytest.raises(LMError, match=r"broken off \(finish_reason: abort\)"):
            program(question="Who?")
        assert len(endpoint.seen) == 3


def test_an_empty_reply_is_counted_as_unreadable_still(ill):
    with ill("empty") as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url, num_retries=0))
        trace = program(question="Who?").trace
        assert (trace.unreadable, trace.failed) == (1, 0)


def test_the_rest_of_a_call_is_as_without_it(ill):
    """Candidates, tokens and the history of an empty reply are not lost with its place in the cache."""
    with ill("empty") as endpoint, dspy.track_usage() as usage:
        lm = connect("openai/x", api_base=endpoint.url, num_retries=0)
        assert lm("Who?", n=2) == ["", ""] == lm("Who?", n=2)
        assert len(endpoint.seen) == 4 and len(lm.history) == 2
        assert usage.get_total_tokens()["openai/x"]["completion_tokens"] == 20


def test_of_candidates_that_came_together_an_empty_one_is_not_kept(ill):
    with ill("empty") as endpoint:
        lm, draw = connect("openai/x", api_base=endpoint.url, num_retries=0), endpoint.draw

        def first_only(*request):
            endpoint.rate = 0.0 if endpoint.seen else 1.0
            return draw(*request)

        endpoint.draw = first_only
        assert lm("Who?", n=2)[0] == "" and len(endpoint.seen) == 2
        assert "" not in lm("Who?", n=2) and len(endpoint.seen) == 4


def test_an_empty_stream_is_not_kept(faulty):
    said = {"answer": ""}
    with faulty.serve(answer=lambda fields: said["answer"]) as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, num_retries=0)
        with pytest.raises(Exception):  # noqa: B017 - DSPy groups what its tasks raise
            asyncio.run(streamed(lm))
        said["answer"] = "[[ ## answer ## ]]\nOslo\n\n[[ ## completed ## ]]"
        assert asyncio.run(streamed(lm)).answer == "Oslo"


@pytest.mark.parametrize(("finish", "kept"), [("content_filter", False), ("stop", True)])
def test_half_of_a_filtered_stream_is_not_kept(finish, kept):
    heard = Heard()
    heard.note(StreamDeltaEvent(TextDelta("Half of")))
    heard.note(StreamEndEvent(finish_reason=finish))
    assert heard.lasting == kept


@pytest.mark.parametrize(("said", "finish"), [(None, "stop"), ("stop", "stop"), ("length", "length"), ("eos", "stop")])
def test_a_continued_text_ends_as_its_server_says(said, finish):
    request = Request(model="openai/x", messages=(Message.user("q"),))
    body = {"choices": [{"text": " Os", "finish_reason": said}]}
    assert completions._read(request, body).finish_reason == finish


def test_a_continued_text_that_was_filtered_or_broken_off_is_no_answer():
    """Every end but the token limit was the text's own."""
    request = Request(model="openai/x", messages=(Message.user("q"),))
    filtered = {"choices": [{"text": " Os", "finish_reason": "content_filter"}]}
    assert completions._read(request, filtered).finish_reason == "content_filter"
    with pytest.raises(ProviderError, match="broken off"):
        completions._read(request, {"choices": [{"text": " Os", "finish_reason": "abort"}]})


PART = {"choices": [{"index": 0, "delta": {"content": "[[ ## answer ## ]]\nThe capital of"}, "finish_reason": None}]}
USED = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}


@pytest.mark.parametrize(
    "rest",
    [
        [{"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}, USED],
        [{"choices": [{"index": 0, "delta": {}, "finish_reason": "model_length"}]}, USED],
        [{"error": "out of memory"}],
        [{"object": "error", "message": "out of memory"}],
        [USED],
        [],
    ],
)
def test_half_of_a_stream_is_no_answer(faulty, monkeypatch, rest):
    """With a count of tokens or [DONE] behind it, it was one."""
    frames = "".join(f"data: {json.dumps(frame)}\n\n" for frame in [PART, *rest]) + "data: [DONE]\n\n"
    monkeypatch.setattr(faulty.Handler, "_stream", lambda self, said: self._send(frames.encode()))
    with faulty.serve() as endpoint:
        lm = connect("openai/x", api_base=endpoint.url)
        with pytest.raises(Exception):  # noqa: B017 - DSPy groups what its tasks raise
            asyncio.run(streamed(lm))


@pytest.mark.parametrize(
    "reason",
    "max_tokens MAX_TOKENS model_length token_limit SAFETY sensitive content-filter content_filtered refusal".split(),
)
def test_an_answer_that_was_cut_off_is_none_whatever_its_server_calls_that(ill, faulty, monkeypatch, reason):
    monkeypatch.setitem(faulty.BODIES, reason, lambda right: faulty.completion(right[:-30], reason))
    with ill(reason) as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url, num_retries=0))
        trace = program(question="Who?").trace
        assert (trace.root.answer, trace.unreadable) == ("unknown", 1)


@pytest.mark.parametrize("error", [{"error": "no memory"}, {"object": "error", "message": "no memory"}])
@pytest.mark.parametrize("more", [b"", b"half"])
def test_a_reply_that_tells_an_error_is_none(ill, faulty, monkeypatch, error, more):
    """Where it was no object, the answer was "unknown", or the half that stood beside it."""
    half = json.loads(faulty.completion("[[ ## answer ## ]]\nThe capital of")) if more else {}
    monkeypatch.setitem(faulty.BODIES, "told", lambda right: json.dumps({**half, **error}).encode())
    with ill("told") as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url, num_retries=0))
        with pytest.raises(LMError, match="the endpoint says: no memory"):
            program(question="Who?")


@pytest.mark.parametrize("told", ['"prompt_tokens": 10, "completion_tokens": 5, ', '"completion_tokens": 5, '])
def test_a_call_that_tells_not_both_counts_of_tokens_is_unmetered(faulty, monkeypatch, told):
    """Who told but the total was counted as one who read and wrote nothing."""
    monkeypatch.setitem(faulty.BODIES, "partly", lambda right: faulty.completion(right).replace(told.encode(), b""))
    with faulty.serve(1.0, kinds=["partly"]) as endpoint:
        program = Direct()
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        assert program(question="Who?").trace.cost.unmetered_calls == 1


def test_candidates_of_a_seed_are_asked_for_with_seeds_of_their_own(faulty):
    with faulty.serve(0.0) as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, temperature=1.0)
        assert len(lm("Who?", n=3, seed=5)) == 3
        asyncio.run(lm.acall("Where?", n=2, seed=5))
        assert [body["seed"] for _, _, body in endpoint.seen] == [5, 6, 7, 5, 6]
        lm("Who?", n=3, seed=5)
        assert len(endpoint.seen) == 5  # from the cache


def test_a_candidate_that_is_not_kept_costs_the_others_nothing(ill):
    with ill("content_filter") as endpoint:
        lm = connect("openai/x", api_base=endpoint.url, temperature=1.0)
        endpoint.rate = 0.0
        lm("Who?", n=2, seed=5)
        endpoint.rate = 1.0
        assert len(lm("Who?", n=3, seed=4)) == 3
        assert [body["seed"] for _, _, body in endpoint.seen] == [5, 6, 4]
        with pytest.raises(TypeError, match="seed must be an int"):
            lm("Who?", n=2, seed="5")


def test_candidates_are_alike_though_one_alone_gives_more_than_a_text():
    assert together([["a"], [{"text": "b", "logprobs": []}]]) == [{"text": "a"}, {"text": "b", "logprobs": []}]
