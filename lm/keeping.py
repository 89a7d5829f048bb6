"""Whether DSPy may keep what an endpoint answered: an empty or filtered reply would stand in its cache for good."""

from contextvars import ContextVar
from typing import Any

from dspy.lm15 import ProviderError

from raisf.lm import replies

in_call: ContextVar["CallCache | None"] = ContextVar("raisf_endpoint_call", default=None)
"""Of the call in this context."""


class CallCache(int):
    """A call's option `cache`, whose truth DSPy asks before the call and after it: `keep` may deny it in between."""

    lasting = True

    def __bool__(self) -> bool:
        return self.lasting and self != 0


def keep(lasting: bool) -> None:
    """Says whether DSPy may keep the answer of the call in this context; once denied, it stays so."""
    if (cache := in_call.get()) is not None:
        cache.lasting = cache.lasting and lasting


class Heard:
    """What has come in a stream, for the checks that `replies` makes of a whole response."""

    def __init__(self) -> None:
        self._something = False
        self._reason: str | None = None

    def note(self, event: Any) -> None:
        """Take an event in; raises ProviderError where it says that the server broke the answer off."""
        if event.type == "delta":
            self._something = self._something or event.delta.type != "text" or bool(event.delta.text)
        elif event.type == "end":
            replies.check_ended(event.finish_reason, event.provider_data)
            if event.finish_reason is None:  # cut off on its way, or by an error that DSPy's client passes over
                raise ProviderError("the reply was broken off (no finish_reason)")
            self._reason = event.finish_reason

    @property
    def lasting(self) -> bool:
        """Whether the answer may be kept."""
        return self._reason != "content_filter" and (self._something or self._reason != "stop")
