"""What a model at an endpoint takes of a request, and what it refuses, in the words that all others have for it."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import dspy
from dspy.lm15 import (
    InvalidRequestError,
    Message,
    Request,
    Response,
    StreamEndEvent,
    StreamStartEvent,
    UnsupportedFeatureError,
    Usage,
)

from raisf.lm.adapter import COMPLETION
from raisf.lm.replies import REASONS

logger = logging.getLogger(__name__)

_OPENAIS = (".openai.com", ".azure.com")
"""Where models that reason are served under any name, which refuse a limit called `max_tokens`."""


class Dialect:
    """How one model at one endpoint is asked.

    Args:
        plain: What DSPy would make of it.
        place: The URL of an OpenAI-compatible endpoint. All know `max_tokens`, and some nothing else; OpenAI's own and
            models that reason by their name know the newer `max_completion_tokens`, which DSPy sends. None for a
            provider's own, whose words DSPy knows.
    """

    def __init__(self, plain: dspy.LM, place: str | None) -> None:
        host = f".{urlsplit(place or '').hostname}"
        newer = "max_completion_tokens" in plain.kwargs or host.endswith(_OPENAIS)
        self._says_max_tokens = place is not None and not newer
        self._takes_zero = True

    async def ask(
        self,
        attempt: Callable[[Request], Awaitable[Response | None]],
        request: Request,
        emit: Callable[[Any], None] | None = None,
    ) -> Response | None:
        """Make a try in the model's words. What it refuses as filtered is an empty reply, which it filtered.

        Args:
            attempt: The try. Where the model refuses the usual temperature, 0, it is made again without any.
            request: What is asked.
            emit: Takes the events of the answer, where it is streamed; there is no response then.
        """
        told = self._told(request)
        try:
            try:
                return await attempt(told)
            except (InvalidRequestError, UnsupportedFeatureError) as error:
                if "max_completion_tokens" in str(error) and "max_tokens" in (told.config.extensions or {}):
                    self._says_max_tokens = False  # one of OpenAI's that reasons, under a name of one's own
                    return await self.ask(attempt, request, emit)
                if told.config.temperature != 0 or "temperature" not in str(error):
                    raise
            response = await attempt(replace(told, config=replace(told.config, temperature=None)))
        except InvalidRequestError as error:
            blocked = error.provider_code == "inband_finish_reason" and "blocked: " in str(error)  # Gemini's, streamed
            if not blocked and REASONS.get(error.provider_code) != "content_filter":
                raise
            if emit is None:
                return Response(None, request.model, Message.assistant(""), "content_filter", Usage())
            emit(StreamStartEvent(model=request.model))
            emit(StreamEndEvent("content_filter"))
            return None
        if self._takes_zero:
            self._takes_zero = False
            logger.warning("%s takes no temperature of 0: it is sent none, and draws by its own", request.model)
        return response

    def _told(self, request: Request) -> Request:
        config = request.config
        if config.temperature == 0 and not self._takes_zero:
            config = replace(config, temperature=None)
        if self._says_max_tokens and config.max_tokens is not None and config.extensions != COMPLETION:
            limit = {"max_tokens": config.max_tokens}
            config = replace(config, max_tokens=None, extensions={**(config.extensions or {}), **limit})
        return replace(request, config=config)
