"""Verdicts with probabilities from endpoints: one token is asked for, and each label's share is read off its place.

A server that gives log-probabilities lists, beside the token that it wrote, the likeliest others in its place. Where a
reply is to be a label alone, those tokens are how the labels begin; so one token holds the whole verdict. What a server
can do shows in its first replies, and is kept (`Scoring`).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from dspy.lm15 import (
    Config,
    ContextLengthError,
    DataPart,
    InvalidRequestError,
    LM15Error,
    Message,
    Request,
    Response,
    UnsupportedFeatureError,
    Usage,
)

from raisf.lm.transport import transient

# How many tokens are asked to be listed: vLLM, SGLang, llama.cpp and OpenAI's chat give 20, OpenAI's /completions and
# Azure 5. A server that refuses both and takes the same prompt without the wish has no log-probabilities.
LISTED = (20, 5, None)
# Replies without a label, or refusals for another reason, after which a model that never gave one is asked as usual.
MISSES = 3
# The same in a row of a model that has given some: it is another prompt, or another model behind the address.
LATER_MISSES = 10
# A label that is not listed has at most the probability of the last one listed: as much is taken, if it is so little.
UNLISTED_SHARE = 0.05
# Of the probability that is listed, what the labels must hold together. With less, something else is likelier than they
# are to come first (a thought, a quotation mark, a sentence), and what is left for them is a remainder, no judgement.
LABELS_SHARE = 0.5
# Space as tokenizers write it, where a server shows tokens raw.
SPACES = " \t\r\n\u0120\u010a\u2581"


class Unsaid(UnsupportedFeatureError):
    """No probabilities of labels were given.

    Args:
        why: What the error says.
        usage: What the reply without a verdict cost; None where nothing was asked.
    """

    def __init__(self, why: str, usage: Usage | None = None) -> None:
        super().__init__(why, feature="config.probabilities")
        self.usage = usage


Attempt = Callable[[Request, int], Awaitable[Response | None]]


class Scoring:
    """What is known of the log-probabilities of a model at an endpoint; without a lock, as only their loop has it.

    Attributes:
        possible: False once it is known that there are none, or that it no longer says a label; the labels are
            generated then.
        sure: Whether it has given some.
        listed: How many tokens it lists at most.
    """

    def __init__(self) -> None:
        self.possible, self.sure = True, False
        self.listed: int | None = LISTED[0]
        self._misses = 0
        self._first: asyncio.Future[None] | None = None

    async def verdict(self, request: Request, attempt: Attempt, retries: int, seconds: float | None) -> Response:
        """The labels' probabilities.

        Args:
            request: A choice of labels, whose probabilities are required.
            attempt: Asks, and tries again so many times.
            retries: How many times it may.
            seconds: How long it may wait for another call that is finding out what the server can do.

        Raises:
            Unsaid: The server gives none, or the reply is unlikely to begin with a label.
            LM15Error: The call failed otherwise.
        """
        if not self.sure:
            here = asyncio.get_running_loop()
            if self._first is None or self._first.get_loop() is not here:
                self._first = first = here.create_future()
                try:
                    return await self._ask(request, attempt, retries)
                finally:
                    first.set_result(None)
            await asyncio.wait([self._first], timeout=seconds)
        return await self._ask(request, attempt, retries)

    async def _ask(self, request: Request, attempt: Attempt, retries: int) -> Response:
        if not self.possible:
            raise Unsaid("the endpoint gives no log-probabilities")
        name, labels = asked_labels(request)
        response = await self._first_token(request, attempt, retries)
        token = next(iter(response.logprobs or ()), None)
        if token is None or not token.top:
            # It answered, and left the wish for log-probabilities aside.
            self._missed(for_good=bool(response.text))
            raise Unsaid("the endpoint gives no log-probabilities", response.usage)
        found = label_probabilities(((one.token, one.logprob) for one in token.top), labels)
        if found is None:
            self._missed()
            raise Unsaid(f"no label is likely to be what the reply begins with: {token.token!r}", response.usage)
        self._misses = 0
        self.possible = self.sure = True
        data = verdict_part(name, found, "candidate_sequence_likelihood")
        return replace(response, message=Message.assistant(data), finish_reason="stop", logprobs=None)

    async def _first_token(self, request: Request, attempt: Attempt, retries: int) -> Response:
        refused: Exception | None = None
        plain: Response | None = None
        for listed in LISTED[LISTED.index(self.listed) :]:
            try:
                # What fails may fail for the wish: then the tries that are left go without it.
                response = await attempt(_one_token(request, listed), retries if self.sure else 0)
            except ContextLengthError:
                raise
            except InvalidRequestError as error:
                refused = error
                if self.sure:
                    break  # then it is the prompt that it refuses, and says so when asked as usual
                continue
            except LM15Error as error:
                if self.sure:
                    raise
                # A failure, or a refusal in other words: whether it is for the wish shows without it.
                plain = await attempt(_one_token(request, None), max(0, retries - 1) if transient(error) else 0)
                refused = error
                break
            assert response is not None
            self.listed = listed
            return response
        self._missed()
        raise Unsaid(str(refused), plain.usage if plain else Usage()) from refused

    def _missed(self, for_good: bool = False) -> None:
        self._misses += 1
        enough = self._misses >= (LATER_MISSES if self.sure else MISSES)
        self.possible = self.possible and not enough and not (for_good and not self.sure)


def asked_labels(request: Request) -> tuple[str, list[str]]:
    """Name and labels of the one choice whose probabilities a request requires; no labels where it requires none."""
    if request.config.probabilities is None:
        return "", []
    schema: Any = (request.config.response_format or {}).get("schema", {})
    declared = [(name, field.get("enum") or []) for name, field in schema.get("properties", {}).items()]
    return declared[0] if len(declared) == 1 else ("", [])


def verdict_part(name: str, probabilities: dict[str, float], method: Any) -> DataPart:
    """What a response says of a choice: the likeliest label, and the probability of each."""
    best = max(probabilities, key=probabilities.__getitem__)
    return DataPart(value={name: best}, probabilities={name: probabilities}, method=method)


def label_probabilities(listed: Iterable[tuple[str, float]], labels: list[str]) -> dict[str, float] | None:
    """Each label's probability, from the likeliest first tokens of a reply that is to be a label alone.

    A label's share is that of the tokens that are it, whatever their case and the space before them; where none is, of
    those that begin it: for a label of several tokens, the first one's. The shares are normalised over the labels.

    Args:
        listed: Tokens and their log-probabilities (natural logarithm).
        labels: Two or more.

    Returns:
        None where the first token does not decide: it begins several labels, or most of what is listed begins none, as
        where the model reasons first.
    """
    whole, begun = dict.fromkeys(labels, 0.0), dict.fromkeys(labels, 0.0)
    least = 1.0
    shared = rest = 0.0
    for token, logprob in listed:
        if not logprob <= 0:  # no probability: nan, or above 1 by more than rounding
            if not 0 < logprob < 1e-3:
                return None
            logprob = 0.0
        probability = math.exp(logprob)
        least = min(least, probability)
        rest += probability
        possible = [label for label in labels if _begins(token, label)]
        if len(possible) > 1:
            shared += probability
        elif possible:
            (whole if _is(token, possible[0]) else begun)[possible[0]] += probability
    # Where a tokenizer has a token for the label, it does not write it in pieces: what begins like it is another word.
    shares = {label: whole[label] or begun[label] for label in labels}
    found = sum(shares.values())
    if rest > 1 + UNLISTED_SHARE:
        return None  # no probabilities: a server that has none writes 0 to each token, or one is listed twice
    if found <= 0 or found < LABELS_SHARE * rest or shared > UNLISTED_SHARE * found:
        return None
    unlisted = min(least, max(0.0, 1 - rest))
    missing = [label for label, share in shares.items() if share == 0]
    if unlisted * len(missing) > UNLISTED_SHARE * found:
        return None
    shares |= dict.fromkeys(missing, unlisted)
    total = sum(shares.values())
    return {label: share / total for label, share in shares.items()}


def _is(token: str, label: str) -> bool:
    return token.strip(SPACES).rstrip(".,;:!\"'*`").casefold() == label.casefold()


def _begins(token: str, label: str) -> bool:
    """Whether a reply that begins with the token can be the label, and is no word of a sentence such as "I"."""
    said = token.strip(SPACES)
    if _is(token, label):
        return True
    if not said or (len(said) == 1 and not said.islower()):
        return False
    return any(form.startswith(said) for form in (label, label.capitalize(), label.upper()))


def _one_token(request: Request, listed: int | None) -> Request:
    """The same prompt, for one token. At temperature 1 the list is the model's own, whatever a server makes of it."""
    config = Config(max_tokens=1, temperature=1.0, logprobs=listed, extensions=request.config.extensions)
    return replace(request, config=config)
