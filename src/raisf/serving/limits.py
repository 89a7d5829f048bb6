"""What one client, and all clients together, may ask of the service."""

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from raisf.utils.errors import RaisfError

CLIENTS_KEPT = 10_000
"""Clients whose rate is remembered; beyond that, those whose allowance is whole again are forgotten."""


@dataclass(frozen=True)
class Limits:
    """The service's limits.

    Attributes:
        concurrency: Questions under way at once.
        rate: Questions a minute of one client; 0: no limit.
        max_seconds: Seconds of a question at most; a program's own limit holds where it is lower.
        max_calls: LM calls of a question, likewise; None: no limit.
        body: Bytes of a request's body.
    """

    concurrency: int = 16
    rate: int = 120
    max_seconds: float = 300.0
    max_calls: int | None = None
    body: int = 1 << 20


class TooManyQuestions(RaisfError):
    """A question that is refused for now.

    Attributes:
        retry_after: Seconds, whole.
        reason: Which limit it is, as metrics call it: "rate" or "concurrency".
    """

    def __init__(self, message: str, retry_after: int, reason: str) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.reason = reason


class Admission:
    """Lets questions in, or says when to come again.

    Args:
        limits: The limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.under_way = 0
        self._clients: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """A place for one question.

        Raises:
            TooManyQuestions: There is none, or the client has asked too often.
        """
        with self._lock:
            if self.under_way >= self.limits.concurrency:
                told = "1 question is" if self.under_way == 1 else f"{self.under_way} questions are"
                raise TooManyQuestions(f"{told} under way: ask again in a second", 1, "concurrency")
            self._take(client)
            self.under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self.under_way -= 1

    def _take(self, client: str) -> None:
        """One question out of the client's allowance, which fills up again at its rate (a token bucket)."""
        rate, now = self.limits.rate, time.monotonic()
        if not rate:
            return
        left, when = self._clients.get(client, (float(rate), now))
        left = min(rate, left + (now - when) * rate / 60)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / rate)
            raise TooManyQuestions(f"{rate} questions a minute are the limit: ask again in {wait} s", wait, "rate")
        if len(self._clients) >= CLIENTS_KEPT:
            self._clients = {one: (n, at) for one, (n, at) in self._clients.items() if now - at < 60}
        self._clients[client] = (left - 1, now)
