"""Asks a program the questions of a test set, several at a time, and keeps each answer the moment it is there."""

import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dspy
from rich.progress import Progress

from raisf.evaluation.identity import GOLD, answer_of, gold_answers, question_id
from raisf.evaluation.local_lms import load_weights, questions_at_a_time
from raisf.evaluation.metrics import accuracy, exact_match, precision_at_k, recall_at_k, token_f1
from raisf.evaluation.records import Records, binding_of, open_records
from raisf.evaluation.report import Report, summarise
from raisf.evaluation.seen import warn_of_seen
from raisf.utils.errors import InputError, LMError, RaisfError
from raisf.utils.progress import progress_bar
from raisf.utils.text import text_of

# More failures in a row than eight threads share in one hiccup of an endpoint: by then it is down, and going on would
# only fill the records with errors.
MAX_FAILURES = 10
# On Ctrl-C, how long the questions under way may take to finish and be kept; longer would not feel like stopping.
GRACE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One question asked: its prediction or its error, and the seconds it took."""

    example: dspy.Example
    prediction: dspy.Prediction | None
    error: Exception | None
    seconds: float


class Patience:
    """Counts failures; over several calls of `ask_all` too, each of which may ask too few questions to give up.

    Attributes:
        failed: How many there were.
    """

    def __init__(self) -> None:
        self.failed = 0
        self._in_a_row = 0

    def saw(self, outcome: Outcome) -> None:
        """To be called in `keep`.

        Raises:
            LMError: The LM failed on ten questions in a row.
            RaisfError: The program did, for another reason.
        """
        self.failed += outcome.error is not None
        self._in_a_row = 0 if outcome.error is None else self._in_a_row + 1
        if outcome.error is not None and self._in_a_row >= MAX_FAILURES:
            raise given_up(f"{MAX_FAILURES} questions in a row", outcome.error)


# Of whoever runs within `asked_by`, not of the process: another thread's questions are its own.
_asker: contextvars.ContextVar[Callable[..., None] | None] = contextvars.ContextVar("asker", default=None)


@contextlib.contextmanager
def asked_by(asker: Callable[..., None]) -> Iterator[None]:
    """As a context: `ask_all` hands its questions to this, which takes what `ask_here` takes, and does as that."""
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
    inputs: Sequence[str] = ("question",),
    judge: Callable[[Outcome], Outcome] | None = None,
) -> None:
    """As `ask_here`; or on the nodes of a cluster, within `raisf.evaluation.cluster.on_cluster`."""
    if examples:
        (_asker.get() or ask_here)(program, examples, keep, threads=threads, inputs=inputs, judge=judge)


def ask_here(
    program: Callable[..., dspy.Prediction],
    examples: Sequence[dspy.Example],
    keep: Callable[[Outcome], None],
    *,
    threads: int = 8,
    inputs: Sequence[str] = ("question",),
    judge: Callable[[Outcome], Outcome] | None = None,
) -> None:
    """Asks all questions and hands each outcome to `keep` as it is there, one at a time, in order of completion.

    The program is called with the examples' fields that `inputs` names. `judge` turns its outcome into the one that is
    kept; it is called like the program in the workers, several at a time, and may ask an LM too.

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
                outcome = context.run(_ask, program, example, inputs)
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

    Each question becomes one record in `out` (question, gold, prediction, em, f1, accuracy, route, cost, trace, error),
    appended as it finishes. Called again with the same `out` it asks only what has no record or ended in an error.

    Args:
        program: Called as `program(question=...)`; the prediction carries `answer` and, for the routes, `trace`.
        examples: With `question`, `answer` or `answers`, and where known `gold_pids` or `gold_titles`, `kind`, `id`.
        out: The records' file (JSON Lines); None keeps them in memory.
        threads: Questions asked at a time; None: 32 of LMs in the process, whose engine batches what arrives together,
            and 8 of an endpoint.
        progress: Show a bar with the running exact match on stderr; or the bars (`progress_bar`) to show it among.
        fresh: Begin anew although `out` holds records.
        cache: Let the records be those of a run whose cost and seconds are a cache's: never taken for others.
        name: What the bar says.

    Returns:
        The report over all questions, those answered by earlier runs included.

    Raises:
        InputError: No program, no questions, two with one id, a question without gold, or `out` belongs to another run.
        LMError: The LM failed on ten questions in a row, or on all there are. What was answered is kept.
        KeyboardInterrupt: Ctrl-C. What was answered is kept, and the exception's message says how to go on.
    """
    check_module(program)
    threads = questions_at_a_time(program) if threads is None else threads
    binding = binding_of(program, _checked(examples, threads), cache=cache)
    out = Path(out) if out is not None else None
    warn_of_seen(program, examples, name)
    with open_records(out, binding, fresh=fresh) as records, progress_bar(progress) as bar:
        done = records.done
        left = [e for e in examples if (done.get(question_id(e)) or {"error": ""})["error"] is not None]
        kept = f"; {out} keeps the answers so far, and the same command goes on from there" if out else ""
        task = bar.add_task(name, total=len(examples), completed=len(examples) - len(left), score="")
        failure: Exception | None = None

        def keep(outcome: Outcome) -> None:
            nonlocal failure
            if outcome.error is None:
                answer_of(outcome.prediction, program)  # a module of the user's own may give none
            records.add(_record(outcome))
            failure = outcome.error or failure
            bar.update(task, advance=1, score=_running(records))

        try:
            ask_all(program, left, keep, threads=threads)
            if failure is not None and records.errors == len(done):
                raise given_up("every question", failure)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped after {len(done)} of {len(examples)} questions{kept}") from None
        except RaisfError as error:
            raise _retold(type(error), f"{error}{kept}", error) from error
        return summarise(done.values())


def _ask(program: Callable[..., dspy.Prediction], example: dspy.Example, inputs: Sequence[str]) -> Outcome:
    start = time.perf_counter()
    prediction, error = None, None
    try:
        # A trace list of its own: the workers' calls would pile up in the caller's.
        with dspy.context(trace=[]):
            prediction = program(**{name: example[name] for name in inputs})
    except Exception as raised:
        error = raised
    return Outcome(example, prediction, error, time.perf_counter() - start)


def _record(outcome: Outcome) -> dict[str, Any]:
    example, prediction, error = outcome.example, outcome.prediction, outcome.error
    answers = gold_answers(example)
    answer = text_of(prediction.get("answer")) if prediction is not None else None
    scoring = example.get("scoring")
    trace = _trace_of(prediction)
    root = trace.root if trace is not None else None
    return {
        "id": question_id(example),
        "question": example.question,
        "answers": answers,
        "kind": example.get("kind"),
        "hops": example.get("hops"),
        "gold": {name: example[name] for name in (*GOLD, "sub_titles", "scoring") if example.get(name) is not None},
        "prediction": answer,
        "em": 0.0 if answer is None else exact_match(answer, answers, scoring),
        "f1": 0.0 if answer is None else token_f1(answer, answers, scoring),
        "accuracy": 0.0 if answer is None else accuracy(answer, answers, scoring),
        "route": root.route if root is not None else None,
        **_retrieval(example, trace),
        "cost": {**(trace.cost.model_dump() if trace is not None else {}), "seconds": round(outcome.seconds, 4)},
        "readable": root.readable if root is not None else None,
        "read": trace.read if trace is not None else 0,
        "unreadable": trace.unreadable if trace is not None else 0,
        "error": f"{type(error).__name__}: {error}" if error is not None else None,
        "trace": _without_texts(trace.model_dump(mode="json")) if trace is not None else None,
    }


def _trace_of(prediction: dspy.Prediction | None) -> Any:
    """How a program of ours came to its answer; a field of that name in others' predictions may be anything."""
    trace = getattr(prediction, "trace", None)
    return trace if hasattr(trace, "root") and hasattr(trace, "cost") else None


def check_module(program: object) -> None:
    """Raise InputError for what is no dspy.Module."""
    if not isinstance(program, dspy.Module):
        raise InputError(
            f"a program is a dspy.Module, found a {type(program).__name__}: make a class of it whose forward(question) "
            "returns dspy.Prediction(answer=...)"
        )


def _retrieval(example: dspy.Example, trace: Any) -> dict[str, Any]:
    """Recall and precision of the root's passages, by ids where gold has them, else by titles."""
    gold = example.get("gold_pids") or example.get("gold_titles")
    if trace is None or not gold:
        return {"k": trace and (len(trace.root.passages) or None), "recall": None, "precision": None}
    root = trace.root
    passages = root.passages
    if not passages:  # one that searched for itself alone has found nothing; others leave it to their parts
        in_vain = 0.0 if trace.cost.retrievals and not (root.sub_questions or root.steps) else None
        return {"k": None, "recall": in_vain, "precision": in_vain}
    ranked = [p.pid if example.get("gold_pids") else p.title for p in passages]
    k = len(passages)
    return {"k": k, "recall": recall_at_k(ranked, gold, k), "precision": precision_at_k(ranked, gold, k)}


def _without_texts(value: Any) -> Any:
    """A dumped trace with its passages' texts emptied: the index holds them, and they are nine tenths of its size."""
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    if isinstance(value, dict):
        return {key: "" if key == "text" else _without_texts(item) for key, item in value.items()}
    return value


def _checked(examples: Sequence[dspy.Example], threads: int) -> Sequence[dspy.Example]:
    if threads < 1:
        raise InputError(f"threads must be at least 1, found {threads}")
    if not examples:
        raise InputError("no questions to evaluate on: the test file is empty; give one with a question a line")
    seen: set[str] = set()
    for example in examples:
        name = question_id(example)
        if name in seen:
            raise InputError(f"two questions have the id {name!r}: make ids unique, records are kept by id")
        seen.add(name)
        if not gold_answers(example):
            raise InputError(f"question {name!r} has no gold answer: add `answer` or `answers`, or leave it out")
    return examples


def given_up(where: str, error: Exception) -> RaisfError:
    """The error that ends a run, of the last one that was met."""
    kind, what = (LMError, "the language model") if isinstance(error, LMError) else (RaisfError, "the program")
    return _retold(kind, f"{what} failed on {where}, the last time with: {error}", error)


def _retold(kind: type[RaisfError], text: str, error: Exception) -> RaisfError:
    """An error with another text, that is otherwise as it was."""
    told = kind(text)
    told.exit_code = getattr(error, "exit_code", told.exit_code)
    if isinstance(told, LMError):
        told.too_long = getattr(error, "too_long", False)
    return told


def _running(records: Records) -> str:
    em = 100 * records.right / len(records.done)
    return f"EM {em:.1f}" + (f", errors {records.errors}" if records.errors else "")
