"""`raisf compare`: programs on the same questions, beside each other, with the report that comes of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raisf.commands.command import GO_ON, command, command_line, option
from raisf.commands.options import (
    index_options,
    labels_option,
    limit_option,
    lm_options,
    set_once,
    set_option,
    threads_option,
)
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE, at_least, labelled_programs
from raisf.experiments.opening import LMChoice, given, open_fitting
from raisf.utils.errors import InputError


@command(
    "compare",
    "  raisf compare --programs direct,rag,zero-shot=ra-isf,artifacts/prompts,artifacts/weights \\\n"
    "      --test worlds/home/test.jsonl --index indexes/home --out reports/home\n"
    "  raisf compare --programs ra-isf,mine=mypackage.rag:MyRAG --lm openai/gpt-4o-mini --index indexes/mine \\\n"
    "      --test test.jsonl --out reports/mine",
    resume=GO_ON,
)
@option(
    "--programs",
    type=labelled_programs,
    required=True,
    metavar="A,B,...",
    help="names that `raisf programs` lists, folders made by `raisf compile`, and package.module:Class for "
    "modules of your own (compiled: package.module:Class@FOLDER); LABEL=NAME gives one a label",
)
@option("--test", type=FILE, required=True, metavar="FILE", help="questions (JSON or JSON Lines)")
@option(
    "--out",
    type=FILE,
    required=True,
    metavar="DIR",
    help="the report's folder: results.json, tables as CSV, report.html",
)
@limit_option
@option("--no-judges", is_flag=True, help="do not measure each judge alone against gold")
@labels_option()
@threads_option
@index_options("all programs")
@option("--k", type=at_least(1), metavar="N", heading="all programs", help="passages per retrieval; default: 5")
@set_option(
    "all programs",
    "an option of those listed by `raisf programs` that have it, such as evidence=false, as the papers read; compiled "
    "programs and your own modules keep theirs",
)
@lm_options
def compare_command(
    programs: dict[str, str],
    test: Path,
    out: Path,
    limit: int | None,
    no_judges: bool,
    labels: Any,
    threads: int,
    index: str | None,
    where: str | None,
    k: int | None,
    switches: tuple[tuple[str, Any], ...],
    lm: LMChoice,
) -> CommandResult:
    """Compare programs on the same questions: scores, paired tests, routes, judges, cost; a page with plots."""
    from rich.console import Group

    from raisf.data.questions import load_questions
    from raisf.experiments.comparing import compare
    from raisf.reports.report import PAGE, check_folder
    from raisf.utils.display import as_text

    check_folder(out)
    examples = load_questions(test)[:limit]
    changed = _changed(programs, set_once(switches, given({"k": k})))
    report = compare(
        {
            label: open_fitting(
                name, lm=lm, index=index, where=where, questions=examples, **(given({"k": k}) | changed[label])
            )
            for label, name in programs.items()
        },
        examples,
        out,
        judges=not no_judges,
        labels=labels,
        threads=threads,
        title=f"{len(programs)} programs on {test.stem}",
        test=f"{test}, {len(examples)} questions",
        command=command_line(),
    )
    view = Group(*(section.view() for section in report.sections.values()), as_text(f"\nreport: {out / PAGE}"))
    return CommandResult({"out": str(out), **report.results}, view)


def _changed(programs: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By label, those of the options that a program has, of the programs that `raisf programs` lists."""
    from raisf.programs.registry import PROGRAMS, defaults

    known = {label: defaults(PROGRAMS[name]).keys() if name in PROGRAMS else set() for label, name in programs.items()}
    for one in options:
        if not any(one in names for names in known.values()):
            raise InputError(
                f"--set {one}: none of {', '.join(programs)} is a listed program with that option; `raisf programs "
                "--json` lists the options of each, and compiled programs and modules of your own keep theirs"
            )
    return {label: {one: options[one] for one in options if one in names} for label, names in known.items()}
