"""What RA-ISF and the baselines have in common: the way from a question to a Prediction with its trace."""

import asyncio
import contextvars
import copy
import inspect
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import anyio.to_thread
import dspy
import numpy as np

from raisf.evaluation.local_lms import load_weights
from raisf.programs.callbacks import observed_program
from raisf.programs.calls import Run
from raisf.programs.changing import (
    OptionsState,
    check_anew,
    constructors,
    forward_of_coroutine,
    given_forward,
    in_place_of,
    made_alike,
    take_options,
    take_over,
    with_options,
)
from raisf.programs.confidence import Confidence
from raisf.programs.events import Event
from raisf.programs.live import Live, astream, stream
from raisf.programs.questions import UNKNOWN
from raisf.programs.state import OPTIONS, check_fields, harmless
from raisf.programs.trace import Node, Trace, fold_duplicates
from raisf.retrieval.adapting import Adapted, as_retriever, searched
from raisf.retrieval.passage import Retriever
from raisf.utils.checks import MOST_SECONDS, check, check_count, is_number
from raisf.utils.errors import InputError
from raisf.utils.predictors import require_lm
from raisf.utils.text import clean
from raisf.utils.usage import shared_usage

logger = logging.getLogger(__name__)

# The programs whose own `forward` a coroutine is in.
_FORWARDED: contextvars.ContextVar[frozenset[int]] = contextvars.ContextVar("forwarded", default=frozenset())

# A few pages: anything longer is a document pasted by mistake, and no prompt would hold it.
MAX_QUESTION_CHARACTERS = 20_000


class Program(dspy.Module):
    """A system that answers a question; a subclass says how in `_answer`.

    Args:
        retriever: What it searches with, see `raisf.retrieval.adapting.as_retriever`; shared by the program's copies,
            unless it asks predictors. None where it does without, gets it later, or takes DSPy's (`settings.rm`).
        max_calls: LM calls a question may make; at the limit what is left ends as "unknown". None: no limit.
        max_seconds: Seconds that a question may wait for calls and searches; at the limit what is left ends as
            "unknown". None: no limit.
    """

    system: str
    """The name that the registry and the trace know it by."""
    stored: ClassVar[Mapping[str, str]] = {}
    """Options that a predictor of the same name keeps from being attributes: the attributes that they are."""
    later: ClassVar[frozenset[str]] = frozenset()
    """Options that came later: where they are at their defaults, a program is the one that it was without them."""
    write_folder: ClassVar[Callable[["Program", Path | str], None] | None] = None
    """How a program is written into a folder; set by whoever can (`raisf.optimize.artifact`, or `import raisf`)."""

    def __init__(self, retriever: Retriever | None, max_calls: int | None, max_seconds: float | None) -> None:
        super().__init__()
        self.retriever = retriever
        check_count("max_calls", max_calls, none="no limit")
        good = max_seconds is None or (is_number(max_seconds) and 0 < max_seconds <= MOST_SECONDS)
        check("max_seconds", max_seconds, good, f"more than 0, {MOST_SECONDS:,} at most, or None for no limit")
        self.max_calls = max_calls
        self.max_seconds = max_seconds

    def forward(self, question: str) -> dspy.Prediction:
        """Answer a question.

        Returns:
            A prediction with `answer` ("unknown" where there is none) and `trace`, a `raisf.programs.trace.Trace`.

        Raises:
            InputError: The question is empty, too long or no text; there is no LM or no retriever.
            LMError: The LM could not answer.
        """
        return self._run(self._begin(question), question)

    def stream(self, question: str) -> Iterator[Event]:
        """Answer a question, and tell each change of its tree as it comes: `raisf.programs.events`, a `DoneEvent` last.

            for event in program.stream("Who is the mayor of Belrin?"):
                print(event.type, event)

        Leaving the loop stops the question: no further call starts, and an endpoint's calls are cancelled. It is
        answered with the settings that hold where this is called (`dspy.context`), wherever its events are read.

        Raises:
            InputError: As calling the program does, at once.
            LMError: Likewise, in the loop, where it would go on.
        """
        return stream(self.live(question))

    def astream(self, question: str) -> AsyncIterator[Event]:
        """The same for coroutines: `async for event in program.astream(question)`."""
        return astream(self.live(question))

    def live(
        self,
        question: str,
        max_calls: int | None = None,
        max_seconds: float | None = None,
        reword: Callable[[str, Run], str] | None = None,
    ) -> Live:
        """A question that is ready to be streamed.

        Args:
            question: The question.
            max_calls: LM calls at most; more than the program's own limit is not given. None: that limit.
            max_seconds: Seconds at most, likewise.
            reword: Makes the question another one first, by calls of its run: they count as the question's own.
        """
        if self._own_forward():
            logger.warning("what is told as it comes is %s's own: its forward is not called", self.system)
        run = self._begin(question, max_calls, max_seconds)
        return Live(run, partial(observed_program, self, question, partial(self._run, run, question, reword)))

    async def aforward(self, *args: Any, **inputs: Any) -> dspy.Prediction:
        """Answer a question without blocking the event loop. Cancelling it lets no further LM call start.

        A `forward` of a subclass's own is called in a thread, with all that it is given, and ends by itself.
        """
        forward = forward_of_coroutine(self, Program)
        if forward is not None and id(self) not in _FORWARDED.get():
            # A `forward` may ask this again.
            before = _FORWARDED.set(_FORWARDED.get() | {id(self)})
            try:
                return await anyio.to_thread.run_sync(partial(forward, *args, **inputs), abandon_on_cancel=True)
            finally:
                _FORWARDED.reset(before)
        question = inspect.signature(Program.forward).bind(self, *args, **inputs).arguments["question"]
        run = self._begin(question)
        try:
            # A thread of AnyIO's: from others, DSPy cannot write to the stream that `dspy.streamify` reads.
            return await anyio.to_thread.run_sync(self._run, run, question, abandon_on_cancel=True)
        except asyncio.CancelledError as cancelled:
            run.stop(cancelled)
            raise

    def reset_copy(self) -> "Program":
        """A copy without demonstrations and LMs, for DSPy's optimizers; adapters and probes, being learnt, stay."""
        made: Any = super().reset_copy()
        for own, copied in zip(self.predictors(), made.predictors(), strict=True):
            if getattr(own.lm, "lora", None) or getattr(own.lm, "probe", None):
                copied.lm = own.lm
        return made

    def _own_forward(self) -> bool:
        """Whether a subclass, or an optimizer such as KNNFewShot, has put another `forward` in the place of ours."""
        return given_forward(self) is not None or type(self).forward is not Program.forward

    def save(self, path: Path | str, *args: Any, **kwargs: Any) -> None:
        """Write the program: into a folder as an artifact (`raisf.load` reads it); to .json or .pkl as DSPy does."""
        if Path(path).suffix in (".json", ".pkl") or args or kwargs:
            super().save(path, *args, **kwargs)
        elif Program.write_folder is not None:
            Program.write_folder(self, path)
        else:
            raise InputError(
                f"{path} is neither .json nor .pkl: write a folder with raisf.save(program, {str(path)!r})"
            )

    def options(self) -> dict[str, Any]:
        """The constructor's options that are plain data, as they stand; also those that a subclass's own hides."""
        names = {name for _, takes in constructors(self) for name in takes} - {"retriever"}
        values = {name: self.option(name) for name in sorted(names) if hasattr(self, self.stored.get(name, name))}
        return {name: value for name, value in values.items() if _plain(value)}

    def option(self, name: str) -> Any:
        """An option of the constructor, as it stands."""
        return getattr(self, self.stored.get(name, name))

    def unchanged(self) -> set[str]:
        """The attributes of the options of `later` that are at their defaults."""
        taken = {name: next(takes[name] for _, takes in constructors(self) if name in takes) for name in self.later}
        return {self.stored.get(name, name) for name, given in taken.items() if self.option(name) == given.default}

    def named_parameters(self) -> list[tuple[str, Any]]:
        """DSPy's, after the options: a module that contains the program is written with these, too."""
        return [(OPTIONS, OptionsState(self)), *super().named_parameters()]

    def load_state(self, state: dict[str, Any], *, allow_unsafe_lm_state: bool = False) -> None:
        """Take up a state that `dump_state` gave, its options too; one without options leaves them as they are.

        Args:
            state: By predictor. What a saved program may not set (`raisf.programs.state`) is left out, with a warning.
            allow_unsafe_lm_state: Take all of it: the file is your own.

        Raises:
            InputError: An option is none of this program's.
        """
        if not allow_unsafe_lm_state:
            # The options of the programs within it, which those check.
            parts = {name: state[name] for name in with_options(self, {}) if name in state and name != OPTIONS}
            kept, dropped = harmless({name: one for name, one in state.items() if name not in parts})
            state = kept | parts
            if dropped:
                logger.warning("the saved program may not set %s: left out", ", ".join(dropped))
        before = [(one, dict(vars(one))) for one in (self, *self.predictors())]
        try:
            take_options(self, state.get(OPTIONS))
            check_fields(self, state)
            super().load_state(with_options(self, state), allow_unsafe_lm_state=allow_unsafe_lm_state)
        except BaseException:  # a state that is refused changes nothing, as with DSPy's own modules
            for one, had in before:
                vars(one).clear()
                vars(one).update(had)
            raise

    def become(self, given: dict[str, Any]) -> None:
        """Become what the constructor makes of these options: it checks them, and they shape the predictors.

        Predictors that they shape as they are stay, with all that they have learnt; so do modules and other attributes
        of a subclass's own that they do not change.

        Raises:
            InputError: One of them is none of this program's, or cannot be used.
        """
        if all(name in self.options() and self.options()[name] == value for name, value in given.items()):
            return
        try:
            was, made = made_alike(self, {}), made_alike(self, given)
        except TypeError as error:
            raise InputError(f"the saved options are not those of {type(self).__name__}: {error}") from error
        take_over(self, was, made)

    def _answer(self, run: Run, question: str) -> Node:
        raise NotImplementedError

    def _begin(self, question: str, max_calls: int | None = None, max_seconds: float | None = None) -> Run:
        check_question(question)
        require_lm(self)
        run = Run(searched(self), _lower(self.max_calls, max_calls), _lower(self.max_seconds, max_seconds))
        run.confidence = self._confidence()
        return run

    def _confidence(self) -> Confidence:
        """How its answers get their confidence; a subclass with options for it says otherwise."""
        return Confidence()

    def _run(self, run: Run, question: str, reword: Callable[[str, Run], str] | None = None) -> dspy.Prediction:
        if run.max_seconds is not None:
            load_weights(self)  # else the first question's seconds would go by with that
            run.begin()
        with shared_usage() as run.usage:
            try:
                root = self._answer(run, clean(reword(question, run) if reword else question))
            except BaseException as error:
                run.stop(error)
                # Calls that were cancelled because another failed end with errors of their own.
                if isinstance(error, Exception) and run.error not in (None, error):
                    raise run.error from None
                raise
            if run.error is not None:
                raise run.error
        if run.failure is not None and root.answer == UNKNOWN and root.route not in ("budget", "withheld"):
            raise run.failure  # what the question lacks may be what the failed call would have said
        counts = {"read": run.read, "unreadable": run.unreadable, "failed": run.failed}
        trace = Trace(system=self.system, root=fold_duplicates(root), cost=run.cost(), **counts)
        return dspy.Prediction(trace=trace, answer=trace.root.answer)  # dspy.majority votes on the last

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, np.generic):  # a number out of an array: as it is, no JSON holds it
            value = value.item()
        if name == "retriever" and value is not None:
            value = as_retriever(value)
        elif isinstance(old := vars(self).get(name), dspy.Predict):
            value = in_place_of(old, name, value)
        elif name in vars(self):
            check_anew(self, name, value)
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Program":
        # Compiling copies programs often; an index is large, never changes, and is shared.
        if not isinstance(self.retriever, Adapted):  # which knows what of it to copy
            memo[id(self.retriever)] = self.retriever
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return new


def _plain(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _lower(own: float | None, given: float | None) -> Any:
    return min((limit for limit in (own, given) if limit is not None), default=None)


def check_question(question: object, name: str = "question") -> None:
    """Raise InputError for what is no question, or query: no text, empty, too long, no Unicode."""
    if not isinstance(question, str):
        raise InputError(f"a {name} is text, found {type(question).__name__}: {question!r:.80}")
    if not question.strip():
        raise InputError(f"the {name} is empty: give one")
    if len(question) > MAX_QUESTION_CHARACTERS:
        raise InputError(
            f"the {name} has {len(question):,} characters, the limit is {MAX_QUESTION_CHARACTERS:,}: "
            "ask a shorter one and put documents into an index"
        )
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the {name} is not valid Unicode at character {error.start + 1}: {error.reason}") from None
