"""What parsers are made of: commands with their actions, and types of values."""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Parser(argparse.ArgumentParser):
    """A command's parser, which may have actions beside its own arguments: `raisf index DOCS`, `raisf index add ...`.

    An action's name as the first argument is the action. argparse itself would take subparsers only in the place of
    the arguments.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._parsers: dict[str, Parser] = {}

    def add_parser(self, name: str, *, help: str, **kwargs: Any) -> "Parser":
        """Adds an action's parser."""
        self._parsers[name] = Parser(prog=f"{self.prog} {name}", **kwargs)
        return self._parsers[name]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As argparse's; the arguments of an action are parsed by its own parser."""
        if args and args[0] in self._parsers:
            return self._parsers[args[0]].parse_known_args(args[1:], namespace)
        return super().parse_known_args(args, namespace)


def add_command(
    commands: Any, name: str, help: str, examples: str, *, resume: str = "nothing was written", home: str = "commands"
) -> Any:
    """Adds a command's parser; the function of its name in `raisf.<home>` does its work.

    Args:
        commands: The subparsers of the command line, or a parser that has actions.
        name: As it is typed.
        help: What it does, in a line.
        examples: Commands to copy.
        resume: What to do, or to know, after Ctrl-C.
        home: The module of `raisf` with the function.
    """
    parser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(resume=resume, home=home)
    parser.add_argument(
        "--json", action="store_true", help="print the result as JSON on standard output, and only that"
    )
    return parser


def at_least(least: int) -> Callable[[str], int]:
    """A type for argparse: a whole number that is not below `least`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a whole number, found {text!r}") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"expected {least} or more, found {value}")
        return value

    return parse


def not_negative(text: str) -> float:
    """A type for argparse: a number that is 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, found {text!r}") from None
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of 0 or more, found {text}")
    return value


def seconds(text: str) -> float:
    """A type for argparse: a number of seconds above 0."""
    value = not_negative(text)
    if value == 0:
        raise argparse.ArgumentTypeError("expected more than 0 seconds")
    return value


def share(text: str) -> float:
    """A type for argparse: a number from 0 to 1."""
    value = not_negative(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, found {text}")
    return value


def switch(text: str) -> tuple[str, Any]:
    """A type for argparse: NAME=VALUE, the value a number, true, false or null as in JSON, else a text."""
    name, given, value = text.partition("=")
    if not given or not name:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    try:
        found = json.loads(value)
    except ValueError:
        found = value
    if isinstance(found, list | dict):
        raise argparse.ArgumentTypeError(f"expected a number, true, false, null or a text, found {value}")
    return name, found


def folder(text: str) -> Path:
    """A type for argparse: a folder, there or to be made."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file: give a folder")
    return path
