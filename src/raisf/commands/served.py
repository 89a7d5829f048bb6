"""What `raisf serve` and `raisf mcp` have in common: which programs answer, and within which limits."""

import datetime
import functools
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raisf.commands.command import argument, option, tell
from raisf.commands.options import ProgramChoice, as_one
from raisf.commands.values import at_least, labelled_programs, seconds
from raisf.experiments.opening import LMChoice
from raisf.utils.errors import InputError, LMError
from raisf.utils.text import text_of

if TYPE_CHECKING:
    from raisf.serving.service import Service

targets_argument: Callable[[Any], Any] = argument(
    "targets",
    nargs=-1,
    metavar="[INDEX_OR_ARTIFACT]...",
    help="a folder made by `raisf index`, the URL of `raisf serve-index`, or a folder made by `raisf "
    "compile`; there may be several, and NAME=FOLDER gives one a name; every --program is served over "
    "every index",
)


@dataclass(frozen=True, slots=True)
class LimitChoice:
    """What clients may ask."""

    concurrency: int
    rate: int
    question_seconds: float
    log_questions: bool


_limits = functools.partial(option, heading="limits")
limit_options = as_one(
    "limits",
    LimitChoice,
    _limits("--concurrency", type=at_least(1), default=16, metavar="N", help="questions at once; default: 16"),
    _limits(
        "--rate",
        type=at_least(0),
        default=120,
        metavar="N",
        help="questions a minute from one client; 0: no limit; default: 120",
    ),
    _limits(
        "--question-seconds",
        type=seconds,
        default=300,
        metavar="S",
        help="seconds a question may take, whatever --max-seconds or a client says; default: 300",
    ),
    _limits(
        "--log-questions",
        is_flag=True,
        help="write questions and answers into the log, which otherwise has only times and counts",
    ),
)
"""What clients may ask; a command takes them as `limits`."""

REPLIES = 5_000
"""Replies of LMs that a service keeps in memory, some 25 MB. DSPy alone would keep a million."""


def open_service(
    targets: Sequence[str], choice: ProgramChoice, lm: LMChoice, limits: LimitChoice, rewriting: Path | None = None
) -> "Service":
    """The programs that targets and options name, ready to be asked; what they log goes to standard error from now on.

    Args:
        targets: Indexes and artifacts, some as NAME=FOLDER.
        choice: How each is opened.
        lm: What answers.
        limits: What clients may ask.
        rewriting: A compiled `Conversation`, saved, which reads earlier turns; None: as it does before it is compiled.

    Raises:
        InputError: There is none, two have the same name, or one cannot be opened.
    """
    from raisf.programs.conversation import Conversation
    from raisf.serving.limits import Limits
    from raisf.serving.service import Served, Service

    served: dict[str, Served] = {}

    def add(name: str, choice: ProgramChoice) -> None:
        name = text_of(name)  # a folder's, perhaps: no reply can hold what is no UTF-8
        if name in served:
            raise InputError(f"two programs are called {name!r}: write NAME=FOLDER for one of them")
        label = None if choice.index is None else text_of(Path(choice.index).name or choice.index)
        program = choice.open_to_ask(lm)
        conversation = Conversation(program)
        if rewriting is not None:
            conversation.take_rewriting(rewriting)
        served[name] = Served(name, program, label, conversation)

    named = [_named(target) for target in [*targets, *([choice.index] if choice.index and not targets else [])]]
    artifacts = [(label, place) for label, place in named if _is_artifact(place)]
    indexes = {label: place for label, place in named if not _is_artifact(place)}
    if len(indexes) + len(artifacts) < len(named):
        raise InputError("two indexes have the same name: write NAME=FOLDER for one of them")
    if choice.index and targets and not artifacts:
        raise InputError(f"--index {choice.index} beside {', '.join(targets)}: give each index as a target")
    if choice.program and named and not indexes:
        raise InputError(f"--program {choice.program} says what answers over an index, and there is none: leave it out")
    for label, place in artifacts:
        add(label, replace(choice, program=place))
    for label, place in (indexes if named else {"": None}).items():
        asked = replace(choice, index=place).named(lm)
        for name, program in labelled_programs(asked.program or "").items():
            add(name if len(indexes) < 2 else f"{name}@{label}", replace(asked, program=program))
    if rewriting and not any(one.conversation and one.conversation.rewords() for one in served.values()):
        raise InputError(
            f"--conversation {rewriting} would do nothing: this LM takes each question as it stands (pocket "
            "always, smollm2 where the file has no demonstrations); leave it out"
        )
    _bound_memory()
    _log()
    wanted = Limits(limits.concurrency, limits.rate, limits.question_seconds, choice.max_calls)
    return Service(served, wanted, limits.log_questions)


def load_models(service: "Service") -> None:
    """Read the LMs that answer in this process: else the first questions wait for that, out of their own seconds.

    Raises:
        InputError: One is damaged.
        LMError: There is no memory for one.
    """
    from raisf.evaluation.local_lms import local_lms_of

    for served in service.served.values():
        for lm in local_lms_of(served.program):
            try:
                lm.base_engine.load()
            except (MemoryError, RuntimeError) as error:  # a device's too
                told = f"{lm.model.partition('#')[0]} cannot be read ({str(error).strip() or type(error).__name__})"
                raise LMError(f"{told}: end what holds the memory, or give a smaller one") from error


def _bound_memory() -> None:
    """Has DSPy's cache keep few replies in memory. One that keeps fewer, or none, and its disk stay as they are."""
    import dspy

    kept = dspy.cache.memory_cache
    if dspy.cache.enable_memory_cache and kept.maxsize > REPLIES:
        dspy.cache.memory_cache = type(kept)(REPLIES)


def _named(target: str) -> tuple[str, str]:
    label, given, place = target.partition("=")
    if given and not label:
        raise InputError(f"{target!r} has no name before '=': write NAME=FOLDER, or the folder alone")
    if given and "/" not in label and place:
        return label, place
    return Path(target).name or target, target


def _is_artifact(place: str) -> bool:
    from raisf.optimize.manifest import STATE

    return (Path(place) / STATE).is_file()


class _Lines(logging.Formatter):
    """A line of JSON a record, with its time: a question's, and what else there is to tell, such as a warning."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        row = {"time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")}
        if record.name == "raisf.serving" and message.startswith("{"):
            row |= json.loads(message)
        else:
            row |= {"level": record.levelname.lower(), "message": message}
        if record.exc_info:
            row["error"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=True)


class _ToStderr(logging.Handler):
    """To standard error as it is by then: whoever runs a command may put another in its place.

    Of what is not ours only errors are written.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] == "raisf" or record.levelno >= logging.ERROR

    def emit(self, record: logging.LogRecord) -> None:
        tell(self.format(record))


def _log() -> None:
    """The service's log: a line of JSON each on standard error, and warnings of all that is ours among them.

    It is the root's, which a library (MCP's) gives a handler of its own, in another form, where it has none.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, _ToStderr) for handler in root.handlers):
        handler = _ToStderr()
        handler.setFormatter(_Lines())
        root.addHandler(handler)
    logging.getLogger("raisf").setLevel(logging.WARNING)
    logging.getLogger("raisf.serving").setLevel(logging.INFO)
    for library in map(logging.getLogger, ("uvicorn.error", "mcp", "bm25s")):  # in this log's form, and no chatter
        library.handlers, library.propagate = [], True
        library.setLevel(logging.ERROR)
