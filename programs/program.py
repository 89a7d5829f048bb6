"""What RA-ISF and the baselines have in common: the way from a question to a Prediction with its trace."""

import asyncio
import contextvars
import copy
import importlib
from pathlib import Path
from typing import Any

import dspy

from raisf.programs.calls import Run, Stopped, require_lm
from raisf.programs.concurrency import pool
from raisf.programs.questions import clean
from raisf.programs.trace import Node, Trace, fold_duplicates
from raisf.retrieval.adapting import as_retriever, searched
from raisf.retrieval.passage import Retriever
from raisf.utils.errors import InputError

# A few pages: anything longer is a document pasted by mistake, and no prompt would hold it.
MAX_QUESTION_CHARACTERS = 20_000


class Program(dspy.Module):
    """A system that answers a question; a subclass says how in `_answer`.

    Args:
        retriever: What it searches with, see `raisf.retrieval.adapting.as_retriever`; shared, not copied, when the
            program is copied. None where the program does without, gets it later, or takes DSPy's (`settings.rm`).
        max_calls: LM calls a question may make; at the limit what is left ends as "unknown". None: no limit.
        max_seconds: Seconds after which a question starts no further call. None: no limit.
    """

    system: str
    """The name that the registry and the trace know it by."""

    def __init__(self, retriever: Retriever | None, max_calls: int | None, max_seconds: float | None) -> None:
        super().__init__()
        self.retriever = retriever
        check("max_calls", max_calls, max_calls is None or max_calls >= 1, "1 or more, or None for no limit")
        check("max_seconds", max_seconds, max_seconds is None or max_seconds > 0, "more than 0, or None for no limit")
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

    async def aforward(self, question: str) -> dspy.Prediction:
        """Answer a question without blocking the event loop. Cancelling it lets no further LM call start."""
        run = self._begin(question)
        context = contextvars.copy_context()
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool(), lambda: context.run(self._run, run, question))
        except asyncio.CancelledError as cancelled:
            run.stop(cancelled)
            raise

    def save(self, path: Path | str, *args: Any, **kwargs: Any) -> None:
        """Write the program: into a folder as an artifact (`raisf.load` reads it); to .json or .pkl as DSPy does."""
        if Path(path).suffix in (".json", ".pkl") or args or kwargs:
            super().save(path, *args, **kwargs)
        else:
            # The one import that goes up, when it is asked for: compiled.save(...) is what a DSPy user writes.
            importlib.import_module("raisf.optimize.artifact").save(self, path)

    def _answer(self, run: Run, question: str) -> Node:
        raise NotImplementedError

    def _begin(self, question: str) -> Run:
        _check_question(question)
        require_lm(self)
        return Run(searched(self), self.max_calls, self.max_seconds)

    def _run(self, run: Run, question: str) -> dspy.Prediction:
        with dspy.track_usage() as usage:
            try:
                root = self._answer(run, clean(question))
            except BaseException as error:
                run.stop(error)
                if isinstance(error, Stopped) and run.error is not None:
                    raise run.error from None
                raise
            if run.error is not None:
                raise run.error
        trace = Trace(system=self.system, root=fold_duplicates(root), cost=run.cost(usage), unreadable=run.unreadable)
        return dspy.Prediction(answer=trace.root.answer, trace=trace)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, as_retriever(value) if name == "retriever" and value is not None else value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Program":
        # Compiling copies programs often; an index is large, never changes, and is shared.
        memo[id(self.retriever)] = self.retriever
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return new


def check(name: str, value: object, good: bool, wanted: str) -> None:
    """Raise InputError for an option that cannot be used."""
    if not good:
        raise InputError(f"{name} is {value!r}: give {wanted}")


def _check_question(question: object) -> None:
    if not isinstance(question, str):
        raise InputError(f"a question is text, found {type(question).__name__}: {question!r:.80}")
    if not question.strip():
        raise InputError("the question is empty: ask one")
    if len(question) > MAX_QUESTION_CHARACTERS:
        raise InputError(
            f"the question has {len(question):,} characters, the limit is {MAX_QUESTION_CHARACTERS:,}: "
            "ask a shorter one and put documents into an index"
        )
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"the question is not valid Unicode at character {error.start + 1}: {error.reason}") from None
