"""A resumable journal: keys and values in a file, appended to as they are found, read again after a kill."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

from raisf.utils.files import append_line, check_writable, dump_line, locked


class Journal:
    """A JSON Lines file of keys and values. When `add` returns, a kill of the process can no longer lose the value.

    Args:
        path: The file; made with the first value. Of two values of one key the later counts.

    Attributes:
        path: As given.
        found: How many values an earlier call has left.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._values: dict[str, Any] = {}
        self._lock = threading.Lock()
        if self.path.is_file():
            self._read()
        self.found = len(self._values)

    @classmethod
    @contextlib.contextmanager
    def alone(cls, work: Path | str, name: str, identity: str, *, lock: str | None = None) -> Iterator[Self]:
        """A journal that no other process or thread has while the block runs.

        Args:
            work: The folder, made where there is none.
            name: What the file's name begins with.
            identity: A digest of all that decides what is found. Another identity is another file.
            lock: Keeps out of the folder whoever else holds a lock of this name there; None: only the same journal.

        Raises:
            InputError: Another has it, or the folder cannot be written.
        """
        elsewhere = "go to another folder, or in Python give work=DIR"
        check_writable(work, f"what is found so far is kept there; {elsewhere}")
        Path(work).mkdir(parents=True, exist_ok=True)
        doing = lock or "doing the very same"
        taken = f"another command is {doing} in {work}: wait for it, or {elsewhere}"
        with locked(Path(work) / f".{lock or f'{name}-{identity}'}.lock", taken):
            yield cls(Path(work) / f"{name}-{identity}.jsonl")

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def get(self, key: str) -> Any:
        """The value of a key; None if it has not been found."""
        return self._values.get(key)

    def add(self, key: str, value: Any) -> Any:
        """Keeps a JSON-able value, and gives it back."""
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:
                append_line(file, dump_line({"key": key, "value": value}))
            self._values[key] = value
        return value

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """The value that an earlier call has kept, else the one that is made now."""
        return self._values[key] if key in self._values else self.add(key, make())

    def close(self) -> None:
        """Ends it: what is asked next begins anew; see `ending_together`."""
        if (waiting := _WAITING.get()) is not None:
            waiting.append(self)
            return
        self.path.unlink(missing_ok=True)
        self._values.clear()

    def _read(self) -> None:
        """A kill may have cut the last line: it is dropped, also from the file, which is appended to.

        Any other line that cannot be read is passed over: what it held is found again.
        """
        whole = self.path.read_bytes()
        whole = whole[: whole.rfind(b"\n") + 1]
        for line in whole.splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                row = json.loads(line)
                self._values[row["key"]] = row["value"]
        with self.path.open("r+b") as file:
            file.truncate(len(whole))


@contextlib.contextmanager
def ending_together() -> Iterator[None]:
    """Journals that end within the block stay until it ends well: what comes later may fail, and is then done again."""
    ended = list[Journal]()
    token = _WAITING.set(ended)
    try:
        yield
    finally:
        _WAITING.reset(token)
    for journal in ended:
        journal.close()


_WAITING: ContextVar[list[Journal] | None] = ContextVar("_WAITING", default=None)
