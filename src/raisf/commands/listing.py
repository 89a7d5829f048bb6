"""Commands that list what there is."""

import argparse

from rich.table import Table
from rich.text import Text

from raisf.commands.outcome import Outcome


def programs(arguments: argparse.Namespace) -> Outcome:
    """Lists the programs of the registry, with their options and defaults in the data."""
    from raisf.programs.registry import PROGRAMS, about, defaults

    rows = []
    table = Table("program", "what it does", "source", box=None, padding=(0, 2, 1, 0))
    for name, program in PROGRAMS.items():
        summary, source = about(program)
        rows.append({"name": name, "summary": summary, "source": source, "options": defaults(program)})
        table.add_row(Text(name, style="bold"), Text(summary), Text(source, style="dim"))
    return Outcome({"programs": rows}, table)
