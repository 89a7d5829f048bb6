"""`raisf collect`: the judges' training sets as files."""

from pathlib import Path

import click

from raisf.commands.command import GO_ON, command, option
from raisf.commands.options import (
    TeacherChoice,
    asked_on,
    labels_option,
    lm_options,
    ray_option,
    teacher_options,
    threads_option,
)
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE, FOLDER, at_least
from raisf.experiments.opening import LMChoice, given, open_program


@command(
    "collect",
    "  raisf collect --train worlds/home/train.jsonl --index indexes/home --out data/judges\n"
    "  raisf collect --train train.jsonl --test test.jsonl --index indexes/mine --lm local/PATH \\\n"
    "      --teacher openai/gpt-4o --out data/judges",
    resume=GO_ON,
)
@option("--train", type=FILE, required=True, metavar="FILE", help="training questions (JSON or JSON Lines)")
@option("--dev", type=FILE, metavar="FILE", help="the dev questions; --train must hold none of them")
@option("--test", type=FILE, metavar="FILE", help="the test questions; --train must hold none of them")
@option(
    "--out",
    type=FOLDER,
    required=True,
    metavar="DIR",
    help="the folder for the rows, to look at or change; `raisf compile` makes its own, unless --rows-from names these",
)
@option("--index", metavar="DIR", required=True, help="a folder made by `raisf index`, or a URL")
@option("--where", metavar="FILTER", help="search only the passages that satisfy it")
@option("--k", type=at_least(1), metavar="N", help="passages per retrieval; default: 5")
@option(
    "--relevance",
    type=click.Choice(("pointwise", "listwise")),
    help="pointwise labels each passage alone, listwise all of a question in one call; default: pointwise",
)
@teacher_options
@labels_option()
@threads_option
@ray_option
@lm_options
def collect_command(
    train: Path,
    dev: Path | None,
    test: Path | None,
    out: Path,
    index: str,
    where: str | None,
    k: int | None,
    relevance: str | None,
    labels: str,
    threads: int,
    ray: str | None,
    teacher: TeacherChoice,
    lm: LMChoice,
) -> CommandResult:
    """Collect rows for training the judges, one file each: what each should have said on the training questions."""
    from rich.console import Group

    from raisf.data.questions import load_questions
    from raisf.optimize.judges.collect import collect
    from raisf.reports.compiled import rows_table, teacher_line
    from raisf.utils.display import as_text

    trainset, options = load_questions(train), given({"k": k, "relevance": relevance})
    with asked_on(ray, lm):
        made = collect(
            open_program("ra-isf", lm=lm, index=index, where=where, questions=trainset, **options),
            trainset,
            out,
            labels=labels,  # type: ignore[arg-type]
            teacher=teacher.open(),
            others={name: load_questions(path) for name, path in (("dev", dev), ("test", test)) if path},
            threads=threads,
        )
    notes = [as_text("know: what is compared with gold are the LM's own closed-book answers", "dim")]
    if made["teacher"]:
        notes.append(as_text(teacher_line(made["teacher"])))
    if made["unfinished"]:
        counts = [(made["errors"], "calls failed"), (made["unreadable"], "replies could not be read and label nothing")]
        said = ", ".join(f"{n} {what}" for n, what in counts if n)
        said += f": rows of {made['unfinished']} of {len(trainset)} training questions are missing"
        notes.append(as_text(f"{said}; run the same command again to make them", "yellow"))
    return CommandResult({"out": str(out), **made}, Group(rows_table(made), *notes, as_text(f"rows: {out}")))
