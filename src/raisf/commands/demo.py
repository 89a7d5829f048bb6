"""`raisf demo`."""

from pathlib import Path
from typing import Any

import click

from raisf.commands.command import GO_ON, command, option
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE, FOLDER, at_least
from raisf.utils.errors import InputError

# The sections of the report that are shown.
SECTIONS = ("answers", "cost", "routes", "judge-know", "judge-relevance", "judge-decomposition")


@command(
    "demo",
    "  raisf demo\n  raisf demo --real\n  raisf demo --questions 50 --engine bm25",
    resume=GO_ON,
)
@option(
    "--real",
    is_flag=True,
    help="run it on real text instead: articles about the real world, and SmolLM2-135M; twenty minutes on two cores",
)
@option(
    "--out",
    type=FOLDER,
    metavar="DIR",
    help="the folder for all it makes; default: demo-output, with --real demo-output/real",
)
@option(
    "--questions",
    type=at_least(1),
    metavar="N",
    help="test questions to answer; default: 200; with --real 30, plus a third as many that no article answers",
)
@option("--engine", type=click.Choice(("colbert", "bm25")), default="colbert", help="default: colbert")
@option(
    "--program",
    "begin",
    type=FILE,
    metavar="DIR",
    help="with --real: the compiled program whose answerers are used; default: the one that ships",
)
def demo_command(real: bool, out: Path | None, questions: int | None, engine: Any, begin: Path | None) -> CommandResult:
    """Run the whole journey offline: texts, an index of them, a program compiled on them, a comparison."""
    from rich.console import Group

    from raisf.experiments.demo import run_demo
    from raisf.experiments.demo_real import QUESTIONS, run_real_demo
    from raisf.programs.rendering import render
    from raisf.utils.display import as_text

    out = out or Path("demo-output/real" if real else "demo-output")
    if real:
        made = run_real_demo(out, questions=questions or QUESTIONS, engine=engine, begin=begin)
    elif begin is not None:
        raise InputError("--program is for --real: the closed world's demo begins with nothing; leave it out")
    else:
        made = run_demo(out, questions=questions or 200, engine=engine)
    tables = [made.report.sections[name].view() for name in SECTIONS if name in made.report.sections]
    asked = as_text(f"\nOne question's tree: {made.command}\n", "bold")
    page = as_text(f"\nThe report, with plots and paired tests: {made.page}", "bold")
    data = {**made.report.results, "example": made.example.model_dump(mode="json")}
    return CommandResult(data, Group(*tables, asked, render(made.example), page))
