"""The endpoint `/completions`: a text that the model continues as it is, without its chat template.

DSPy's own client speaks the chat dialect alone. Base models, and LoRA modules that were trained on the compact format,
are asked here.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from dspy.clients._http import retry_after_seconds
from dspy.lm15 import (
    AsyncOpenAIChatLM,
    Message,
    Request,
    Response,
    StreamDeltaEvent,
    StreamEndEvent,
    StreamStartEvent,
    TextDelta,
    TokenLogprob,
    TopLogprob,
    TransportError,
    Usage,
)
from dspy.lm15 import TimeoutError as LateError

from raisf.lm.replies import REASONS, bounded, check_ended, check_stays, complaint

_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty", "logprobs")


class Completions:
    """A client of one endpoint, for one event loop.

    Args:
        api_base: Its URL, up to and with `/v1`.
        api_key: Sent as a bearer's token.
        timeout: Seconds to wait for the next byte.
    """

    def __init__(self, api_base: str, api_key: str, timeout: float) -> None:
        import httpx

        self._url = f"{api_base.rstrip('/')}/completions"
        self._http = httpx.AsyncClient(headers={"Authorization": f"Bearer {api_key}"}, timeout=timeout)
        self._errors = AsyncOpenAIChatLM(api_key=api_key)  # knows what servers' complaints mean

    async def complete(self, request: Request) -> Response:
        """Answer a request whose one message is the text to continue.

        Raises:
            LM15Error: The endpoint did not.
        """
        import httpx

        try:
            async with self._http.stream("POST", self._url, json=_payload(request)) as reply:
                check_stays(reply.status_code, reply.headers.get("location"))
                chunks = bounded(reply.aiter_bytes())
                body = b"".join([part async for part in (chunks if reply.is_success else complaint(chunks))])
        except httpx.TimeoutException as error:
            raise LateError(str(error) or "no answer") from error
        except httpx.HTTPError as error:
            raise TransportError(str(error) or type(error).__name__) from error
        if reply.status_code >= 400:
            failed = self._errors.normalize_error(reply.status_code, body.decode("utf-8", "replace"))
            failed.retry_after = retry_after_seconds(reply.headers.get("retry-after"))
            raise failed
        return _read(request, json.loads(body))

    async def stream(self, request: Request) -> AsyncIterator[StreamStartEvent | StreamDeltaEvent | StreamEndEvent]:
        """The events of an answer, which comes whole; see `complete`."""
        response = await self.complete(request)
        yield StreamStartEvent(model=request.model)
        yield StreamDeltaEvent(TextDelta(response.text or ""))
        yield StreamEndEvent(finish_reason=response.finish_reason, usage=response.usage)


def _payload(request: Request) -> dict[str, Any]:
    config = request.config
    given = {name: getattr(config, name) for name in _SAMPLING}
    given |= {"stop": list(config.stop) or None}
    # 0 asks for the tokens' own, and llama.cpp takes it for no wish at all.
    given |= {"logprobs": None if config.logprobs is None else max(1, config.logprobs)}
    text = "\n\n".join(message.text or "" for message in request.messages)
    model = request.model.partition("/")[2]
    return {"model": model, "prompt": text, **{name: value for name, value in given.items() if value is not None}}


def _read(request: Request, body: Any) -> Response:
    """The response in a reply; what is not there raises, and counts as garbage."""
    check_ended(None, body)
    choice = body["choices"][0]
    used = body.get("usage") or {}
    if not isinstance(choice["text"], str):
        raise TypeError("its text is none")
    return Response(
        id=None,
        model=request.model,
        message=Message.assistant(choice["text"]),
        finish_reason=REASONS.get(choice.get("finish_reason"), "stop"),
        usage=Usage(input_tokens=used.get("prompt_tokens"), output_tokens=used.get("completion_tokens")),
        logprobs=_logprobs(choice.get("logprobs")),
    )


def _logprobs(given: Any) -> tuple[TokenLogprob, ...] | None:
    """Both forms: the old one (a dict of the likeliest for each token) and the chat's, which llama.cpp sends here."""
    if not isinstance(given, dict):
        return None
    if isinstance(given.get("content"), list):
        return tuple(
            _token(one["token"], one["logprob"], [(o["token"], o["logprob"]) for o in one["top_logprobs"]])
            for one in given["content"]
        )
    tokens, own, tops = (given.get(name) or [] for name in ("tokens", "token_logprobs", "top_logprobs"))
    return tuple(
        _token(token, logprob, (top or {}).items()) for token, logprob, top in zip(tokens, own, tops, strict=False)
    )


def _token(token: Any, logprob: Any, top: Any) -> TokenLogprob:
    listed = tuple(TopLogprob(token=str(one), logprob=float(value)) for one, value in top)
    return TokenLogprob(token=str(token), logprob=float(logprob), top=listed)
