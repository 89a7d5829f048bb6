"""Asks a program the questions of a test set, several at a time, and keeps each answer the moment it is there."""

import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from inspect import getattr_static
from pathlib import Path

import dspy
from dspy.utils.exceptions import AdapterParseError
from rich.progress import Progress

from raisf.evaluation.examples import answer_of, check_answered, is_gap, question_id
from raisf.evaluation.gold import warn_of_gold_outside
from raisf.evaluation.local_lms import load_weights, questions_at_a_time
from raisf.evaluation.outcome import Outcome, ask_one, record_of
from raisf.evaluation.records import Records, binding_of, open_records
from raisf.evaluation.report import Report, summarise
from raisf.evaluation.seen import retrievers_of, warn_of_seen
from raisf.lm.failures import too_long
from raisf.utils.checks import check_count
from raisf.utils.errors import InputError, LMError, MetricError, RaisfError
from raisf.utils.progress import progress_bar

# More failures in a row than eight threads share in one hiccup of an endpoint: by then it is down, and going on would
# only fill the records with errors.
MAX_FAILURES = 10
# On Ctrl-C, how long the questions under way may take to finish and be kept; longer would not feel like stopping.
GRACE_SECONDS = 2.0


class Patience:
    """Counts failures and gives up after ten in a row, also over several calls of `ask_all` with few questions each.

    Prompts that an LM cannot read whole are no reason: it is up, and who goes on asks all such again, in a row.

    Attributes:
        failed: How many there were.
        error: The last one's.
    """

    def __init__(self) -> None:
        self.failed = 0
        self.error: Exception | None = None
        self._in_a_row = 0

    def saw(self, outcome: Outcome) -> None:
        """Counts an outcome; to be called in `keep`.

        Raises:
            LMError: The LM failed on ten questions in a row.
            RaisfError: The program did, for another reason.
        """
        self.failed += outcome.error is not None
        self.error = outcome.error or self.error
        self._in_a_row = 0 if outcome.error is None or too_long(outcome.error) else self._in_a_row + 1
        if outcome.error is not None and self._in_a_row >= MAX_FAILURES:
            raise given_up(f"{MAX_FAILURES} questions in a row", outcome.error)


# Of whoever runs within `asked_by`, not of the process: another thread's questions are its own.
_asker: contextvars.ContextVar[Callable[..., None] | None] = contextvars.ContextVar("asker", default=None)


@contextlib.contextmanager
def asked_by(asker: Callable[..., None]) -> Iterator[None]:
    """A context in which `ask_all` calls `asker` in place of `ask_here`, with the same arguments."""
    before = _asker.set(asker)
    try:
        yield
    finally:
        _asker.reset(before)


def ask_all(
    program: Callable[..., dspy.Prediction],
    examples: Sequence[dspy.Example],
    keep: Callable[[Outcome], None],
    *,
    threads: int = 8,
    judge: Callable[[Outcome], Outcome] | None = None,
) -> None:
    """As `ask_here`; or on the nodes of a cluster, within `raisf.evaluation.cluster.on_cluster`."""
    if examples:
        (_asker.get() or ask_here)(program, examples, keep, threads=threads, judge=judge)


def ask_here(
    program: Callable[..., dspy.Prediction],
    examples: Sequence[dspy.Example],
    keep: Callable[[Outcome], None],
    *,
    threads: int = 8,
    judge: Callable[[Outcome], Outcome] | None = None,
) -> None:
    """Asks all questions and hands each outcome to `keep` as it is there, one at a time, in order of completion.

    `judge` turns the program's outcome into the one that is kept; it is called like the program in the workers, several
    at a time, and may ask an LM too.

    Weights of models in the process are read before any question's seconds are counted. The caller's DSPy settings
    (LM, adapter, callbacks) hold in the workers, in `judge` and in `keep`. On Ctrl-C no new question is asked; what
    finishes within two seconds is still kept, then the KeyboardInterrupt goes on its way. An exception of `judge` or
    `keep` ends the run and is raised here.

    Raises:
        LMError: The LM failed on ten questions in a row.
        RaisfError: The program did, for another reason.
    """
    load_weights(program)
    waiting: queue.SimpleQueue[tuple[dspy.Example, contextvars.Context]] = queue.SimpleQueue()
    for example in examples:
        waiting.put((example, contextvars.copy_context()))
    keeping = contextvars.copy_context()
    lock, over = threading.Lock(), threading.Event()
    left, patience = len(examples), Patience()
    raised: list[BaseException] = []

    def work() -> None:
        nonlocal left
        try:
            while not over.is_set():
                example, context = waiting.get_nowait()
                judging = context.copy()  # as the caller's: the program's may have set something
                outcome = context.run(ask_one, program, example)
                if judge is not None:
                    outcome = judging.run(judge, outcome)
                # `keep` runs here and not in the main thread: Ctrl-C, which strikes there, cannot cut a record in two.
                with lock:
                    if raised:
                        return
                    keeping.run(keep, outcome)
                    patience.saw(outcome)
                    left -= 1
                    if left == 0:
                        over.set()
        except queue.Empty:
            return
        except BaseException as error:
            raised.append(error)
            over.set()

    # Daemon threads: a question that hangs on a dead endpoint must not keep the process from ending.
    workers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, left))]
    for worker in workers:
        worker.start()
    try:
        if workers:
            over.wait()
    except KeyboardInterrupt as interrupt:
        over.set()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        held = lock.acquire(timeout=max(0.1, deadline - time.monotonic()))
        raised.append(interrupt)
        if held:
            lock.release()
    if raised:
        raise raised[0]


def evaluate(
    program: dspy.Module,
    examples: Sequence[dspy.Example],
    out: Path | str | None = None,
    *,
    threads: int | None = None,
    progress: bool | Progress = True,
    fresh: bool = False,
    cache: bool = False,
    name: str = "evaluating",
) -> Report:
    """Scores a program on questions with gold answers; a killed run resumes where it was.

    Each question becomes one record in `out` (question, gold, prediction, em, f1, accuracy, route, cost, trace, error,
    threads: how many were asked at a time), appended as it finishes. Called again with the same `out` it asks only what
    has no record or ended in an error.
    Its indexes forget what was searched for before: else a program's seconds would depend on who came before it.

    Args:
        program: Called as `program(question=...)`; the prediction carries `answer` and, for the routes, `trace`.
        examples: With `question`, `answer` or `answers`, and where known `gold_pids` or `gold_titles`, `kind`, `id`.
        out: The records' file (JSON Lines); None keeps them in memory.
        threads: Questions asked at a time; None: 32 of LMs in the process, whose engine batches what arrives together,
            and 8 of an endpoint.
        progress: Show a bar with the running exact match on stderr; or the bars (`progress_bar`) to show it among.
        fresh: Begin anew although `out` holds records.
        cache: Let the records be those of a run whose cost and seconds are a cache's: never taken for others. Either
            way the LMs are asked as they are: one with a cache answers out of it, `lm.copy(cache=False)` does not.
        name: What the bar says.

    Returns:
        The report over all questions, those answered by earlier runs included.

    Raises:
        InputError: No program, no thread, no questions, two with one id, one without gold, or `out` is of another run.
        LMError: The LM failed on ten questions in a row, or on all there are. What was answered is kept.
        KeyboardInterrupt: Ctrl-C. What was answered is kept, and the exception's message says how to go on.
    """
    check_can_be_asked(program)
    threads = questions_at_a_time(program) if threads is None else threads
    check_count("threads", threads)
    examples = _checked(examples)
    binding = binding_of(program, examples, cache=cache)
    out = Path(out) if out is not None else None
    warn_of_seen(program, examples, name)
    warn_of_gold_outside(program, examples)
    with open_records(out, binding, fresh=fresh) as records, progress_bar(progress) as bar:
        done = records.done
        if strangers := done.keys() - {question_id(example) for example in examples}:
            told = f"{out} has a record of {min(strangers)!r:.80}, which is none of the questions"
            raise InputError(f"{told}: drop its line, or give another file for the records")
        left = [e for e in examples if (done.get(question_id(e)) or {"error": ""})["error"] is not None]
        kept = f"; {out} keeps the answers so far, and the same command goes on from there" if out else ""
        task = bar.add_task(name, total=len(examples), completed=len(examples) - len(left), score="")
        failure: Exception | None = None

        def keep(outcome: Outcome) -> None:
            nonlocal failure
            if outcome.error is None:
                answer_of(outcome.prediction, program)  # a module of the user's own may give none
            records.add({**record_of(outcome), "threads": min(threads, len(left))})
            failure = outcome.error or failure
            bar.update(task, advance=1, score=_running(records))

        try:
            _forget_searches(program)
            ask_all(program, left, keep, threads=threads)
            if failure is not None and records.errors == len(done):
                raise given_up("every question", failure)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped after {len(done)} of {len(examples)} questions{kept}") from None
        except RaisfError as error:
            raise retold(type(error), f"{error}{kept}", error) from error
        return summarise(done.values())


def _forget_searches(program: dspy.Module) -> None:
    for retriever in retrievers_of(program):
        if forget := getattr(retriever, "forget_searches", None):
            forget()


def check_module(program: object) -> None:
    """Raise InputError for what is no dspy.Module."""
    if not isinstance(program, dspy.Module):
        raise InputError(
            f"a program is a dspy.Module, found a {type(program).__name__}: make a class of it whose forward(question) "
            "returns dspy.Prediction(answer=...)"
        )


def check_can_be_asked(program: object) -> None:
    """Raise InputError for what is no dspy.Module, or can only be awaited."""
    check_module(program)
    if hasattr(program, "aforward") and not getattr_static(program, "forward", None):  # DSPy warns of who looks at it
        raise InputError(f"{type(program).__name__} has aforward alone, and threads ask it: give dspy.syncify(module)")


def _checked(examples: Sequence[dspy.Example]) -> Sequence[dspy.Example]:
    check_answered(examples, "test")
    examples = list(examples)
    if not examples:
        raise InputError("no questions to evaluate on: the test file is empty; give one with a question a line")
    seen: set[str] = set()
    for example in examples:
        name = question_id(example)
        if "question" not in example:
            raise InputError(f"a test question has no `question`, but {', '.join(example.keys())}: name it so")
        if name in seen:
            without = is_gap(example.get("id"))
            told = "a question without an id comes twice" if without else f"two questions have the id {name!r}"
            raise InputError(f"{told}, {example.question!r:.80}: give each an id of its own, or leave one out")
        seen.add(name)
    return examples


def check_ran(asked: int, failed: int, error: Exception | None, where: str) -> None:
    """Gives up where all questions failed, however few they were. Replies that cannot be read are no failures here.

    Args:
        asked: How many there were.
        failed: How many failed.
        error: Of the last one.
        where: What the message calls them.

    Raises:
        LMError: The LM failed on all of them.
        RaisfError: The program did.
    """
    if failed and failed == asked and not isinstance(error, AdapterParseError | None):
        raise given_up(where, error)


def given_up(where: str, error: Exception) -> RaisfError:
    """The error that ends a run, made of the last one that was met."""
    kind, what = (LMError, "the language model") if isinstance(error, LMError) else (RaisfError, "the program")
    what = "the metric" if isinstance(error, MetricError) else what
    return retold(kind, f"{what} failed on {where}, the last time with: {error_text(error)}", error)


def error_text(error: Exception) -> str:
    """An error's text for a person, with its class in front unless it is one of this project's.

    Of a KeyError the text alone would be "'x'", of some errors nothing.
    """
    said = str(error)
    return said if isinstance(error, RaisfError) else type(error).__name__ + (f": {said}" if said else "")


def retold(kind: type[RaisfError], text: str, error: Exception) -> RaisfError:
    """The same error with another text, as a `kind`."""
    told = kind(text)
    told.exit_code = getattr(error, "exit_code", told.exit_code)
    if isinstance(told, LMError):
        told.too_long = too_long(error)
    return told


def _running(records: Records) -> str:
    em = 100 * records.right / len(records.done)
    return f"EM {em:.1f}" + (f", errors {records.errors}" if records.errors else "")
