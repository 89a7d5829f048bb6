"""OpenTelemetry spans: what a user's collector is told, and whose child each span is, however the work is spread."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import dspy
import pytest
from dspy.lm15 import Config, Message, Request, Response, Usage

from raisf.lm.connect import adapter_for, connect
from raisf.programs import tracing
from raisf.programs.baselines.direct import Direct
from raisf.programs.baselines.rag import RAG
from raisf.programs.live import stream
from raisf.programs.ra_isf import RAISF
from raisf.utils.errors import InputError

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="the extra `otel` is not installed")


class Collected:
    """The spans of a test, by what they tell."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.memory = InMemorySpanExporter()
        self.provider = sdk.TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.memory))

    @property
    def spans(self) -> list[Any]:
        return list(self.memory.get_finished_spans())

    def of(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def node(self, question: str) -> Any:
        (found,) = [span for span in self.of("node") if span.attributes["input.value"] == question]
        return found

    def above(self, span: Any) -> list[Any]:
        """The spans around one, the nearest first."""
        by_id = {one.context.span_id: one for one in self.spans}
        found = []
        while span.parent is not None:
            span = by_id[span.parent.span_id]
            found.append(span)
        return found


@pytest.fixture
def collected() -> Collected:
    return Collected()


@pytest.fixture
def traced(collected: Collected) -> Iterator[Collected]:
    """The spans of what runs in the test."""
    with dspy.context(callbacks=[tracing.SpanCallback(collected.provider)]):
        yield collected


def _nearest_node(collected: Collected, span: Any) -> Any:
    return next(one for one in collected.above(span) if one.name == "node")


def test_each_span_hangs_below_the_node_that_caused_it(ask, scripted, plan, shelf, traced):
    """Sub-questions and the judgements of each run side by side: a span below another's node would be a lie."""
    subs = ["alpha", "bravo", "charlie", "delta"]
    ask(RAISF(shelf, k=3), scripted(root=plan(subs=subs), **{name: plan(relevant=1) for name in subs}))
    (program,) = traced.of("ra-isf")
    assert program.parent is None and program.attributes["output.value"] == "A(root)"
    root = traced.node("root")
    assert traced.above(root) == [program]
    assert all(traced.above(traced.node(name)) == [root, program] for name in subs)
    for search in traced.of("search"):
        assert _nearest_node(traced, search).attributes["input.value"] == search.attributes["input.value"]
    calls = traced.of("LM")
    for call in calls:
        asked = " ".join(str(value) for key, value in call.attributes.items() if key.endswith("content"))
        node = _nearest_node(traced, call).attributes["input.value"]
        assert node in asked and (node == "root" or not any(other in asked for other in {*subs} - {node}))
    assert len(calls) == 2 + 1 + 3 + 4 * (1 + 3 + 1), "know, decompose, compose; 3 verdicts; know, verdicts, answer"
    assert len({span.context.trace_id for span in traced.spans}) == 1


def test_a_question_that_is_streamed_is_one_trace_below_its_program_the_call_that_rewords_it_too(
    scripted, plan, shelf, traced
):
    """A service, a chat and `--live` call no program, they read its events."""
    program = RAISF(shelf, k=1)
    program.set_lm(scripted(root=plan(know=True)))
    list(stream(program.live("root", reword=lambda text, run: str(run.ask(program.know, question=text) and text))))
    (told,) = traced.of("ra-isf")
    assert told.parent is None and told.attributes["input.value"] == "root"
    assert told.attributes["output.value"] == "A(root)"
    assert all(traced.above(span)[-1] is told for span in traced.spans if span is not told)
    assert {tuple(traced.above(span)[1:]) for span in traced.of("LM")} == {(told,), (traced.node("root"), told)}


def test_questions_asked_side_by_side_are_traces_of_their_own(scripted, plan, shelf, traced):
    program = RAISF(shelf, k=2)
    program.set_lm(scripted(root=plan(relevant=1)))
    questions = [f"root {number}" for number in range(6)]
    dspy.Parallel(num_threads=6, disable_progress_bar=True)(
        [(program, dspy.Example(question=one).with_inputs("question")) for one in questions]
    )
    roots = {span.context.trace_id: span.attributes["input.value"] for span in traced.of("ra-isf")}
    assert sorted(roots.values()) == questions
    for node in traced.of("node"):
        assert roots[node.context.trace_id] == node.attributes["input.value"]


def test_a_span_tells_what_happened_in_the_fields_words(ask, scripted, plan, shelf, traced):
    ask(RAISF(shelf, k=2), scripted(root=plan(relevant=1)))
    kinds = {span.name: span.attributes["openinference.span.kind"] for span in traced.spans}
    assert kinds["LM"] == "LLM" and kinds["search"] == "RETRIEVER" and kinds["node"] == kinds["ra-isf"] == "CHAIN"
    assert {"SelfKnowledge", "PassageRelevance", "GroundedAnswer"} <= kinds.keys()
    node = traced.node("root").attributes
    assert (node["raisf.node.route"], node["raisf.node.know"], node["output.value"]) == (
        "passages",
        "unknown",
        "A(root)",
    )
    (search,) = traced.of("search")
    assert search.attributes["retrieval.documents.0.document.id"] == "p1"
    assert search.attributes["retrieval.documents.1.document.content"] == "passage 2"
    call = traced.of("LM")[0].attributes
    assert call["llm.model_name"] and call["llm.token_count.prompt"] > 0
    assert all(span.status.is_ok for span in traced.spans)


@pytest.mark.parametrize("adapter", [None, dspy.ChatAdapter()], ids=["typed requests", "messages"])
def test_a_call_is_told_with_its_own_options(adapter, scripted, plan, traced):
    """It had its LM's in place of its own."""
    lm = scripted(root=plan(know=True)).copy(temperature=0.0, max_tokens=50)
    with dspy.context(lm=lm, adapter=adapter or adapter_for(lm)):
        dspy.Predict("question -> answer")(question="root", config={"temperature": 0.7, "seed": 3})
    (call,) = traced.of("LM")
    told = json.loads(call.attributes["llm.invocation_parameters"])
    assert told == {"temperature": 0.7, "seed": 3, "max_tokens": 50}


def test_tokens_of_a_call_that_dspys_cache_answered_are_not_told_again(faulty, shelf, collected):
    """Collectors compute costs from them."""
    program = RAG(shelf, k=1)
    both = [tracing.SpanCallback(collected.provider) for _ in range(2)]
    with faulty.serve() as endpoint, dspy.context(callbacks=both):
        program.set_lm(connect("openai/x", api_base=endpoint.url))
        costs = [program(question="Whose tokens?").trace.cost for _ in range(2)]
    spent = [span.attributes.get("llm.token_count.prompt") for span in collected.of("LM")]
    once = costs[0].prompt_tokens
    assert once and not costs[1].prompt_tokens and spent == [once, once, None, None]


def test_an_lm_that_asks_another_tells_its_own_tokens(faulty, collected):
    class Router:
        def complete(self, request):
            inner(Request(model=inner.model, messages=(Message.user("Which?"),), config=Config()))
            said, usage = Message.assistant("[[ ## answer ## ]]\nAda\n"), Usage(input_tokens=70, output_tokens=5)
            return Response(id=None, model="router", message=said, finish_reason="stop", usage=usage)

    program = Direct()
    program.set_lm(dspy.LM("openai/router", engine=Router(), cache=False))
    with faulty.serve() as endpoint, dspy.context(callbacks=[tracing.SpanCallback(collected.provider)]):
        inner = connect("openai/x", api_base=endpoint.url)
        program(question="Who?")
    tokens = {span.attributes["llm.model_name"]: span.attributes for span in collected.of("LM")}
    assert tokens["openai/router"]["llm.token_count.prompt"] == 70
    assert tokens["openai/x"]["llm.token_count.prompt"]


def test_a_failure_ends_its_spans_and_is_told(scripted, plan, shelf, traced):
    class Broken(type(shelf)):
        def __call__(self, query, k):
            raise OSError("the disk is gone")

    program = RAISF(Broken())
    program.set_lm(scripted(root=plan()))
    with pytest.raises(OSError, match="disk"):
        program(question="root")
    for name in ("search", "node", "ra-isf"):
        (span,) = traced.of(name)
        assert not span.status.is_ok and span.status.description == "OSError"
        (event,) = span.events
        assert dict(event.attributes) == {"exception.type": "OSError"}, "a text may repeat a key, or what is hidden"


def test_what_is_not_to_be_told_is_left_out(ask, scripted, plan, shelf, collected, monkeypatch):
    monkeypatch.setenv("OPENINFERENCE_HIDE_INPUTS", "true")
    monkeypatch.setenv("OPENINFERENCE_HIDE_OUTPUTS", "true")
    with dspy.context(callbacks=[tracing.SpanCallback(collected.provider)]):
        ask(RAISF(shelf, k=2), scripted(root=plan(relevant=1)))
    told = " ".join(str(value) for span in collected.spans for value in span.attributes.values())
    assert collected.spans and "root" not in told and "passage" not in told.replace("passages", "")


def test_an_observer_that_fails_costs_no_answer(ask, scripted, plan, shelf, traced, monkeypatch):
    monkeypatch.setattr(tracing.SpanCallback, "_end", lambda *_, **__: 1 / 0)
    assert ask(RAISF(shelf), scripted(root=plan(know=True))).root.answer == "A(root)"


def test_trace_with_takes_the_place_of_an_earlier_one(collected, monkeypatch):
    configured: dict[str, Any] = {}
    monkeypatch.setattr(dspy, "configure", lambda **settings: configured.update(settings))
    first = tracing.trace_with(collected.provider)
    with dspy.context(callbacks=[first, other := dspy.utils.callback.BaseCallback()]):
        second = tracing.trace_with(collected.provider)
    assert configured["callbacks"] == [other, second]


def test_the_environment_names_the_exporter(monkeypatch, capsys):
    configured: dict[str, Any] = {}
    monkeypatch.setattr(dspy, "configure", lambda **settings: configured.update(settings))
    begin = tracing.trace_from_environment.__wrapped__
    monkeypatch.delenv(tracing.EXPORTER, raising=False)
    assert not begin()
    monkeypatch.setenv(tracing.EXPORTER, "none")
    assert not begin()
    monkeypatch.setenv(tracing.EXPORTER, "nosuch")
    assert not begin() and not configured
    monkeypatch.setenv(tracing.EXPORTER, "console")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not begin()
    monkeypatch.delenv("OTEL_SDK_DISABLED")
    assert begin() and isinstance(configured["callbacks"][-1], tracing.SpanCallback)


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InputError, match=r"pip install 'raisf\[otel\]'"):
        tracing.SpanCallback()
