"""OpenAI's chat completions over a program: the last user's message is the question, earlier turns its context.

Beyond OpenAI's fields a completion has `trace`, the whole tree, and `confidence`. Sampling options are taken without
effect: how a program asks its LM is the server's to say. What asks for another form of answer is refused. A call that
`dspy.Predict` wrote is read back into its fields and answered in its format, so `dspy.LM("openai/NAME", api_base=...)`
makes a program an LM.
"""

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from raisf.lm.chat_format import ChatCall, chat_call, earlier_turns
from raisf.programs.conversation import Turn
from raisf.programs.events import DoneEvent, QuestionEvent
from raisf.programs.trace import Cost
from raisf.retrieval.passage import cited_as
from raisf.serving.service import Question, Service, flag, kind_of
from raisf.serving.sources import cited_passages, sum_of
from raisf.serving.streaming import sse
from raisf.utils.errors import InputError, RaisfError

MOST_MESSAGES = 200
ROLES = ("user", "assistant", "system", "tool", "function")


@dataclass(frozen=True)
class ChatRequest:
    """What a client asks for.

    Attributes:
        model: A program's name; None: the first.
        question: The last user's message, or the question of a DSPy call.
        turns: What was said before it.
        call: A call that one of DSPy's adapters wrote.
        stream: Whether the answer comes in chunks.
        usage: Whether the last chunk tells the tokens.
        events: Whether chunks tell each node's change (`"trace": true` in the body).
        max_calls: The request's own limit of LM calls.
        max_seconds: The request's own limit of seconds.
    """

    model: str | None
    question: str
    turns: Sequence[Turn]
    call: ChatCall | None
    stream: bool
    usage: bool
    events: bool
    max_calls: Any
    max_seconds: Any


def read_chat(given: Any) -> ChatRequest:
    """The request in a body.

    Raises:
        InputError: It is none, or asks for what a program cannot do.
    """
    if not isinstance(given, dict) or not isinstance(given.get("messages"), list) or not given["messages"]:
        raise InputError('a request is an object such as {"model": "ra-isf", "messages": [{"role": "user", ...}]}')
    if len(given["messages"]) > MOST_MESSAGES:
        raise InputError(f"{len(given['messages'])} messages; send at most {MOST_MESSAGES}")
    messages = [_message(message) for message in given["messages"]]
    *turns, last = [message for message in messages if message["role"] in ("user", "assistant")] or [{"role": ""}]
    if last["role"] != "user":
        raise InputError("the last message must be the user's question")
    call = chat_call([messages[0], last])  # without its demonstrations, which a program has no use for
    _check_form(given, call)
    options = given.get("stream_options")
    if not isinstance(options, dict | None):
        raise InputError(f'stream_options is {options!r:.40}: give an object such as {{"include_usage": true}}')
    return ChatRequest(
        model=given.get("model"),
        question=last["content"] if call is None else _question_in(call.inputs),
        turns=[turn for turn in _turns(call, turns, last["content"]) if turn.text],
        call=call,
        stream=bool(flag("stream", given.get("stream"))),
        usage=bool(flag("include_usage", (options or {}).get("include_usage"))),
        events=bool(flag("trace", given.get("trace"))),
        max_calls=given.get("max_calls"),
        max_seconds=given.get("max_seconds"),
    )


def _check_form(given: dict[str, Any], call: ChatCall | None) -> None:
    """Refuses a request whose client would take the answer for something that it is not.

    Raises:
        InputError: It asks for several answers, a call of a tool, probabilities, speech, or a form other than text; a
            call of DSPy's JSON adapter is answered in JSON.
    """
    number, form = given.get("n"), given.get("response_format")
    if number is not None and (type(number) is not int or number != 1):
        raise InputError(f"n is {number!r:.20}: a program gives one answer; leave it out")
    for name in ("tool_choice", "function_call"):  # the second is its older name
        if given.get(name) not in (None, "none", "auto"):
            raise InputError(f"{name} is {given[name]!r:.80}: a program calls no tools; leave it out")
    if given.get("modalities") not in (None, ["text"]):
        raise InputError(f"modalities is {given['modalities']!r:.80}: a program answers in text; leave it out")
    if flag("logprobs", given.get("logprobs")):
        raise InputError("logprobs is true: a program tells no probabilities of tokens; leave it out")
    forms = ("text", "json_object", "json_schema") if call is not None and call.markers.kind == "json" else ("text",)
    if form is not None and (not isinstance(form, dict) or form.get("type") not in forms):
        raise InputError(f"response_format is {form!r:.80}: a program answers in text; leave it out")


def models(service: Service) -> dict[str, Any]:
    """The programs, as models."""
    rows = [{"id": name, "object": "model", "created": service.started, "owned_by": "raisf"} for name in service.served]
    return {"object": "list", "data": rows}


def completion(request: ChatRequest, asked: Question, done: DoneEvent, base: str) -> dict[str, Any]:
    """A whole completion; `base` is the service's own address, for the citations' links."""
    message = {
        "role": "assistant",
        "content": _content(request, done),
        "refusal": None,
        "annotations": annotations(asked, done, base),
    }
    return {
        **_head("chat.completion", asked),
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(asked), "logprobs": None}],
        "usage": _usage(asked.cost),
        "trace": done.trace and done.trace.model_dump(mode="json"),
        "confidence": done.confidence,
    }


async def chunks(request: ChatRequest, asked: Question, base: str) -> AsyncIterator[bytes]:
    """A completion in chunks. The answer is known at the end; until then chunks tell how far it has come, if asked."""
    head = _head("chat.completion.chunk", asked)

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        return sse({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for event in asked.events():
            if isinstance(event, DoneEvent):
                for word in _content(request, event).splitlines(keepends=True):
                    yield chunk({"content": word})
                trace = event.trace and event.trace.model_dump(mode="json")
                notes = {"annotations": annotations(asked, event, base)}
                yield chunk(notes, _finish(asked), trace=trace, confidence=event.confidence)
                if request.usage:
                    yield sse({**head, "choices": [], "usage": _usage(asked.cost)})
            elif request.events:
                yield chunk({}, trace_event=event.model_dump(mode="json"))
            elif isinstance(event, QuestionEvent):
                yield b": %s\n\n" % event.node.encode()
    except RaisfError as error:
        yield failed(str(error), kind_of(error)[1])
        return
    yield sse("[DONE]")


def failed(message: str, code: str) -> bytes:
    """The end of a stream that failed."""
    return sse({"error": {"message": message, "type": "server_error", "code": code}}) + sse("[DONE]")


def annotations(asked: Question, done: DoneEvent, base: str) -> list[dict[str, Any]]:
    """The passages that the answer was read from, as OpenAI's URL citations of the whole answer."""
    name = quote(asked.served.name, safe="")
    return [
        {
            "type": "url_citation",
            "url_citation": {
                "start_index": 0,
                "end_index": len(done.answer),
                "title": cited_as(passage),
                "url": f"{base}/#source={name}/{quote(passage.pid, safe='')}&sum={sum_of(passage.text)}",
            },
        }
        for passage in cited_passages(done)
    ]


def _message(given: Any) -> dict[str, str]:
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise InputError('a message is an object such as {"role": "user", "content": "..."}')
    content = given.get("content")
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                found = part.get("type") if isinstance(part, dict) else part
                raise InputError(f"a part of a message is {found!r:.40}: a program reads parts of type text only")
        content = "\n".join(part["text"] for part in content)
    if not isinstance(content, str | None):
        raise InputError(f"a message's content is text, found {type(content).__name__}")
    role = "system" if given["role"] == "developer" else given["role"]
    if role not in ROLES:  # passed over, the message before it would be answered
        raise InputError(f"a message's role is {role!r:.40}: give user, assistant or system")
    return {"role": role, "content": content or ""}


def _turns(call: ChatCall | None, messages: Sequence[dict[str, str]], last: str) -> Iterator[Turn]:
    """What was said before the last message; before a DSPy call it is what its `dspy.History` tells."""
    if call is None:
        yield from (Turn(message["role"], message["content"]) for message in messages)
        return
    for inputs, outputs in earlier_turns(call, messages, last):
        yield Turn("user", _question_in(inputs))
        yield Turn("assistant", str(outputs.get(_place_of(call)) or ""))


def _question_in(fields: dict[str, Any]) -> str:
    """The field "question", else the only input, else all of them by name; a list's items are lines."""
    inputs = {
        name: "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in fields.items()
        if value is not None
    }
    if "question" in inputs or len(inputs) == 1:
        return inputs.get("question", next(iter(inputs.values())))
    return "\n".join(f"{name}: {value}" for name, value in inputs.items())


def _content(request: ChatRequest, done: DoneEvent) -> str:
    if request.call is None:
        return done.answer
    root = done.trace and done.trace.root
    reason = (root.evidence or root.reason) if root else ""
    return request.call.answer({"reasoning": reason, _place_of(request.call): done.answer})


def _place_of(call: ChatCall) -> str:
    """The output that holds the answer."""
    names = list(call.signature.output_fields)
    return "answer" if "answer" in names else names[-1]


def _finish(asked: Question) -> str:
    """Why the answer ends, as OpenAI says it: its question's limits of calls and seconds cut it as one of tokens."""
    return "length" if asked.spent else "stop"


def _head(kind: str, asked: Question) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": asked.served.name,
    }


def _usage(cost: Cost) -> dict[str, int]:
    """OpenAI's fields; beyond them how many calls the program made, and how many of these told no tokens."""
    return {
        "prompt_tokens": cost.prompt_tokens,
        "completion_tokens": cost.completion_tokens,
        "total_tokens": cost.prompt_tokens + cost.completion_tokens,
        "lm_calls": cost.lm_calls,
        "unmetered_calls": cost.unmetered_calls,
    }
