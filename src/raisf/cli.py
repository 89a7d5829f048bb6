"""The command line, `raisf COMMAND`: finds the command, runs it, turns its errors into one line and an exit code."""

import atexit
import contextlib
import errno
import gc
import io
import logging
import os
import pkgutil
import sys
from collections.abc import Sequence

import click

from raisf import __version__
from raisf.commands.command import Commands, tell
from raisf.commands.result import INTERRUPTED
from raisf.utils.errors import RaisfError
from raisf.utils.gpu import gpu_failure
from raisf.utils.open_files import raise_open_files
from raisf.utils.text import visible

NO_PLACE = (
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG),
    *(errno.ELOOP, errno.ENOTDIR, errno.EEXIST),  # a link to itself, a file in the place of a folder
)
"""What the system says of a place that the user chose, and that nothing can be written to or read from."""
COMMANDS = (
    "index",
    "ask",
    "chat",
    "serve",
    "mcp",
    "programs",
    "compile",
    "collect",
    "eval",
    "compare",
    "view",
    "demo",
    "world",
    "dataset",
    "experiment",
    "serve-index",
    "colbert",
    "dense",
    "pocket",
)
"""In the order of the help. A command is `raisf.commands.NAME:NAME_command`, with _ for -."""

_FIRST = """
\b
First: `raisf index DOCS --out indexes/mine`,
then: `raisf ask "..." --index indexes/mine`.
`raisf COMMAND --help` shows options and examples.
"""


class _Commands(Commands):
    """The commands; a command's file is imported when the command is called, or when the help lists them all."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        return pkgutil.resolve_name(f"raisf.commands.{name}:{name}_command")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, which knows none of these names: one that is near is offered."""
        from difflib import get_close_matches

        if args[0] not in COMMANDS and (near := get_close_matches(args[0], COMMANDS, n=1)):
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, invoke_without_command=True, epilog=_FIRST)
@click.version_option(__version__, message="raisf %(version)s")
@click.pass_context
def raisf(context: click.Context) -> None:
    """Answers questions by recursion: know it, read it, or break it down (RA-ISF as a DSPy program)."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments without the program's name; the process's own if not given.

    Returns:
        The exit code: 0, 1 for a failure outside or a part that is missing, 2 for the user's mistake, 130 after Ctrl-C.
    """
    for name in ("stdin", "stdout", "stderr"):  # None where a parent has closed it
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))
    if isinstance(sys.stdin, io.TextIOWrapper) and not sys.stdin.isatty():  # what is no UTF-8 is told with its question
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    raise_open_files()
    # At its end Python looks through all that torch and DSPy have made, in search of garbage: seconds, and for nothing.
    atexit.register(gc.freeze)
    atexit.register(_leave_stderr)
    # tqdm's bars (DSPy's, bm25s', transformers', colbert-ai's) would stand beside ours; read as it is imported.
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    # It warns of each answer that is cut off, many in a long run; the outcome counts them as unreadable.
    logging.getLogger("dspy.clients.lm").setLevel(logging.ERROR)
    if logging.lastResort is not None:  # what warnings of ours go to
        logging.lastResort.setFormatter(_VisibleFormatter())
    try:
        with raisf.make_context("raisf", list(sys.argv[1:] if argv is None else argv)) as context:
            raisf.invoke(context)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.ClickException as mistake:
        return _told(mistake.format_message().rstrip("."), _help_of(mistake), code=2)
    except KeyboardInterrupt as interrupt:
        tell(f"\ninterrupted: {visible(interrupt)}")
        if argv is None:  # all that is done is kept: nobody waits for what other threads would still ask
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os._exit(INTERRUPTED)
        return INTERRUPTED
    except RaisfError as error:
        return _told(error, code=error.exit_code)
    except OSError as error:
        if not error.filename and _is_folder_gone():
            return _told("the folder that you are in has been deleted: cd to another", code=2)
        told = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        chosen = error.filename and error.errno in NO_PLACE
        return _told(told, ": give another place", code=2) if chosen else _told(told, code=1)
    except RuntimeError as error:
        if failure := gpu_failure(error):
            return _told(failure, code=failure.exit_code)
        raise
    return 0


class _VisibleFormatter(logging.Formatter):
    """Warnings name files and quote what an LM said."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def _told(what: object, following: str = "", *, code: int) -> int:
    tell(f"error: {visible(what)}{following}")
    return code


def _leave_stderr() -> None:
    """What cannot be written on standard error is no failure of the command; Python would make it one at its end."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _help_of(mistake: click.ClickException) -> str:
    context = mistake.ctx if isinstance(mistake, click.UsageError) else None
    return f" (see: {context.command_path} --help)" if context else ""


if __name__ == "__main__":
    sys.exit(main())
