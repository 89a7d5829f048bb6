"""`raisf eval`: a program, or with --module one judge of it, on a file of questions."""

from pathlib import Path

import click

from raisf.commands.command import GO_ON, command, option
from raisf.commands.eval_judge import JudgeEvaluation
from raisf.commands.options import (
    ProgramChoice,
    asked_on,
    labels_option,
    limit_option,
    lm_options,
    program_options,
    ray_option,
    threads_option,
)
from raisf.commands.result import CommandResult
from raisf.commands.values import FILE
from raisf.experiments.comparing import records_file
from raisf.experiments.opening import LMChoice, without_cache
from raisf.utils.errors import InputError

ALONE = "one judge alone, against gold"


@command(
    "eval",
    "  raisf eval --program artifacts/a --test worlds/home/test.jsonl\n"
    "  raisf eval --program rag --index indexes/home --test worlds/home/test.jsonl --out runs/rag.jsonl\n"
    "  raisf eval --module know --test worlds/home/test.jsonl --train worlds/home/train.jsonl",
    resume=GO_ON,
)
@option(
    "--test",
    type=FILE,
    required=True,
    metavar="FILE",
    help="questions (JSON or JSON Lines, HotpotQA's formats too: docs/formats.md)",
)
@option(
    "--out",
    type=FILE,
    metavar="FILE",
    help="the file of records; default: in runs/, named after the program and the test",
)
@limit_option
@option(
    "--cache",
    is_flag=True,
    help="use answers in DSPy's cache: cheaper, but cost and seconds are then the cache's; such records are kept apart",
)
@option("--fresh", is_flag=True, help="drop this command's records in --out and start over")
@threads_option
@ray_option
@option(
    "--module",
    type=click.Choice(("know", "relevance", "sufficiency", "decomposition")),
    heading=ALONE,
    help="measure this judge instead of the answers: accuracy, precision, recall, F1, AUROC, calibration; "
    "its verdicts go to --out",
)
@option(
    "--train",
    type=FILE,
    metavar="FILE",
    heading=ALONE,
    help="training questions, to fit the baselines of the know judge",
)
@labels_option(ALONE)
@program_options
@lm_options
def eval_command(
    test: Path,
    out: Path | None,
    limit: int | None,
    cache: bool,
    fresh: bool,
    threads: int,
    ray: str | None,
    module: str | None,
    train: Path | None,
    labels: str,
    choice: ProgramChoice,
    lm: LMChoice,
) -> CommandResult:
    """Answer a file of questions and measure; each question is recorded, so it can be stopped and resumed."""
    from rich.console import Group

    from raisf.data.questions import load_questions
    from raisf.evaluation.readability import check_readable
    from raisf.evaluation.runner import evaluate
    from raisf.evaluation.seen import seen_by
    from raisf.utils.display import as_text

    if not module and (train or labels != "model"):
        raise InputError(f"{'--train' if train else '--labels'} is for a judge alone: give --module, or leave it out")
    if module and cache:
        raise InputError("--cache is about the cost of answers, which judges alone have not: leave it out")
    examples = load_questions(test)[:limit]
    choice = choice.named(lm, examples)
    asked = str(choice.program)
    program = choice.open(lm, searches=module in (None, "relevance"), questions=examples)
    if module:
        with asked_on(ray, lm):
            return JudgeEvaluation(module, program, asked, test, limit, train, out, labels, threads, fresh).run()
    if not cache:
        program = without_cache(program)
    name = f"{Path(asked).name.replace(':', '.')}-{test.stem}"
    out = out or records_file(Path("runs"), program, examples, name, cache=cache)
    with asked_on(ray, lm):
        report = evaluate(program, examples, out, threads=threads, fresh=fresh, cache=cache)
    check_readable({asked: (report.unreadable, report.outputs)}, str(out))
    view = Group(report.table(f"{asked} on {test}"), as_text(f"records: {out}"))
    named = {"program": asked, "test": str(test), "not_held_out": seen_by(program, examples), "out": str(out)}
    return CommandResult({**named, **report.as_dict()}, view)
