"""What a provider's answers cost: their usage in the words that all providers share."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from dspy.clients.call_result import usage_dict
from dspy.clients.engines import AsyncLM15Engine
from dspy.lm15 import Request, Response


class BilledEngine(AsyncLM15Engine):
    """DSPy's own client of providers, with a usage that counts all tokens.

    Gemini and xAI tell apart what a model thought, and Anthropic what its cache had. DSPy adds these only where it
    knows which provider has answered, which it does not of an engine that an LM is given.
    """

    async def complete(self, request: Request) -> Response:
        """Answer a request; see `AsyncLM15Engine`."""
        return self._counted(request, await super().complete(request))

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """The events of an answer, as they come."""
        async with contextlib.aclosing(super().stream(request)) as events:  # pyright: ignore[reportArgumentType]
            async for event in events:
                yield self._counted(request, event) if event.type == "end" and event.usage else event

    def _counted(self, request: Request, told: Any) -> Any:
        """A response, or a stream's end, with all tokens."""
        counts = usage_dict(told, self.resolve(request.model).provider)
        tokens = {name: counts.get(key) for name, key in _COUNTS.items()}
        return replace(told, usage=replace(told.usage, **tokens))


_COUNTS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "total_tokens": "total_tokens",
}
