"""A provider's model as a `dspy.LM`; its engine owns where requests go, how long they take, how often they are sent.

Nothing but `raisf.lm.connect.connect` decides where a request goes. DSPy refuses an `api_base`, a key or a header that
comes with a call (a predictor's `config`, for one) where the LM has an engine of its own; so no saved program can send
a question or a key elsewhere.
"""

import asyncio
import contextlib
import os
import queue
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import dspy
from dspy.clients.backend_selection import select_backend
from dspy.clients.capabilities import capabilities
from dspy.clients.engines import AsyncLiteLLMEngine
from dspy.lm15 import Request, Response, RouterConfig, UnsupportedFeatureError, Usage, registered_providers
from dspy.utils.exceptions import LMUnsupportedFeatureError

from raisf.lm import replies, transport
from raisf.lm.adapter import COMPLETION
from raisf.lm.billing import BilledEngine
from raisf.lm.completions import Completions
from raisf.lm.dialect import Dialect
from raisf.lm.endpoint_async import AsyncEndpoint
from raisf.lm.keeping import CallCache, Heard, in_call, keep
from raisf.lm.options import KNOWN
from raisf.lm.own_format import OwnFormat
from raisf.lm.verdicts import Attempt, Scoring, Unsaid, asked_labels
from raisf.utils.errors import InputError

_BASE_LM = "dspy.clients.lm.LM"


class EndpointLM(OwnFormat):
    """A model at an endpoint.

    DSPy's cache does not tell endpoints apart: its key leaves `api_base` out. Here every call carries its endpoint in
    the key, as part of DSPy's `rollout_id`, which is never sent; so two servers of the same model share no answers.
    It keeps no answer that is none (`replies.lasting`): the next run asks again.

    Args:
        model: `PROVIDER/MODEL`.
        engine: Where and how it is asked.
        **options: `dspy.LM`'s further options (`temperature`, `max_tokens`, `cache`, `callbacks`).
    """

    def __init__(self, model: str, engine: "Endpoint", **options: Any) -> None:
        super().__init__(model, num_retries=0, engine=engine, async_engine=AsyncEndpoint(engine), **options)

    @property
    def endpoint(self) -> "Endpoint":
        """Where and how it is asked."""
        assert isinstance(self.engine, Endpoint)
        return self.engine

    @property
    def api_base(self) -> str | None:
        """The URL of an endpoint of one's own; None for the provider's."""
        return self.endpoint.api_base

    @property
    def completes_text(self) -> bool:
        """Whether the compact adapter gives it bare text; see `Endpoint`."""
        return self.endpoint.completions

    @property
    def scores_labels(self) -> bool:
        """Whether it may be asked for the probabilities of labels; False once the endpoint has shown to give none.

        While somebody reads a stream, nothing is found out: every call that is made is one of the program's.
        """
        scoring = self.endpoint.scoring
        streamed = dspy.settings.send_stream is not None or bool(dspy.settings.stream_listeners)
        return scoring is not None and scoring.possible and (scoring.sure or not streamed)

    @contextlib.contextmanager
    def _called(self, kwargs: dict[str, Any]) -> Iterator[dict[str, Any]]:
        cache = CallCache(bool(kwargs.get("cache", self.cache)))
        token = in_call.set(cache)
        rollout_id = self._marked(kwargs.get("rollout_id", self.kwargs.get("rollout_id")))
        try:
            yield {**kwargs, "rollout_id": rollout_id, "cache": cache}
        except LMUnsupportedFeatureError as error:
            if isinstance(error.__cause__, Unsaid):
                self._count(error.__cause__.usage)
            raise
        finally:
            in_call.reset(token)

    def _count(self, usage: Usage | None) -> None:
        """Adds to DSPy's usage a reply that held no verdict: DSPy counts the calls that gave something."""
        if usage is not None and dspy.settings.usage_tracker:
            tokens = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
            dspy.settings.usage_tracker.add_usage(self.model, tokens)

    def _marked(self, rollout_id: Any) -> Any:
        place = self.endpoint.place
        return rollout_id if place is None else f"{place} {'' if rollout_id is None else rollout_id}".strip()

    @property
    def _cache_responses(self) -> bool:
        # DSPy asks this of every LM. `forward` would go around the mark that a call's key needs.
        return in_call.get() is not None

    def _warn_zero_temp_rollout(self, temperature: float | None, rollout_id: Any) -> None:
        if rollout_id != self._marked(None):
            super()._warn_zero_temp_rollout(temperature, rollout_id)

    def finetune(self, *given: Any, **options: Any) -> Any:
        """Have the provider train the model; see `dspy.LM`.

        Raises:
            InputError: It is at an endpoint of one's own: the rows would be uploaded to the provider of its name.
        """
        if self.endpoint.place is not None:
            raise InputError(
                f"{self.model} is at an endpoint of your own, and DSPy would upload the training rows to the provider "
                "of its name: train it in the process (local/FOLDER, raisf.FinetuneJudges), and serve what was learnt"
            )
        return super().finetune(*given, **options)

    def dump_state(self) -> dict[str, Any]:
        """The state of a plain `dspy.LM` of the same model.

        Of one at an endpoint of one's own there is none, so that what loads it has no LM until it is given one: by its
        name alone it would send questions and passages to the provider of that name.
        """
        if self.endpoint.place is not None:
            return {}
        state = dspy.BaseLM.dump_state(self)
        return {**state, "_dspy_lm_class": _BASE_LM, "num_retries": self.endpoint.retries}


RETRIES, TIMEOUT = 3, 120.0
"""Unless told otherwise: how often to try again, and seconds of a try."""


def told_base(provider: str) -> str | None:
    """The address that the environment gives for a provider, under the names that DSPy and LiteLLM read."""
    variables = (os.environ.get(f"{provider.upper()}_{name}") for name in ("API_BASE", "BASE_URL"))
    return next(filter(None, variables), None)


class Endpoint:
    """DSPy's engine for a provider's model. All of a process's requests go through `transport.loop`.

    Args:
        model: `PROVIDER/MODEL`.
        api_base: URL of an endpoint of one's own; None for the provider's. An API key is read from the environment.
        retries: How often to try again.
        timeout: Seconds of a try, from its start to the last byte.
        completions: Bare texts go to `/completions`, to be continued as they are; the endpoint must be one's own.
        probabilities: Requests for labels' probabilities are answered where the endpoint lists likely tokens.
    """

    def __init__(
        self,
        model: str,
        api_base: str | None,
        retries: int,
        timeout: float,
        completions: bool = False,
        probabilities: bool = True,
    ) -> None:
        self.model, self.retries, self.timeout, self.completions = model, retries, timeout, completions
        self.probabilities = probabilities
        provider = model.partition("/")[0].upper()
        self.api_base = api_base
        self.place = api_base or told_base(provider)
        """What the cache's keys hold of it; None for the provider's own address."""
        clients: dict[str, Any] = {"timeout": timeout}
        if provider == "OPENAI" and self.place is not None:
            # DSPy leaves an address in the environment to LiteLLM, which takes some faults of a server for refusals.
            clients |= {"api_base": self.place, "engine": "lm15"}
        elif api_base is not None:
            clients["api_base"] = api_base
        # What DSPy would make of it: it knows which client speaks to which provider, and what each can do.
        self.plain = dspy.LM(model, cache=False, num_retries=0, **clients)
        # Servers of one's own mostly want no key, but clients insist on one.
        keyless = {**clients, "api_key": "none"} if "api_base" in clients else clients
        self._keyless = dspy.LM(model, cache=False, num_retries=0, **keyless)
        self._dialect = Dialect(self.plain, self.place if provider == "OPENAI" else None)
        # A model that reasons first has said no label with its first token.
        self.scoring = Scoring() if probabilities and not capabilities(self.plain).reasoning else None
        self._native: tuple[Any, BilledEngine] | None = None
        self._texts: tuple[Any, Completions] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Endpoint":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        asked = (self.model, self.api_base, self.retries, self.timeout, self.completions, self.probabilities)
        return Endpoint, asked

    def chosen(self) -> dict[str, Any]:
        """The arguments of `raisf.lm.connect.connect` that make this endpoint, without those at their defaults."""
        given: dict[str, Any] = {
            "num_retries": (self.retries, RETRIES),
            "timeout": (self.timeout, TIMEOUT),
            "completions": (self.completions, False),
            "probabilities": (self.probabilities, True),
        }
        return {name: value for name, (value, usual) in given.items() if value != usual}

    def complete(self, request: Request) -> Response:
        """Answer a request."""
        future = self.submit(request)
        try:
            response = future.result()
        finally:
            future.cancel()  # Ctrl-C, which comes while this waits, closes the connection
        keep(replies.lasting(response))
        return response

    def stream(self, request: Request) -> Iterator[Any]:
        """The events of an answer, as they come."""
        events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        future = self.submit(request, events.put)
        future.add_done_callback(events.put)
        try:
            heard = Heard()
            while not isinstance(event := events.get(), Future):
                heard.note(event)
                yield event
            event.result()
            keep(heard.lasting)
        finally:
            future.cancel()

    def submit(self, request: Request, emit: Callable[[Any], None] | None = None) -> "Future[Any]":
        """Hand a request to the loop.

        Args:
            request: What to answer.
            emit: Takes the events of the answer, if it is to be streamed; there is no response then.
        """
        moment = transport.deadline()
        attempt = self._complete if emit is None else self._streaming(emit)

        def persist(request: Request, retries: int) -> Awaitable[Response | None]:
            return transport.persist(lambda: self._dialect.ask(attempt, request, emit), retries, self.timeout, moment)

        _, labels = asked_labels(request)
        scored = bool(labels) and emit is None
        work: Any = self._verdict(request, persist, moment) if scored else persist(request, self.retries)
        return transport.submit(work)

    async def _verdict(self, request: Request, persist: Attempt, moment: float | None) -> Response:
        if self.scoring is None:
            raise Unsaid("it is not asked for probabilities")
        left = None if moment is None else moment - time.monotonic()
        return await self.scoring.verdict(request, persist, self.retries, left)

    async def _complete(self, request: Request) -> Response:
        return await self._client(request).complete(request)

    def _streaming(self, emit: Callable[[Any], None]) -> Callable[[Request], Awaitable[None]]:
        async def attempt(request: Request) -> None:
            shown = False
            try:
                async with contextlib.aclosing(self._client(request).stream(request)) as events:
                    async for event in events:
                        shown = True
                        emit(event)
            except Exception as error:
                if shown:
                    raise transport.Final(error) from error
                raise

        return attempt

    @property
    def _key(self) -> str | None:
        """The key that the environment holds at this moment."""
        return os.environ.get(f"{self.model.partition('/')[0].upper()}_API_KEY") or None

    def _client(self, request: Request) -> Any:
        """DSPy's own client where that can carry the request, else LiteLLM; chosen before anything is sent."""
        if request.config.extensions == COMPLETION:
            return self._text_client()
        selection = select_backend(self._keyless if self._key is None else self.plain)
        if selection.native:
            native = self._native_client(selection)
            with contextlib.suppress(UnsupportedFeatureError):
                native.plan(request)
                return native
        return AsyncLiteLLMEngine(model_type=self.plain.model_type, **selection.clients)

    def _text_client(self) -> Completions:
        assert self.place is not None
        made_for = asyncio.get_running_loop(), self._key
        if self._texts is None or self._texts[0] != made_for:
            self._texts = made_for, Completions(self.place, self._key or "none", self.timeout)
        return self._texts[1]

    def _native_client(self, selection: Any) -> BilledEngine:
        made_for = asyncio.get_running_loop(), self._key  # a forked child has another loop
        if self._native is None or self._native[0] != made_for:
            provider, clients = selection.resolution.provider, selection.clients
            url = clients.get("api_base")
            key = clients.get("api_key") or (self._key if url else None)  # DSPy knows not every provider's variable
            config = RouterConfig(
                api_keys={provider: key} if key else None,
                base_urls={provider: url} if url else None,
                transport=replies.Connections(self.timeout),
                providers=tuple(binding.definition for binding in registered_providers()),
            )
            self._native = made_for, BilledEngine(config, model_type=self.plain.model_type)
        return self._native[1]

    # What adapters ask of an engine

    @property
    def supported_params(self) -> frozenset[str]:
        """The options that the model takes."""
        params = capabilities(self.plain).params
        return params.intersection(KNOWN) if self.completions else params

    @property
    def supports_function_calling(self) -> bool:
        """Whether the model calls tools; a text that is continued has none."""
        return not self.completions and capabilities(self.plain).function_calling

    @property
    def supports_reasoning(self) -> bool:
        """Whether the model reasons before it answers."""
        return capabilities(self.plain).reasoning

    @property
    def supports_response_schema(self) -> bool:
        """Whether the model can be held to a JSON schema."""
        return capabilities(self.plain).response_schema
