"""What a compilation has found so far, in a file: the same call goes on from it after a kill, to the same result."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import dspy

from raisf.evaluation.identity import describe, digest
from raisf.utils.files import check_writable, dump_line, locked


class Journal:
    """A file of keys and values, appended to as they are found, and removed when all is done.

    Args:
        work: The folder.
        name: What the file's name begins with.
        identity: All that decides what is found, JSON-able. Another identity is another file.

    Attributes:
        path: The file.
        found: How many values an earlier call has left.
    """

    def __init__(self, work: Path | str, name: str, identity: Any):
        self.path = Path(work) / f"{name}-{digest(identity)}.jsonl"
        self._values: dict[str, Any] = {}
        self._lock = threading.Lock()
        if self.path.is_file():
            self._read()
        self.found = len(self._values)

    @classmethod
    @contextlib.contextmanager
    def alone(cls, work: Path | str, name: str, identity: Any, *, trains: bool) -> Iterator[Self]:
        """A journal that no other process or thread has while the block runs.

        Args:
            work: The folder, made where there is none.
            name: See the class.
            identity: Likewise.
            trains: Whether to keep out of the folder whoever else trains there: what is trained is named after its
                rows, which other options may give too.

        Raises:
            InputError: Another has it, or the folder cannot be written.
        """
        elsewhere = "go to another folder, or in Python give work=DIR"
        check_writable(work, f"what is found so far is kept there; {elsewhere}")
        Path(work).mkdir(parents=True, exist_ok=True)
        lock = "training" if trains else f"{name}-{digest(identity)}"
        doing = "training" if trains else "doing the very same"
        taken = f"another compile is {doing} in {work}: wait for it, or {elsewhere}"
        with locked(Path(work) / f".{lock}.lock", taken):
            yield cls(work, name, identity)

    def get(self, key: str) -> Any:
        """The value of a key; None if it has not been found."""
        return self._values.get(key)

    def add(self, key: str, value: Any) -> Any:
        """Keeps a JSON-able value, and gives it back."""
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(dump_line({"key": key, "value": value}))
            self._values[key] = value
        return value

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """The value that an earlier call has kept, else the one that is made now."""
        return self._values[key] if key in self._values else self.add(key, make())

    def close(self) -> None:
        """Ends it: the next call begins anew."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> None:
        """A kill may have cut the last line: it is dropped, also from the file, which is appended to."""
        whole = self.path.read_bytes()
        whole = whole[: whole.rfind(b"\n") + 1]
        for line in whole.splitlines():
            row = json.loads(line)
            self._values[row["key"]] = row["value"]
        with self.path.open("r+b") as file:
            file.truncate(len(whole))


def identity_of(program: dspy.Module, *functions: Callable[..., Any]) -> dict[str, Any]:
    """A program with the code that it and some functions run, for a journal: who edits them begins anew.

    Records of an evaluation do without the code: there a path is given by hand.
    """
    kinds = [kind for kind in type(program).__mro__ if not kind.__module__.startswith(("dspy.", "builtins"))]
    codes = [made for kind in kinds for made in vars(kind).values() if hasattr(made, "__code__")]
    return {"program": describe(program), "code": [_code(function) for function in [*codes, *functions]]}


def _code(function: Any) -> list[Any]:
    names = [getattr(function, name, type(function).__name__) for name in ("__module__", "__qualname__")]
    code = getattr(function, "__code__", None)
    return [*names, _parts(code) if code is not None else None]


def _parts(code: Any) -> list[Any]:
    """The code with that of the functions inside it, and none of the places it stands at."""
    constants = [_parts(one) if hasattr(one, "co_code") else _shown(one) for one in code.co_consts]
    return [code.co_code.hex(), list(code.co_names), constants]


def _shown(constant: Any) -> str:
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)  # sets have no order
