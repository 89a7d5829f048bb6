"""`raisf collect`: the judges' training sets as files."""

import argparse
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from raisf.commands import assemble
from raisf.commands.options import LM_OPTIONS
from raisf.commands.outcome import Outcome


def collect(arguments: argparse.Namespace) -> Outcome:
    """Collects what the three judges should have said on the training questions."""
    from raisf.data.questions import load_questions
    from raisf.optimize.judges.collect import collect as collect_rows

    train = load_questions(arguments.train)
    others = {name: load_questions(path) for name in ("dev", "test") if (path := getattr(arguments, name))}
    options: dict[str, Any] = {name: getattr(arguments, name) for name in LM_OPTIONS}
    program = assemble.open_program(
        "ra-isf", lm=arguments.lm, index=arguments.index, where=arguments.where, lm_options=options, k=arguments.k
    )
    made = collect_rows(
        program,
        train,
        arguments.out,
        labels=arguments.labels,
        teacher=assemble.open_lm(arguments.teacher) if arguments.teacher is not None else None,
        others=others,
        threads=arguments.threads,
    )
    table = Table("judge", "rows", "of them", "teacher and gold agree")
    for judge, classes in made["rows"].items():
        agreed = made["agreement"].get(judge)
        share = f"{agreed['agree']:.1%} of {agreed['n']}" if agreed else "-"
        table.add_row(judge, str(sum(classes.values())), ", ".join(f"{n} {name}" for name, n in classes.items()), share)
    notes = [Text("know: who is compared with gold is the LM's own closed-book answers", style="dim")]
    if made["unfinished"]:
        counts = [(made["errors"], "calls failed"), (made["unreadable"], "replies could not be read and label nothing")]
        said = ", ".join(f"{n} {what}" for n, what in counts if n)
        said += f": rows of {made['unfinished']} of {len(train)} training questions are missing"
        notes.append(Text(f"{said}; run the same command again to make them", style="yellow"))
    return Outcome({"out": str(arguments.out), **made}, Group(table, *notes, Text(f"rows: {arguments.out}")))
