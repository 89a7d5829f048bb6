"""`raisf demo`."""

from pathlib import Path
from typing import Any

import click

from raisf.commands.command import GO_ON, command, option
from raisf.commands.result import CommandResult
from raisf.commands.values import at_least, folder

# The sections of the report that are shown.
SECTIONS = ("answers", "cost", "routes", "judge-know", "judge-relevance", "judge-decomposition")


@command("demo", "  raisf demo\n  raisf demo --questions 50 --engine bm25", resume=GO_ON)
@option(
    "--out",
    type=folder,
    default=Path("demo-output"),
    metavar="DIR",
    help="where all it makes goes; default: demo-output",
)
@option("--questions", type=at_least(1), default=200, metavar="N", help="test questions to answer; default: 200")
@option("--engine", type=click.Choice(("colbert", "bm25")), default="colbert", help="default: colbert")
def demo_command(out: Path, questions: int, engine: Any) -> CommandResult:
    """Do the main job from end to end, offline: a closed world, its index, a compiled program, a comparison."""
    from rich.console import Group

    from raisf.experiments.demo import run_demo
    from raisf.programs.trace import render
    from raisf.utils.display import as_text

    made = run_demo(out, questions=questions, engine=engine)
    tables = [made.report.sections[name].view() for name in SECTIONS if name in made.report.sections]
    asked = as_text(f"\nOne question's tree: {made.command}\n", "bold")
    page = as_text(f"\nThe report, with plots and paired tests: {made.page}", "bold")
    data = {**made.report.results, "example": made.example.model_dump(mode="json")}
    return CommandResult(data, Group(*tables, asked, render(made.example), page))
