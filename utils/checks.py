"""Checks of what a user gives: each raises InputError, with what was wrong, what was found and what to give."""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any, cast, get_args

from raisf.utils.errors import InputError

MOST_SECONDS = 1_000_000_000
"""Thirty years; the system's clock ends somewhere beyond."""


def check(name: str, value: object, good: bool, wanted: str) -> None:
    """Raise InputError for an option that cannot be used."""
    if not good:
        raise InputError(f"{name} is {value!r:.60}: give {wanted}")


def check_switches(**switches: object) -> None:
    """Raise InputError for an option that is to be True or False and is something else: "false" would be True."""
    import numpy as np

    for name, switch in switches.items():
        check(name, switch, isinstance(switch, bool | np.bool_), "True or False")


def check_choice(name: str, value: object, kind: Any) -> None:
    """Raise InputError for an option that is none of the texts of a Literal."""
    check(name, value, value in get_args(kind), " or ".join(get_args(kind)))


def is_number(value: object) -> bool:
    """Whether a value is a number, and a finite one."""
    return isinstance(value, Real) and not isinstance(value, bool) and -math.inf < cast(Any, value) < math.inf


def check_share(name: str, value: Any) -> None:
    """Raise InputError for an option that is no number from 0 to 1."""
    check(name, value, is_number(value) and 0 <= value <= 1, "0 to 1")


def check_count(name: str, value: object, least: int = 1, most: int | None = None, none: str = "") -> None:
    """Raise InputError for an option that is no whole number of these; `none`: what None means, if it may be."""
    good = isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= (most or int(value))
    wanted = f"a whole number, {least} to {most}" if most else f"a whole number, {least} or more"
    check(name, value, good or (value is None and none != ""), f"{wanted}, or None for {none}" if none else wanted)


def check_named(what: str, value: object, known: Collection[str]) -> None:
    """Raise InputError for a name that is none of those that are known."""
    if value not in known:
        raise InputError(f"unknown {what} {value!r}: choose {', '.join(known)}")


def check_least(settings: object, /, **least: int) -> None:
    """Raise InputError for a setting that is no whole number of at least what stands for its name in `least`."""
    for name, bound in least.items():
        check_count(name, getattr(settings, name), bound)
