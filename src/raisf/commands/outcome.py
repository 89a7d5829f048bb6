"""What a command gives back: the same result for a program to read and for a person to look at."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command's result.

    Attributes:
        data: What --json prints; made of JSON values.
        view: What a person sees: anything that rich can print.
        exit_code: What the command ends with: 1 where its work is done but for a part of it that is named.
    """

    data: dict[str, Any]
    view: Any
    exit_code: int = 0


def told(facts: dict[str, Any], following: str | None = None) -> Outcome:
    """The outcome of a command whose result is a few facts, a line each; None is not shown.

    Args:
        facts: By name, in order.
        following: The command that comes next, if one does.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is None:
            continue
        shown = ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(Text(name), Text(shown))
    return Outcome(facts, Group(table, Text(f"next: {following}", style="dim")) if following else table)
