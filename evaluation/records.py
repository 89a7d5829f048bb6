"""The file of an evaluation: one JSON line a question, appended as it finishes, bound to one program and test set."""

import contextlib
import fcntl
import logging
import mmap
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import IO, Any

import dspy
import ujson

from raisf.evaluation.confidence import of_record
from raisf.evaluation.examples import describe_test
from raisf.evaluation.identity import describe
from raisf.evaluation.local_lms import lms_of
from raisf.lm.endpoint import EndpointLM
from raisf.lm.failures import base_of
from raisf.utils.errors import InputError
from raisf.utils.files import append_line, check_name, check_writable, dump_line, read_json, write_json
from raisf.utils.predictors import held_lms
from raisf.utils.urls import without_secrets

logger = logging.getLogger(__name__)

FORMAT = 2
"""Of a file: another where replies are read or scored otherwise, as old and new scores would have one mean."""
# What scores and tables stand on.
_NEEDED = {"id": str, "question": str, "answers": list, "em": (int, float), "f1": (int, float)}
# What else they stand on, where a record has it.
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("kind", "route", "error"), (str, NoneType)),
    **dict.fromkeys(("recall", "precision"), (int, float, NoneType)),
    **{"accuracy": (int, float), "cost": dict, "read": int, "unreadable": int, "threads": int},
}
_SHARES = ("em", "f1", "accuracy", "recall", "precision")
# What else a record tells, and counts as where it does not; what was read is then told by its calls (`counts`).
_MISSING: dict[str, Any] = {
    **dict.fromkeys(("kind", "hops", "prediction", "route", "recall", "precision", "error", "trace")),
    **dict.fromkeys(("accuracy", "unreadable"), 0),
    "cost": {},
}
_ELSEWHERE = "give another file for the records"


class Records:
    """The records made so far, by question id, and the open file that takes the next ones.

    Without a path they live in memory alone. Of two records of one question the later counts: a question that ended in
    an error is asked again when the run resumes.

    Attributes:
        done: The records, with the answer's `confidence` in the place of the `trace` it follows from, which is most of
            a record and stays in the file.
        right: The sum of their exact matches.
        errors: How many of them are errors.
    """

    def __init__(self, lines: IO[str] | None = None, first: Callable[[], None] | None = None) -> None:
        self._lines, self._first = lines, first
        self.done: dict[str, dict[str, Any]] = {}
        self.right, self.errors = 0.0, 0

    def add(self, record: dict[str, Any]) -> None:
        """Keeps a record; when it returns, a kill of the process can no longer lose it."""
        if self._first is not None:
            self._first()
            self._first = None
        self.found(record)
        if self._lines is not None:
            append_line(self._lines, dump_line(record))

    def found(self, record: dict[str, Any]) -> None:
        """Counts in a record that the file has.

        Earlier versions scored an answer that had lost an LM call; it is an error, and the question asked again.
        """
        trace = record.get("trace")
        if record.get("error") is None and isinstance(trace, dict) and trace.get("failed"):
            record = {**record, "error": "LMError: a call failed", "em": 0.0, "f1": 0.0, "accuracy": 0.0}
        told = {name: value for name, value in record.items() if name != "trace"} | {"confidence": of_record(record)}
        before = self.done.get(record["id"], {"em": 0.0, "error": None})
        self.right += record["em"] - before["em"]
        self.errors += (record.get("error") is not None) - (before.get("error") is not None)
        self.done[record["id"]] = told


@contextlib.contextmanager
def open_records(path: Path | None, binding: dict[str, Any], *, fresh: bool = False) -> Iterator[Records]:
    """Opens the records at a path to go on with them, or begins them; one process at a time.

    Args:
        path: A `.jsonl` file; beside it lies what says whose records they are, see `meta_path`. None: memory only.
        binding: What the records belong to (`binding_of`); its program and its test must equal the file's, and an
            endpoint that is none of the file's is told.
        fresh: Drop the records that are there and begin anew. What is no records of ours is never dropped.

    Raises:
        InputError: The records belong to another program or test set, a line is broken, another process writes them,
            or there is something else in the place of either file.
    """
    if path is None:
        yield Records()
        return
    if path.is_dir():
        raise InputError(f"{path} is a folder; give a file for the records, such as {path / 'records.jsonl'}")
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is a device or a pipe; give a file for the records")
    bare = path.name.removesuffix(".jsonl")
    if bare and _holds_records(twin := path.with_name(bare if bare != path.name else f"{bare}.jsonl")):
        raise InputError(f"{path} and {twin.name}, which is there, would share {meta_path(path).name}: {_ELSEWHERE}")
    meta = meta_path(path)
    check_name(meta)
    check_writable(path.parent)
    Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)  # where a link leads to
    _read_meta(meta, path)  # a stranger's is refused before a file is made beside it
    with path.open("a+", encoding="utf-8") as lines:
        _lock(lines, path)
        found = _read_meta(meta, path)
        if found is None and path.stat().st_size > 0 and not (fresh and _holds_records(path)):
            anew = "delete both (--fresh does, in Python fresh=True) to begin anew, or " if _holds_records(path) else ""
            raise InputError(
                f"{path} holds something, but {meta.name}, which says whose records, is missing or damaged: {anew}"
                f"{_ELSEWHERE}"
            )
        if fresh:
            lines.truncate(0)
        elif found is not None:
            _check(path, found, binding)
            _heal(lines)
        asked, before = binding.get("endpoints", []), (found or {}).get("endpoints", [])

        def tell(endpoints: Collection[str]) -> None:
            write_json(meta, {"format": FORMAT, **binding, "endpoints": sorted(endpoints)})

        records = Records(lines, first=lambda: tell({*before, *asked}))
        for record in read_records(path, f"mend or drop the line, or {_ELSEWHERE}"):
            records.found(record)
        before = before if records.done else []
        if before and (others := set(asked) - set(before)):
            logger.warning(
                "%s: its %d answers are of %s, and %s is asked now: if that serves another model under the same name, "
                "%s, or --fresh (fresh=True) to drop them and begin anew",
                *(path, len(records.done), " and ".join(before), " and ".join(sorted(others)), _ELSEWHERE),
            )
        tell(before)
        yield records


def binding_of(program: dspy.Module, examples: Sequence[dspy.Example], *, cache: bool = False) -> dict[str, Any]:
    """What the answers of a program to questions belong to.

    Args:
        program: It.
        examples: The questions.
        cache: Whether it may answer out of DSPy's cache, so that cost and seconds are the cache's.

    Returns:
        The program and the test, and the endpoints that its LMs are asked at, which may be other ones the next time.
    """
    lms = [*lms_of(program), *(lm for *_, lm in held_lms(program))]
    return {
        "program": describe(program) | ({"cache": True} if cache else {}),
        "test": describe_test(examples),
        "endpoints": sorted({without_secrets(place) for lm in lms if lm is not None and (place := _place(lm))}),
    }


def _place(lm: dspy.BaseLM) -> str | None:
    return lm.endpoint.place or "its provider" if isinstance(lm, EndpointLM) else base_of(lm)


def meta_path(records: Path) -> Path:
    """The file that says whose records those of a file are: `x.meta.json` of `x.jsonl`."""
    return records.with_name(records.name.removesuffix(".jsonl") + ".meta.json")


def read_records(path: Path, remedy: str) -> Iterator[dict[str, Any]]:
    """The records of a file that may be growing: a last line without its end is not there yet.

    Args:
        path: The file.
        remedy: What to do about a line that is no record.

    Raises:
        InputError: There is no file, or a line is no record.
    """
    if not path.is_file():
        raise InputError(f"no file at {path}: {remedy}")
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            if not raw.strip():
                continue
            try:
                record = ujson.loads(raw.decode("utf-8"))
            except ValueError as error:
                if not raw.endswith(b"\n"):
                    return
                raise InputError(f"{path}, line {number}, is no JSON ({error}): {remedy}") from error
            try:
                wrong = [name for name, kind in _NEEDED.items() if not isinstance(record.get(name), kind)]
                record = _MISSING | record
                wrong += [name for name, kind in _KINDS.items() if not isinstance(record.get(name, 0), kind)]
                wrong += [n for n in _SHARES if n not in wrong and not 0 <= (record[n] or 0) <= 1]
                if "cost" not in wrong and not all(isinstance(one, (int, float)) for one in record["cost"].values()):
                    wrong.append("cost")
                record["confidence"] = of_record(record)
                if not isinstance(record["confidence"], int | float | None):
                    wrong.append("confidence")
            except (TypeError, AttributeError) as error:
                raise InputError(f"{path}, line {number}, is no record ({error!r:.80}): {remedy}") from error
            if wrong:
                raise InputError(f"{path}, line {number}, is no record ({_wrong(record, wrong[0])}): {remedy}")
            yield record


def _wrong(record: dict[str, Any], name: str) -> str:
    return f"{name!r} is {record[name]!r:.40}" if name in record else f"no {name!r} in it"


def _holds_records(path: Path) -> bool:
    """Whether a file begins with a record."""
    with contextlib.suppress(InputError, OSError):
        return path.is_file() and next(read_records(path, ""), None) is not None
    return False


def _lock(lines: IO[str], path: Path) -> None:
    try:
        fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"another evaluation is writing {path}: wait for it, or give another file") from error
    except OSError:
        pass  # a file system that knows no locks


def _heal(lines: IO[str]) -> None:
    """Cuts off a last line that a kill left without its end: its question is asked again."""
    size = os.fstat(lines.fileno()).st_size
    if size == 0:
        return
    with mmap.mmap(lines.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        whole = raw.rfind(b"\n") + 1
    if whole < size:  # else the file would be new to those who read its time as that of the last answer
        lines.truncate(whole)


def _read_meta(meta: Path, records: Path) -> dict[str, Any] | None:
    """What is said of the records; None where nothing is, or where a power cut has damaged it."""
    if not meta.exists():
        return None
    try:
        found = read_json(meta)
    except InputError:
        if meta.is_file() and (_holds_records(records) or not meta.read_bytes().strip(b"\0")):
            return None
        raise
    if not isinstance(found, dict) or not {"format", "program", "test"} <= found.keys():
        raise InputError(f"{meta}, which would say whose records these are, holds something else: {_ELSEWHERE}")
    return found


def _check(path: Path, found: dict[str, Any], binding: dict[str, Any]) -> None:
    remedy = f"{_ELSEWHERE}, or --fresh (fresh=True) to drop them and begin anew"
    if found["format"] != FORMAT:
        raise InputError(f"{path} is not of format {FORMAT}, the one this version writes: {remedy}")
    for kind in ("program", "test"):
        ours, theirs = binding[kind], found[kind]
        if ours == theirs:
            continue
        theirs = theirs if isinstance(theirs, dict) else {}
        changed = [key for key in {**theirs, **ours} if ours.get(key) != theirs.get(key)]
        shown = "; ".join(f"{key}: {theirs.get(key)} there, {ours.get(key)} here" for key in changed[:4])
        more = f"; and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise InputError(f"{path} holds the records of another {kind} ({shown}{more}): {remedy}")
