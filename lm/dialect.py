"""What a model at an endpoint takes of a request, and in which words."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import urlsplit

import dspy
from dspy.lm15 import Request, Response

from raisf.lm.adapter import COMPLETION

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

    async def ask(self, attempt: Callable[[Request], Awaitable[Response | None]], request: Request) -> Response | None:
        """Make a try in the model's words."""
        return await attempt(self._told(request))

    def _told(self, request: Request) -> Request:
        config = request.config
        if self._says_max_tokens and config.max_tokens is not None and config.extensions != COMPLETION:
            limit = {"max_tokens": config.max_tokens}
            config = replace(config, max_tokens=None, extensions={**(config.extensions or {}), **limit})
        return replace(request, config=config)
