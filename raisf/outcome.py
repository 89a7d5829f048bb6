"""What a command gives back: the same result for a program to read and for a person to look at."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command's result.

    Attributes:
        data: What --json prints; made of JSON values.
        view: What a person sees: anything that rich can print.
    """

    data: dict[str, Any]
    view: Any
