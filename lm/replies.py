"""What an endpoint's reply is worth: whether it is whole, what it says of an error, and which may be kept."""

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from dspy._vendor.lm15.providers import openai_chat
from dspy._vendor.lm15.transports import AsyncTransportResponse, StdlibAsyncTransport
from dspy.lm15 import ProviderError, Response

from raisf.utils.urls import without_secrets

# Why a server says that it ended a text which nobody ended: aborted, crashed, restarted, overloaded.
BROKEN = frozenset(
    "abort aborted error cancel cancelled canceled timeout network_error insufficient_system_resource".split()
)
# How DSPy's client understands these, and what others than OpenAI call the token limit and the filter: it takes what it
# does not know for a text's own end, and of a stream it keeps only what it understood.
REASONS: dict[Any, Any] = openai_chat._FINISH_REASON_MAP
REASONS.update(dict.fromkeys(BROKEN, "error"))
_CUT = "max_tokens MAX_TOKENS max_length model_length token_limit max_output_tokens"
_FILTERED = (
    "sensitive safety SAFETY recitation RECITATION content-filter content_filtered refusal "
    "BLOCKLIST PROHIBITED_CONTENT SPII promptFeedback"
)
REASONS.update(dict.fromkeys(_CUT.split(), "length"))
REASONS.update(dict.fromkeys(_FILTERED.split(), "content_filter"))

MOST_BYTES = 1 << 26
"""Of a reply: a model of our days writes fewer, be it with a chunk a token or with the likeliest tokens beside each."""

_ANSWERS = {"choices", "content", "candidates", "output"}
"""Where providers' replies have the answer."""

_TOO_LONG = re.compile(
    r"maximum context length|available context size|longer than the (?:model's context|maximum model) length"
    r"|must have less than \d+ tokens|context length (?:is|of) only|greater than (?:the context length|max_seq_len)"
    r"|max_new_tokens\S* must be <=|prompt is too long",
    re.IGNORECASE,
)


class Connections:
    """DSPy's connections to an endpoint, for one event loop: none that sends elsewhere is read, nor one without end.

    Args:
        timeout: Seconds to wait for the next byte.
    """

    def __init__(self, timeout: float) -> None:
        self._own = StdlibAsyncTransport(read_timeout=timeout, write_timeout=timeout, pool_timeout=timeout)

    @contextlib.asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[AsyncTransportResponse]:
        """Send a request; see `StdlibAsyncTransport`."""
        async with self._own.stream(request) as reply:
            check_stays(reply.status, reply.header("location"))
            reply._chunks = bounded(reply._chunks)
            if reply.status >= 400:
                reply._chunks = complaint(reply._chunks)
            yield reply


def check_stays(status: int, location: str | None) -> None:
    """Raise ProviderError for a reply that sends on to another address: the question and the key are not for it."""
    if 300 <= status < 400:
        raise ProviderError(f"to {without_secrets(location)}" if location else "it does not say where", status=status)


async def bounded(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The chunks of a reply; raises ProviderError where they go on for more than `MOST_BYTES`."""
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MOST_BYTES:
            raise ProviderError(f"the reply is longer than {MOST_BYTES:,} bytes")
        yield chunk


async def complaint(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What a server says beside a status of failure, as OpenAI says it: DSPy's client understands no other form.

    SGLang has the message outside of an `error`, as vLLM had it, FastAPI calls it `detail`, and of a prompt that is too
    long vLLM, SGLang and llama.cpp tell in words alone.
    """
    said = b"".join([chunk async for chunk in chunks])
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        found = json.loads(said)
        error = found.get("error", found)
        error = error if isinstance(error, dict) else {"message": error}
        if told := error.get("message") or error.get("detail"):
            told = told if isinstance(told, str) else json.dumps(told)
            code = {"code": "context_length_exceeded"} if _TOO_LONG.search(told) else {}
            said = json.dumps({"error": {**error, "message": told, **code}}).encode()
    yield said


def check_ended(reason: str | None, body: Any) -> None:
    """Raise ProviderError for a reply that its server broke off, or that tells an error.

    Args:
        reason: Why it ended, as DSPy's client understood it.
        body: The reply itself; anything.
    """
    if isinstance(body, dict) and (body.get("error") or body.get("object") == "error"):
        raise ProviderError(f"the endpoint says: {str(body.get('error') or body.get('message'))[:300]}")
    try:
        said = body["choices"][0]["finish_reason"]
    except (LookupError, TypeError):
        said = None
    for one in (said, reason):
        if one in BROKEN:
            raise ProviderError(f"the reply was broken off (finish_reason: {one})")


def check_answers(response: Response) -> None:
    """Raise ProviderError for a response to a reply that has no place for an answer, such as `{"status": "queued"}`."""
    body = response.provider_data
    if body and not _ANSWERS.intersection(body) and not says_something(response):
        raise ProviderError(f"there is no answer in the reply: {json.dumps(body, default=str)[:200]}")


def lasting(response: Response) -> bool:
    """Whether a response may be kept: an endpoint that said nothing, or filtered its text, may answer the next time."""
    return says_something(response) and response.finish_reason != "content_filter"


def says_something(response: Response) -> bool:
    """Whether there is text, a tool call, or a reason for neither (a refusal, the token limit).

    Log-probabilities say something too: the likeliest token may be the end, and the next ones labels.
    """
    return (
        bool(response.text or response.logprobs)
        or response.finish_reason != "stop"
        or any(part.type != "text" for part in response.message.parts)
    )
