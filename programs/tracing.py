"""OpenTelemetry spans of programs, nodes, LM calls and searches, with OpenInference's attributes.

    pip install raisf[otel]
    raisf.trace_with(provider)      # or OTEL_TRACES_EXPORTER=otlp in the environment of any command

A span's parent is what was under way in its context, and every task of a program runs in a copy of the context that
started it: so parents are right however the work is spread over threads.

Source:
    https://arize-ai.github.io/openinference/spec/ (span kinds and attributes).
"""

import functools
import json
import logging
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Any

import dspy

from raisf.programs.callbacks import RunCallback
from raisf.programs.trace import Node
from raisf.retrieval.passage import Passage
from raisf.utils.errors import InputError
from raisf.utils.usage import was_cached

logger = logging.getLogger(__name__)

EXPORTER = "OTEL_TRACES_EXPORTER"
INSTALL = "pip install 'raisf[otel]'"
_GROUP = "opentelemetry_traces_exporter"
# What of an LM's options goes into a span; addresses and keys never do.
_OPTIONS = ("temperature", "max_tokens", "top_p", "seed", "n")


def trace_with(tracer_provider: Any = None) -> "SpanCallback":
    """From now on, every program's work is told to OpenTelemetry.

    Args:
        tracer_provider: Whose spans these are; None for the process's own (`opentelemetry.trace.get_tracer_provider`).

    Returns:
        The callback, which has been added to DSPy's settings; `dspy.context(callbacks=[...])` takes it as well.

    Raises:
        InputError: OpenTelemetry is not installed.
    """
    made = SpanCallback(tracer_provider)
    others = [one for one in dspy.settings.get("callbacks") or [] if not isinstance(one, SpanCallback)]
    dspy.configure(callbacks=[*others, made])
    return made


@functools.cache
def trace_from_environment() -> bool:
    """Begins to trace as OpenTelemetry's own variables say, once a process; False where they say nothing.

    `OTEL_TRACES_EXPORTER` names the exporters, `otlp` or `console` among them; endpoint, headers, service name and
    sampler are OpenTelemetry's own variables too.
    """
    names = [name.strip() for name in os.environ.get(EXPORTER, "").split(",")]
    names = [name for name in names if name not in ("", "none")]
    if not names or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        logger.warning("%s is set, but OpenTelemetry's SDK is not installed: %s", EXPORTER, INSTALL)
        return False
    provider = TracerProvider()
    for name in names:
        found = [one for named in _exporters(name) for one in entry_points(group=_GROUP, name=named)]
        if not found:
            logger.warning("%s names %r, for which no exporter is installed: pip install one", EXPORTER, name)
            return False
        provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    trace_with(provider)
    return True


class SpanCallback(RunCallback):
    """Makes a span of each module, node, LM call and search.

    `OPENINFERENCE_HIDE_INPUTS` and `OPENINFERENCE_HIDE_OUTPUTS` (`true`) leave out questions, passages and answers.

    Args:
        tracer_provider: See `trace_with`.
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise InputError(f"tracing needs OpenTelemetry, which is not installed: {INSTALL}") from error
        self._tracer = trace.get_tracer("raisf", tracer_provider=tracer_provider)
        self._open: dict[str, tuple[Any, Any]] = {}
        self._hidden = {side for side in ("INPUTS", "OUTPUTS") if _set(f"OPENINFERENCE_HIDE_{side}")}

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """A program, or a predictor: its signature names it."""
        signature = getattr(instance, "signature", None)
        name = getattr(instance, "system", None) or getattr(signature, "__name__", None) or type(instance).__name__
        given = inputs.get("kwargs") or inputs
        self._start(call_id, name, "CHAIN", _plain(given.get("question") if set(given) == {"question"} else given))

    def on_module_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Its prediction; a program's is its answer, for the trace is told by the spans below it."""
        told = dict(outputs) if isinstance(outputs, dspy.Prediction) else outputs
        if isinstance(told, dict) and "trace" in told:
            told = told.get("answer")
        self._end(call_id, _plain(told), exception)

    def on_node_start(self, call_id: str, node: Node) -> None:
        """A question of the tree."""
        self._start(call_id, "node", "CHAIN", node.question, {"raisf.node.depth": node.depth})

    def on_node_end(self, call_id: str, node: Node, exception: BaseException | None) -> None:
        """Its route and answer."""
        told: dict[str, Any] = {"raisf.node.route": node.route, "raisf.node.readable": node.readable}
        if node.know is not None and node.know.verdict is not None:
            told["raisf.node.know"] = node.know.verdict
        self._end(call_id, node.answer, exception, told)

    def on_search_start(self, call_id: str, query: str, k: int) -> None:
        """A query."""
        self._start(call_id, "search", "RETRIEVER", query, {"raisf.search.k": k})

    def on_search_end(self, call_id: str, passages: Sequence[Passage] | None, exception: BaseException | None) -> None:
        """The passages found."""
        told: dict[str, Any] = {}
        for number, passage in enumerate(passages or ()):
            place = f"retrieval.documents.{number}.document"
            told[f"{place}.id"] = passage.pid
            if passage.score is not None:
                told[f"{place}.score"] = float(passage.score)
            if "OUTPUTS" not in self._hidden:
                told[f"{place}.content"] = passage.text
        self._end(call_id, None, exception, told)

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """A call of an LM, typed or of text."""
        request, model = inputs.get("prompt"), str(getattr(instance, "model", ""))
        messages = inputs.get("messages") or getattr(request, "messages", None) or ([request] if request else [])
        config = getattr(request, "config", None)  # a typed request has all options, those of its LM too
        given = {} if config else {**instance.kwargs, **(inputs.get("kwargs") or {})}
        options = {name: value for name in _OPTIONS if (value := getattr(config, name, given.get(name))) is not None}
        told = {"llm.model_name": model, "llm.invocation_parameters": json.dumps(options, default=str)}
        if "INPUTS" not in self._hidden:
            system = getattr(request, "system", None)
            told |= _messages(
                "llm.input_messages", [*([{"role": "system", "content": system}] if system else []), *messages]
            )
        self._start(call_id, "LM", "LLM", None, told)

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Its response, with the tokens where it tells them and they were spent: DSPy's cache keeps those of once."""
        told: dict[str, Any] = {}
        usage = None if was_cached(call_id) else getattr(outputs, "usage", None)
        for name, field in (("prompt", "input_tokens"), ("completion", "output_tokens")):
            if (count := getattr(usage, field, None)) is not None:
                told[f"llm.token_count.{name}"] = int(count)
        if "OUTPUTS" not in self._hidden and outputs is not None:
            message = getattr(outputs, "message", None)
            told |= _messages("llm.output_messages", [message] if message is not None else list(outputs))
        self._end(call_id, None, exception, told)

    def _start(
        self, call_id: str, name: str, kind: str, given: str | None, told: Mapping[str, Any] | None = None
    ) -> None:
        from opentelemetry import context, trace

        span = self._tracer.start_span(name, attributes={"openinference.span.kind": kind, **(told or {})})
        if given is not None and "INPUTS" not in self._hidden:
            span.set_attribute("input.value", given)
        self._open[call_id] = span, context.attach(trace.set_span_in_context(span))

    def _end(
        self, call_id: str, made: str | None, exception: BaseException | None, told: Mapping[str, Any] | None = None
    ) -> None:
        from opentelemetry import context, trace

        if call_id not in self._open:
            return  # its start failed, which has been told
        span, token = self._open.pop(call_id)
        context.detach(token)
        span.set_attributes(told or {})
        if made is not None and "OUTPUTS" not in self._hidden:
            span.set_attribute("output.value", made)
        if exception is None:
            span.set_status(trace.StatusCode.OK)
        else:
            # Its type alone: an error's text may repeat a key, an address, or a question that is to be hidden.
            kind = type(exception).__name__
            span.add_event("exception", {"exception.type": kind})
            span.set_status(trace.StatusCode.ERROR, kind)
        span.end()


def _messages(name: str, messages: Sequence[Any]) -> dict[str, str]:
    """Messages, texts or DSPy's dictionaries of one, as OpenInference's attributes."""
    told = {}
    for number, one in enumerate(messages):
        of = one if isinstance(one, Mapping) else vars(one) if hasattr(one, "__dict__") else {}
        content = one if isinstance(one, str) else of.get("content") or of.get("text") or _parts(one)
        told[f"{name}.{number}.message.role"] = str(of.get("role") or getattr(one, "role", None) or "assistant")
        told[f"{name}.{number}.message.content"] = content if isinstance(content, str) else _plain(content)
    return told


def _parts(message: Any) -> str:
    """The text of a typed message."""
    return "\n".join(str(text) for part in getattr(message, "parts", ()) if (text := getattr(part, "text", None)))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _exporters(name: str) -> Sequence[str]:
    """What an exporter of the environment is called among those installed; `otlp` goes by its protocol, if it says."""
    if name != "otlp":
        return [name]
    general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general).strip()
    named = {"grpc": ["otlp_proto_grpc"], "http/protobuf": ["otlp_proto_http"]}
    return named.get(protocol, ["otlp_proto_http", "otlp_proto_grpc"])


def _set(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("true", "1")
