"""The command line, `raisf COMMAND`: parses, runs the command, shows its outcome; `commands.commands` does the work."""

import atexit
import contextlib
import gc
import importlib
import io
import json
import logging
import os
import sys
from collections.abc import Sequence

from raisf.commands.outcome import Outcome
from raisf.commands.parsers import make_parser
from raisf.utils.errors import RaisfError

INTERRUPTED = 130  # what a shell reports for a command that Ctrl-C ended: 128 + SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: The arguments without the program's name; the process's own if not given.

    Returns:
        The exit code: 0, 1 for a failure outside or a part that is missing, 2 for the user's mistake, 130 after Ctrl-C.
    """
    # At its end Python looks through all that torch and DSPy have made, in search of garbage: seconds, and for nothing.
    atexit.register(gc.freeze)
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_help()
        return 0
    # It warns of each answer that is cut off, many in a long run; the outcome counts them as unreadable.
    logging.getLogger("dspy.clients.lm").setLevel(logging.ERROR)
    try:
        # Libraries print progress of their own: only the outcome belongs on standard output.
        with contextlib.redirect_stdout(sys.stderr):
            home = importlib.import_module(f"raisf.commands.{arguments.home}")
            outcome = getattr(home, arguments.command.replace("-", "_"))(arguments)
        _show(outcome, as_json=arguments.json)
    except KeyboardInterrupt as interrupt:
        print(f"\ninterrupted: {str(interrupt) or arguments.resume}", file=sys.stderr)
        return INTERRUPTED
    except RaisfError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"error: {error.strerror or error}{where}", file=sys.stderr)
        return 1
    return outcome.exit_code


def _show(outcome: Outcome, *, as_json: bool) -> None:
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an arrow that cannot be shown is no reason to show nothing
    try:
        if as_json:
            print(json.dumps(outcome.data, ensure_ascii=not unicode, indent=2), flush=True)
        else:
            from rich.console import Console

            Console().print(outcome.view)
            sys.stdout.flush()
    except OSError as error:
        # Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # there the reader, `head` for one, has what it wanted
            raise RaisfError(f"the work is done, but its outcome cannot be written ({error.strerror})") from error


if __name__ == "__main__":
    sys.exit(main())
