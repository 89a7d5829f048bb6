"""The service's figures in Prometheus' format."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from raisf.programs.trace import Cost

SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
FIRST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Metrics:
    """Counts what the service does, in a registry of its own.

    Args:
        under_way: How many questions there are now.
    """

    def __init__(self, under_way: Callable[[], int]) -> None:
        self._registry = registry = CollectorRegistry()
        labels = ("program", "outcome")
        self._questions = Counter("raisf_questions", "Questions by outcome.", labels, registry=registry)
        self._seconds = Histogram(
            "raisf_question_seconds", "Wall-clock of a question.", ("program",), buckets=SECONDS, registry=registry
        )
        self._first = Histogram(
            "raisf_first_event_seconds", "Until the first event.", buckets=FIRST_SECONDS, registry=registry
        )
        self._calls = Counter("raisf_lm_calls", "LM calls.", ("program",), registry=registry)
        self._tokens = Counter("raisf_tokens", "Tokens read and written.", ("program", "kind"), registry=registry)
        self._refused = Counter("raisf_refused", "Requests refused, by reason.", ("reason",), registry=registry)
        Gauge("raisf_questions_under_way", "Questions now.", registry=registry).set_function(under_way)

    def question(self, program: str, outcome: str, seconds: float, first: float | None, cost: Cost) -> None:
        """A question has ended."""
        self._questions.labels(program, outcome).inc()
        self._seconds.labels(program).observe(seconds)
        if first is not None:
            self._first.observe(first)
        self._calls.labels(program).inc(cost.lm_calls)
        self._tokens.labels(program, "prompt").inc(cost.prompt_tokens)
        self._tokens.labels(program, "completion").inc(cost.completion_tokens)

    def refused(self, reason: str) -> None:
        """A request was refused."""
        self._refused.labels(reason).inc()

    def text(self) -> bytes:
        """All figures."""
        return generate_latest(self._registry)
