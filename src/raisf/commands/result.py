"""What a command gives back: the same result for a program to read and for a person to look at."""

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from raisf.utils.errors import RaisfError
from raisf.utils.text import visible_json

if TYPE_CHECKING:
    from rich.console import RenderableType

    from raisf.programs.trace import Trace


_PLAINLY = "raisf.plainly"
_PLAIN = {"✓": "+", "✗": "-"}  # verdicts, which must not look alike
INTERRUPTED = 130
"""What a shell reports for a command that Ctrl-C ended: 128 + SIGINT."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command's result.

    Attributes:
        data: What --json prints; made of JSON values.
        view: What a person sees.
        exit_code: What the command ends with: 1 where its work is done but for a part of it that is named,
            130 where Ctrl-C cut it short.
    """

    data: dict[str, Any]
    view: "RenderableType"
    exit_code: int = 0


def answer_facts(answer: str, trace: "Trace | None") -> dict[str, Any]:
    """An answer as --json has it: how sure it is, what it cites and its tree, where its program keeps one."""
    if trace is None:  # a module of the user's own
        return {"answer": answer, "trace": None}
    root = trace.root
    found = {"confidence": root.confidence, "cited": root.cited, "grounded": root.grounded}
    return {"answer": answer, **found, "trace": trace.model_dump(mode="json")}


def facts_result(facts: dict[str, Any], following: str | None = None) -> CommandResult:
    """The result of a command that ends with a few facts, a line each; None is not shown.

    Args:
        facts: By name, in order.
        following: The command that comes next, if one does.
    """
    return CommandResult(facts, facts_view(facts, following))


def facts_view(facts: dict[str, Any], following: str | None = None) -> "RenderableType":
    """The view of `facts_result`."""
    from rich.console import Group

    from raisf.utils.display import DataTable, as_text

    table = DataTable.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is None:
            continue
        shown = ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else value
        table.add_row(name, str(shown))
    return Group(table, as_text(f"next: {following}", "dim")) if following else table


def show(result: CommandResult, *, as_json: bool) -> None:
    """Prints a result on standard output.

    Raises:
        RaisfError: It cannot be written.
    """
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    with contextlib.suppress(BrokenPipeError), writing(sys.stdout):
        if as_json:
            print(visible_json(json.dumps(result.data, ensure_ascii=not unicode, indent=2)))
        else:
            from raisf.utils.display import console

            console().print(result.view)


@contextlib.contextmanager
def writing(out: TextIO) -> Iterator[None]:
    """Sends on what is written to standard output within the block.

    Raises:
        RaisfError: It cannot be written.
        BrokenPipeError: Its reader, `head` for one, has what it wanted.
    """
    if isinstance(out, io.TextIOWrapper):
        codecs.register_error(_PLAINLY, _plainly)
        out.reconfigure(errors=_PLAINLY)  # an arrow that cannot be shown is no reason to show nothing
    try:
        yield
        out.flush()
    except OSError as error:
        # Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise RaisfError(f"the work is done, but its outcome cannot be written ({error.strerror})") from error


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding has not: "?" for those without a plain one."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(one, "?") for one in error.object[error.start : error.end]), error.end
