"""The kinds of values that options take."""

import json
import math
from pathlib import Path
from typing import Any

import click

from raisf.utils.checks import MOST_SECONDS
from raisf.utils.text import text_of
from raisf.utils.urls import is_address


class _Here(click.Path):
    """A file or a folder on this machine; an address, which may hold a password, is not shown."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():  # "" would be the folder where one is
            self.fail("found nothing: give the file or folder (is a variable not set?)", param, ctx)
        if is_address(value):
            self.fail("found an address: give the file or folder, on the machine where it lies", param, ctx)
        if not self.file_okay and Path(value).is_file():
            self.fail(f"{value} is a file: give a folder", param, ctx)
        return super().convert(value, param, ctx)


FILE = _Here(path_type=Path)
FOLDER = _Here(path_type=Path, file_okay=False)


def at_least(least: int) -> click.IntRange:
    """A whole number that is not below `least`."""
    return click.IntRange(min=least)


def not_negative(text: str) -> float:
    """A number that is 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise click.BadParameter(f"expected a number, found {text!r}") from None
    if not 0 <= value < math.inf:
        raise click.BadParameter(f"expected a number of 0 or more, found {text}")
    return value


def seconds(text: str) -> float:
    """A number of seconds above 0."""
    value = not_negative(text)
    if not 0 < value <= MOST_SECONDS:
        raise click.BadParameter(f"expected more than 0 seconds, and at most {MOST_SECONDS:,}; found {text}")
    return value


def share(text: str) -> float:
    """A number from 0 to 1."""
    value = not_negative(text)
    if value > 1:
        raise click.BadParameter(f"expected a number from 0 to 1, found {text}")
    return value


def switch(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value a number, true, false or null as in JSON (or as in Python), else a text."""
    name, given, value = text.partition("=")
    if not given or not name:
        raise click.BadParameter(f"expected NAME=VALUE, found {text!r}")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = {"True": True, "False": False, "None": None}.get(value, value)
    if isinstance(found, list | dict):
        raise click.BadParameter(f"expected a number, true, false, null or a text, found {value}")
    return name, found


def sizes(text: str) -> tuple[int, ...]:
    """`A,B` as whole numbers of 2 or more, each once, the smallest first."""
    parts = names(text)
    if not parts or not all(part.isdecimal() and int(part) >= 2 for part in parts):
        raise click.BadParameter(f"expected whole numbers of 2 or more with commas between them, found {text!r}")
    return tuple(sorted(set(map(int, parts))))


def limits(text: str) -> dict[str, int | None]:
    """`A,B=N` as names, each with the whole number that is its limit; None where it has none."""
    found: dict[str, int | None] = {}
    for part in some_names(text):
        name, given, limit = part.partition("=")
        if given and not limit.isdecimal():
            raise click.BadParameter(f"expected NAME or NAME=N, a whole number, found {part!r}")
        found[name] = int(limit) if given else None
    return found


def labelled_programs(text: str) -> dict[str, str]:
    """`A,LABEL=B` as names by label."""
    named: dict[str, str] = {}
    for part in some_names(text, "names of programs"):
        label, given, name = part.rpartition("=")
        if given and not (label and name):
            raise click.BadParameter(f"expected LABEL=NAME, found {part!r}")
        label = label if given else text_of(Path(name).name)  # no page can hold what is no UTF-8
        if label in named:
            raise click.BadParameter(f"two programs are called {label!r}: write LABEL=NAME for one of them")
        named[label] = name
    return named


def names(text: str, what: str = "names") -> tuple[str, ...]:
    """`A,B` as names; none of nothing."""
    found = tuple(filter(None, (part.strip() for part in text.split(","))))
    if text and not found:
        raise click.BadParameter(f"expected {what}, with commas between them; found {text!r}")
    return found


def some_names(text: str, what: str = "names") -> tuple[str, ...]:
    """`A,B` as names; of nothing an error, where it would else stand for all."""
    found = names(text, what)
    if not found:
        raise click.BadParameter(f"expected {what}, with commas between them; found nothing (is a variable not set?)")
    return found


def labelled(text: str) -> tuple[str, str]:
    """LABEL=NAME."""
    label, given, name = text.partition("=")
    if not given or not label or not name:
        raise click.BadParameter(f"expected LABEL=NAME, found {text!r}")
    return label, name
