"""The programs that are served, and a question's way through them: admission, events, figures, log."""

import json
import logging
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dspy.utils.exceptions import DSPyError
from starlette.concurrency import run_in_threadpool

from raisf.programs.conversation import Conversation, Turn
from raisf.programs.events import AnswerEvent, CostEvent, DoneEvent, Event
from raisf.programs.live import Cancelled, Live, astream, live_module
from raisf.programs.program import Program, check_question
from raisf.programs.trace import Cost
from raisf.serving.limits import Admission, Limits, TooManyQuestions
from raisf.serving.metrics import Metrics
from raisf.utils.errors import InputError, LMError, RaisfError, SearchError, chain_of

logger = logging.getLogger("raisf.serving")
T = TypeVar("T")


def kind_of(problem: Exception) -> tuple[int, str]:
    """How HTTP tells an error: its status, and its code in OpenAI's form."""
    if isinstance(problem, TooManyQuestions):
        return 429, "rate_limit_exceeded"
    if isinstance(problem, NoSuchProgram):
        return 404, "model_not_found"
    if isinstance(problem, NotFound):
        return 404, "not_found"
    if isinstance(problem, InputError) or (isinstance(problem, LMError) and problem.too_long):
        return 400, "invalid_request"
    return (502, "lm_failed") if isinstance(problem, LMError) else (500, "failed")


class NoSuchProgram(InputError):
    """A name that nothing here has."""


class NotFound(InputError):
    """A passage or a document that is not here."""


@dataclass(frozen=True)
class Served:
    """A program under the name that clients know it by.

    Attributes:
        name: The name, a model's to OpenAI's clients.
        program: A `Program`, or a module of the user's own.
        index: The name of what it searches, for people.
        conversation: How earlier turns are read; None: as `Conversation` does before it is compiled.
    """

    name: str
    program: Any
    index: str | None = None
    conversation: Conversation | None = None

    @property
    def retriever(self) -> Any:
        """What it searches with; None where it does without."""
        return getattr(self.program, "retriever", None)


class Service:
    """Answers questions for many clients at once.

    Args:
        served: The programs, by name; the first answers where no name is given.
        limits: What clients may ask.
        log_questions: Whether questions and answers stand in the log.

    Attributes:
        discreet: Whether clients are not told what stands behind the service: what the LM's endpoint said, which may
            name its address and account, and where an index server is.
    """

    def __init__(self, served: Mapping[str, Served], limits: Limits, log_questions: bool = False) -> None:
        if not served:
            raise InputError("there is nothing to serve: give an index or an artifact")
        self.served = dict(served)
        self.limits = limits
        self.log_questions = log_questions
        self.discreet = False
        self.admission = Admission(limits)
        self.metrics = Metrics(lambda: self.admission.under_way)
        self.started = int(time.time())

    def choose(self, name: str | None) -> Served:
        """The program of a name; the first where there is none.

        Raises:
            NoSuchProgram: No program has this name.
        """
        if name is None:
            return next(iter(self.served.values()))
        if not isinstance(name, str) or name not in self.served:
            raise NoSuchProgram(f"no program {name!r:.80} is served here: choose {', '.join(self.served)}")
        return self.served[name]

    def begin(
        self,
        question: Any,
        name: str | None = None,
        *,
        client: str,
        held: ExitStack | None = None,
        turns: Sequence[Turn] = (),
        max_calls: Any = None,
        max_seconds: Any = None,
    ) -> "Question":
        """Let a question in. It must be closed, or its events read to their end.

        Args:
            question: The text.
            name: The program's.
            client: Who asks, for the rate.
            held: The `place` that the question takes over; None: it takes one.
            turns: What was said before; the question is rewritten so that it stands alone.
            max_calls: Lowers the limit of LM calls.
            max_seconds: Lowers the limit of seconds.

        Raises:
            InputError: It is no question, or no such program or limit.
            TooManyQuestions: It must wait.
        """
        with ExitStack() if held is None else held.pop_all() as place:
            served = self.choose(name)
            check_question(question)
            ours = isinstance(served.program, Program)
            if max_calls is not None and not ours:
                told = "it makes its calls itself, and none is kept from it: leave it out, or give max_seconds"
                raise InputError(f"max_calls is given, and {served.name} is a module of the server's own: {told}")
            calls = _limit("max_calls", max_calls, self.limits.max_calls, int)
            seconds = _limit("max_seconds", max_seconds, self.limits.max_seconds, float)
            if held is None:
                place.enter_context(self.place(client))
            conversation = served.conversation or Conversation(served.program)
            reword = (lambda text, run: conversation.standalone(text, turns, run)) if turns else None
            if ours:
                live = served.program.live(question, calls, seconds, reword)
            else:
                live = live_module(served.program, question, seconds, reword)
            return Question(self, served, question, live, place.pop_all())

    @contextmanager
    def place(self, client: str) -> Iterator[None]:
        """A place for one question, or search, of a client.

        Raises:
            TooManyQuestions: There is none, or the client has asked too often.
        """
        with ExitStack() as held:
            try:
                held.enter_context(self.admission.place(client))
            except TooManyQuestions as refused:
                self.metrics.refused(refused.reason)
                raise
            yield

    async def searched(self, search: Callable[[], T], asked: str = "") -> T:
        """What a search gives, in a thread; where it fails, clients are told as of a question.

        Args:
            search: Made without arguments.
            asked: A person's words, if it was for these: the log leaves them out.

        Raises:
            RaisfError: It fails.
        """
        try:
            return await run_in_threadpool(search)
        except SearchError as error:
            logger.warning("a search failed: %s", self.logged(error, asked))
            raise self.told(error) from error.__cause__

    def logged(self, error: RaisfError, asked: str) -> str:
        """An error in the words of the log, which holds questions only if it is to."""
        text = str(error)
        return text if self.log_questions or not asked else error.brief or text.replace(asked, "...")

    def told(self, error: RaisfError) -> RaisfError:
        """An error as clients are told it."""
        if self.discreet and isinstance(error, SearchError):
            return SearchError("the index could not be searched: ask again, or see the server's log")
        if self.discreet and isinstance(error, LMError) and not error.too_long:
            return LMError("the language model could not be asked: the server's log says why")
        return error


class Question:
    """A question that was let in: its events once, then its place is free."""

    def __init__(self, service: Service, served: Served, text: str, live: Live, held: ExitStack) -> None:
        self.id = uuid.uuid4().hex
        self.served, self.text = served, text
        self.cost = Cost()
        """So far; a question that was rewritten, that call included."""
        self.spent = False
        """Whether its limit of calls or seconds ended it."""
        self._service, self._live = service, live
        self._held: ExitStack | None = held
        self._started = time.perf_counter()
        self._first: float | None = None
        self._outcome, self._problem, self._answer = "stopped", "", ""

    def __enter__(self) -> "Question":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def events(self) -> AsyncIterator[Event]:
        """What happens; cancelling whoever reads stops the question.

        Raises:
            RaisfError: It could not be answered. What is no error of ours is logged, and told without its words; so is
                what an endpoint said, where the service is discreet.
        """
        try:
            async with aclosing(astream(self._live)) as events:  # type: ignore[type-var]
                async for event in events:
                    self._take(event)
                    yield event
        except Cancelled:
            raise
        except RaisfError as error:
            if isinstance(error, InputError):  # not the client's: what it gave was checked before
                error = RaisfError(str(error))
            status, self._problem = kind_of(error)
            self._outcome = "refused" if status < 500 else "failed"
            logger.warning("question %s was not answered: %s", self.id, self._service.logged(error, self.text))
            raise self._service.told(error) from error.__cause__
        except Exception as error:
            self._outcome, self._problem = "failed", "failed"
            self._log_failure(error)
            raise RaisfError("the program failed: the server's log says why") from error

    def _take(self, event: Event) -> None:
        """What an event says of the whole: whether it is answered, at what cost, and whether its limits ended it."""
        self._first = self._first or time.perf_counter() - self._started
        if isinstance(event, DoneEvent):
            self._outcome, self._answer = "answered", event.answer
            # A module of anyone's may hand on the trace of ours and ask besides.
            if event.trace and event.trace.cost.lm_calls >= self.cost.lm_calls:
                self.cost = event.trace.cost
        elif isinstance(event, CostEvent):
            self.cost = event.cost
        elif isinstance(event, AnswerEvent) and event.node == "0":
            self.spent = event.route == "budget"

    def _log_failure(self, error: Exception) -> None:
        chain = chain_of(error)
        said = next((one for one in chain if isinstance(one, DSPyError)), None)
        if said is not None and not self._service.log_questions:  # it says what the LM, or its endpoint, said
            names = ", from ".join(dict.fromkeys(type(one).__name__ for one in chain))
            logger.error("question %s failed: %s%s", self.id, names, f", HTTP status {said.status}" * bool(said.status))
        else:
            logger.exception("question %s failed", self.id)

    async def outcome(self) -> DoneEvent:
        """The last event alone."""
        last: Any = None
        async with aclosing(self.events()) as events:  # type: ignore[type-var]
            async for event in events:
                last = event
        return last

    def close(self) -> None:
        """Stop what is left of it, free its place, and write it into the figures and the log; once."""
        if self._held is None:
            return
        self._live.stop()
        self._live.when_ended(self._held.close)  # what still works holds its place, whoever has gone away
        self._held = None
        seconds = time.perf_counter() - self._started
        self._service.metrics.question(self.served.name, self._outcome, seconds, self._first, self.cost)
        row: dict[str, Any] = {
            "event": "question",
            "id": self.id,
            "program": self.served.name,
            "outcome": self._outcome,
            "seconds": round(seconds, 3),
            "lm_calls": self.cost.lm_calls,
            "tokens": self.cost.prompt_tokens + self.cost.completion_tokens,
        }
        if self._problem:
            row["error"] = self._problem
        if self._service.log_questions:
            row |= {"question": self.text, "answer": self._answer}
        logger.info(json.dumps(row, ensure_ascii=True))


def flag(name: str, given: Any) -> bool | None:
    """A switch of a request; None where it is not given.

    Raises:
        InputError: It is something else.
    """
    if not isinstance(given, bool | None):
        raise InputError(f"{name} is {given!r:.40}: give true or false")
    return given


def _limit(name: str, given: Any, own: Any, kind: Any) -> Any:
    if given is None:
        return own
    if isinstance(given, bool) or not isinstance(given, int | kind) or not 0 < given < math.inf:
        raise InputError(f"{name} is {given!r:.40}: give a {'whole ' if kind is int else ''}number above 0")
    return given if own is None else min(given, own)
