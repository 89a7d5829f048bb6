"""LMs that are spoken to in their own format, whoever asks."""

import contextlib
from collections.abc import Iterator
from typing import Any

import dspy
from dspy.utils.exceptions import AdapterParseError

from raisf.lm.adapter import CompactAdapter
from raisf.lm.chat_format import ChatCall, chat_call
from raisf.lm.continuing import rest_of
from raisf.lm.options import apart, seeds_of, together


class OwnFormat(dspy.LM):
    """An LM whose adapter puts into words what it is asked, where it completes text.

    What one of DSPy's adapters asks (`dspy.Predict` anywhere, without `raisf`) is read back and put into that format,
    and the answer given back in the one that was asked for.
    """

    adapter: Any = None
    scores_bools = False

    @property
    def completes_text(self) -> bool:
        """Whether the compact adapter gives it bare text."""
        return True

    def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """Answer a prompt, messages or a typed request."""
        if (call := self._chat_call(messages)) is not None:
            each = self._candidates(kwargs)
            return [_output(call, fields) for one in each for fields in self._fields(self.adapter, call, one)]
        if each := apart(self.kwargs, prompt, kwargs):
            return together([self(prompt, messages=messages, **options) for options in each])
        with self._called(kwargs) as options:
            return super().__call__(prompt, messages=messages, **options)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> Any:
        """The same, awaited."""
        if (call := self._chat_call(messages)) is not None:
            each = self._candidates(kwargs)
            return [_output(call, fields) for one in each for fields in await self._afields(self.adapter, call, one)]
        if each := apart(self.kwargs, prompt, kwargs):
            return together([await self.acall(prompt, messages=messages, **options) for options in each])
        with self._called(kwargs) as options:
            return await super().acall(prompt, messages=messages, **options)

    @contextlib.contextmanager
    def _called(self, kwargs: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """A context for one call to DSPy's own, with its options."""
        yield kwargs

    def _chat_call(self, messages: Any) -> ChatCall | None:
        """What one of DSPy's adapters asks, where this LM is spoken to in another format."""
        if not messages or not self.completes_text or not isinstance(self.adapter, CompactAdapter):
            return None
        return chat_call(messages, self.scores_bools)

    def _candidates(self, options: dict[str, Any]) -> list[dict[str, Any]]:
        """The options of each candidate of a call: each goes on from its own words where it is not whole."""
        return [{**options, "n": 1, "seed": seed} for seed in seeds_of({**self.kwargs, **options})]

    def _fields(self, adapter: CompactAdapter, call: ChatCall, options: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            return adapter.fields_of(self, options, call)
        except AdapterParseError as error:
            return self._fields(_going_on(adapter, error), call, options)

    async def _afields(self, adapter: CompactAdapter, call: ChatCall, options: dict[str, Any]) -> list[dict[str, Any]]:
        try:
            return await adapter.afields_of(self, options, call)
        except AdapterParseError as error:
            return await self._afields(_going_on(adapter, error), call, options)


def _output(call: ChatCall, fields: dict[str, Any]) -> str | dict[str, Any]:
    """An answer as DSPy's adapters take it: its text, and its tokens' log-probabilities where they were asked for."""
    text = call.answer(fields)
    return {"text": text, "logprobs": fields["logprobs"]} if "logprobs" in fields else text


def _going_on(adapter: CompactAdapter, error: AdapterParseError) -> CompactAdapter:
    """What asks for the rest of an answer.

    Raises:
        AdapterParseError: There is none to ask for. It names the signature of the predictor that asked, by which DSPy
            finds that.
    """
    if (rest := rest_of(adapter, error)) is None:
        caller = (dspy.settings.caller_modules or [None])[-1]
        error.signature = getattr(caller, "signature", error.signature)
        raise error
    return rest
